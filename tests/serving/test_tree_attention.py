"""Attention of a packed forest: every token mixes what it would mix alone on its path, and so do the gradients."""

import random
from collections.abc import Callable

import pytest
import torch
from torch import Tensor
from torch.nn.attention.flex_attention import create_block_mask

from mas.serving.attention import MergedParts, in_blocks, in_trees, tree_attention
from mas.serving.packed_layout import PackedLayout, rounded

CPU = torch.device("cpu")
SIZE = 8


def forest(seed: int, trees: int = 5, longest: int = 12) -> PackedLayout:
    """Trees of up to three levels of branches."""
    draw = random.Random(seed)
    positions: list[int] = []
    ends: list[int] = []

    def grow(level: int, position: int) -> None:
        start, length = len(positions), draw.randint(1, longest)
        positions.extend(range(position, position + length))
        ends.extend([0] * length)
        for _ in range(draw.choice([0, 2, 3]) if level < 3 else 0):
            grow(level + 1, position + length)
        ends[start : start + length] = [len(positions)] * length

    for _ in range(trees):
        grow(0, 0)
    return PackedLayout(positions, ends, CPU)


def drawn(layout: PackedLayout, queries: int = 4, heads: int = 4) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    tokens = len(layout.ends)
    return tuple(
        torch.randn(tokens, count, SIZE, generator=generator).requires_grad_() for count in (queries, heads, heads)
    )


def path_by_path(query: Tensor, key: Tensor, value: Tensor, layout: PackedLayout, window: int | None = None) -> Tensor:
    """Softmax written out for every token over the tokens of its own path."""
    repeat = query.shape[1] // key.shape[1]
    rows = []
    for place, position in enumerate(layout.positions):
        path = [k for k in range(place + 1) if place < layout.ends[k]]
        assert len(path) == position + 1
        path = path if window is None else path[-window:]
        keys, values = (x[path].repeat_interleave(repeat, 1) for x in (key, value))
        shares = (torch.einsum("hd,khd->hk", query[place], keys) * SIZE**-0.5).softmax(-1)
        rows.append(torch.einsum("hk,khd->hd", shares, values))
    return torch.stack(rows)


def with_gradients(mixed: Tensor, inputs: tuple[Tensor, ...]) -> list[Tensor]:
    slope = torch.linspace(-1, 1, mixed.numel()).view_as(mixed)
    return [mixed.detach(), *torch.autograd.grad((mixed * slope).sum(), inputs)]


@pytest.mark.parametrize("way", [MergedParts.apply, in_trees])
@pytest.mark.parametrize(("queries", "heads"), [(4, 4), (4, 2), (4, 1)])
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_outputs_and_gradients_are_those_of_each_path(
    way: Callable[..., Tensor], queries: int, heads: int, seed: int
) -> None:
    layout = forest(seed)
    inputs = drawn(layout, queries, heads)
    wanted = with_gradients(path_by_path(*inputs, layout), inputs)
    for mine, theirs in zip(with_gradients(way(*inputs, layout, SIZE**-0.5), inputs), wanted, strict=True):
        assert (mine - theirs).norm() <= 1e-5 * theirs.norm()


@pytest.mark.nightly(of=16)
def test_long_spans_are_parts_of_their_own_and_mix_the_same() -> None:
    layout = forest(3, trees=2, longest=150)
    assert any(isinstance(part.queries, slice) for part in layout.parts)
    assert any(isinstance(part.queries, Tensor) for part in forest(3).parts)
    inputs = drawn(layout, 4, 2)
    wanted = with_gradients(path_by_path(*inputs, layout), inputs)
    for mine, theirs in zip(
        with_gradients(MergedParts.apply(*inputs, layout, SIZE**-0.5), inputs), wanted, strict=True
    ):
        assert (mine - theirs).norm() <= 1e-5 * theirs.norm()


@pytest.mark.parametrize("window", [1, 3, 9, 1000])
def test_a_window_ends_the_path(window: int) -> None:
    layout = forest(4)
    inputs = drawn(layout, 4, 2)
    mixed = tree_attention(*inputs, layout, scale=SIZE**-0.5, window=window)
    assert torch.allclose(mixed, path_by_path(*inputs, layout, window), atol=1e-5)


@pytest.mark.parametrize("window", [None, 1, 9])
@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_the_block_mask_is_the_same_forest(window: int | None) -> None:
    # Without a CUDA device flex attention has no gradients; its forward pass shows which tokens see which.
    layout = forest(5)
    inputs = tuple(x.detach() for x in drawn(layout, 4, 2))
    mixed = in_blocks(*inputs, layout, SIZE**-0.5, window)
    assert torch.allclose(mixed, path_by_path(*inputs, layout, window), atol=1e-5)


@pytest.mark.parametrize(("trees", "longest"), [(1, 30), (12, 12), (4, 150), (30, 40)])
def test_the_block_mask_is_made_of_the_blocks_that_torch_finds(trees: int, longest: int) -> None:
    layout = forest(7, trees, longest)
    tokens, mine = len(layout.ends), layout.block_mask()
    theirs = create_block_mask(mine.mask_mod, None, None, tokens, tokens, device="cpu")
    assert mine.seq_lengths == theirs.seq_lengths
    assert mine.BLOCK_SIZE == theirs.BLOCK_SIZE
    for part in ("kv", "full_kv", "q", "full_q"):
        counts, wanted = getattr(mine, f"{part}_num_blocks"), getattr(theirs, f"{part}_num_blocks")
        assert torch.equal(counts, wanted)
        order, right = getattr(mine, f"{part}_indices")[0, 0], getattr(theirs, f"{part}_indices")[0, 0]
        for row, count in enumerate(wanted[0, 0]):
            assert torch.equal(order[row, :count], right[row, :count])


def test_no_part_is_larger_than_what_is_seen() -> None:
    # 8 completions of 40 tokens behind a prompt of 100: pairs grow with what is seen, not with the square of the pack.
    positions, ends = [*range(100)], [420] * 100
    for start in range(100, 420, 40):
        positions += range(100, 140)
        ends += [start + 40] * 40
    layout = PackedLayout(positions, ends, CPU)
    rows = [(part.rows, _count(part.queries) // part.rows, _count(part.keys) // part.rows) for part in layout.parts]
    assert sorted(rows) == [(1, 100, 100), (1, 320, 100), (8, 40, 40)]
    assert sum(part.is_first * part.rows for part in layout.parts) == 9


def test_short_trees_are_blocks_of_one_part() -> None:
    layout = forest(6, trees=40, longest=3)
    first, *_ = layout.parts
    assert first.mask_B1SS is not None
    assert len(layout.parts) < 0.2 * len(layout.spans)


def _count(places: slice | Tensor) -> int:
    return places.stop - places.start if isinstance(places, slice) else places.numel()


@pytest.mark.parametrize("length", range(1, 65))
def test_rows_are_filled_up_by_less_than_a_fourth(length: int) -> None:
    assert length <= rounded(length) < length * 5 / 4
