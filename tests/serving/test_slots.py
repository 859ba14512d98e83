"""The cache of a running batch against rows kept one by one."""

from typing import Any

import pytest
import torch
from conftest import BaseFor
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from transformers import MambaConfig, MambaForCausalLM

from mas.core.engine import Request, Sampling
from mas.core.errors import ModelError
from mas.serving.decode import Batch, DecodeJob
from mas.serving.grammar import Grammars
from mas.serving.kv_cache import Attention, SlotCache

LAYERS, HEADS, SIZE = 2, 2, 3
FULL = Attention({"full_attention": None})
add = st.tuples(st.just("add"), st.lists(st.tuples(st.integers(1, 90), st.integers(1, 3)), min_size=1, max_size=4))
step = st.tuples(st.just("step"), st.integers(1, 80))
keep = st.tuples(st.just("keep"), st.lists(st.booleans(), min_size=0, max_size=20))


DRAWS = torch.Generator().manual_seed(0)


def states(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=DRAWS)


class Rows:
    """Every row's keys, layer by layer, with nothing shared: what the cache must show."""

    def __init__(self) -> None:
        self.keys: list[list[Tensor]] = []

    def check(self, cache: SlotCache) -> None:
        """Write a token to every row and read them all back through the mask."""
        new = [states(len(self.keys), HEADS, 1, SIZE) for _ in range(LAYERS)]
        mask = cache.mask(FULL, torch.float32, torch.device("cpu"))
        assert isinstance(mask, Tensor)
        for number in range(LAYERS):
            seen, values = cache.update(new[number], -new[number], number)
            assert torch.equal(seen, -values)
            for row, held in enumerate(self.keys):
                held[number] = torch.cat([held[number], new[number][row]], dim=1)
                assert torch.equal(seen[row][:, mask[row, 0, 0] == 0], held[number])
        cache.advance()


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(add, step, keep), max_size=12))
def test_every_row_reads_its_own_tokens_however_the_others_come_and_go(moves: list[tuple[str, Any]]) -> None:
    cache, rows = SlotCache(LAYERS), Rows()
    for kind, what in moves:
        if kind == "add":
            prompts = [length for length, _ in what]
            index = [number for number, (_, copies) in enumerate(what) for _ in range(copies)]
            filled = [(keys, -keys) for keys in (states(len(prompts), HEADS, max(prompts), SIZE),) * LAYERS]
            cache.add(filled, index, [prompts[number] for number in index])
            rows.keys += [[keys[number][:, -prompts[number] :] for keys, _ in filled] for number in index]
        elif kind == "keep":
            staying = [row for row, (_, stays) in enumerate(zip(rows.keys, what, strict=False)) if stays]
            order = cache.keep(staying)
            assert sorted(order) == staying
            rows.keys = [rows.keys[row] for row in order]
        elif rows.keys:
            for _ in range(what):
                rows.check(cache)
    if rows.keys:
        rows.check(cache)


def test_there_is_room_for_all_rows_that_come_in_parts_and_for_no_more() -> None:
    cache, places = SlotCache(1), []
    for rows, more in ((5, 2), (2, 0)):
        cache.add([(torch.zeros(rows, 1, 4, 2), torch.zeros(rows, 1, 4, 2))], range(rows), [4] * rows, more)
        places.append(len(cache._slots[0].buffers[0]))
    assert places == [7, 7], "doubled for the second part there would be 10"


def test_layers_that_look_back_only_so_far_get_a_mask_of_their_own() -> None:
    cache = SlotCache(1)
    cache.add([(torch.zeros(1, 1, 6, 2), torch.zeros(1, 1, 6, 2))], [0, 0], [6, 2])
    masks = cache.mask(Attention({"full_attention": None, "sliding_attention": 3}), torch.float32, torch.device("cpu"))
    assert isinstance(masks, dict)
    seen = {kind: (mask[:, 0, 0] == 0).int().tolist() for kind, mask in masks.items()}
    assert seen["full_attention"] == [[1, 1, 1, 1, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1]]
    assert seen["sliding_attention"] == [[0, 0, 0, 0, 1, 1, 1], [0, 0, 0, 0, 1, 1, 1]]


def test_a_model_with_other_state_than_keys_and_values_is_refused() -> None:
    config = MambaConfig(hidden_size=16, num_hidden_layers=1, vocab_size=10, state_size=4)
    with pytest.raises(ModelError, match=r"'mamba' model has .*; use engine=vllm"):
        Attention.of(MambaForCausalLM(config))


async def test_a_batch_read_in_parts_has_a_place_for_each_of_its_rows(base_for: BaseFor) -> None:
    base = base_for("relay")
    batch = Batch(base, Grammars(base.text))
    sampling = Sampling(temperature=1.0, max_tokens=3)
    prompts = [tuple(range(2, 2 + length)) for length in (4, 4, 4, 4, 4, 9, 20)]  # three parts: of other lengths
    batch.admit(
        DecodeJob(Request(prompt_ids=ids, sampling=sampling, seeds=(row,)), row, None, None)
        for row, ids in enumerate(prompts)
    )
    assert 0 < len(batch.jobs) <= len(batch._cache._slots[0].buffers[0]) <= len(prompts)
