"""Prompts that begin alike, read as a tree: the same keys, values and logits as padded ones."""

import asyncio
from collections.abc import Sequence
from random import Random

import pytest
import torch
from conftest import BaseFor
from loud import loud_adapter

from mas.core.engine import Request, Sampling
from mas.serving import forward
from mas.serving.forward import Prompt, prefill
from mas.serving.model import BaseModel
from mas.serving.packed_layout import tree_of
from mas.serving.transformers_engine import TransformersEngine


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay")


def prompts_of(base: BaseModel) -> list[Prompt]:
    """Two adapters and the bare base; frames within frames, a prompt that begins another, one that shares nothing."""
    frame, longer = (5, 6, 7, 8, 9, 10, 11), (5, 6, 7, 8, 9, 10, 11, 20, 21, 22)
    texts = [(*frame, 30), (*longer, 31, 32), (*longer, 33), longer, (*frame, 34, 35, 36), (40, 41)]
    speakers = (loud_adapter(base, 1, 0.2), None, loud_adapter(base, 2, 0.2))
    return [Prompt(text, weights) for weights in speakers for text in texts]


def assert_same(base: BaseModel, prompts: Sequence[Prompt]) -> None:
    with torch.inference_mode():
        (layers, logits_UV), (right, right_UV) = (
            forward._prefill_trees(base, prompts, forward.Forest.of(prompts)),
            forward._prefill_padded(base, prompts),
        )
    torch.testing.assert_close(logits_UV, right_UV, atol=1e-4, rtol=1e-4)
    for own, others in zip(layers, right, strict=True):
        for found, wanted in zip(own, others, strict=True):
            assert found.shape == wanted.shape
            for row, prompt in enumerate(prompts):
                length = len(prompt.ids)
                torch.testing.assert_close(found[row, :, -length:], wanted[row, :, -length:], atol=1e-4, rtol=1e-4)


def test_a_tree_of_prompts_computes_what_padded_prompts_do(base: BaseModel) -> None:
    assert_same(base, prompts_of(base))


def test_many_random_prompts(base: BaseModel) -> None:
    random, frames = Random(3), [tuple(Random(n).choices(range(3, 60), k=20)) for n in range(3)]
    texts = {
        (*random.choice(frames)[: random.randint(0, 20)], *random.choices(range(3, 60), k=random.randint(1, 90)))
        for _ in range(40)
    }
    assert_same(base, [Prompt(text, None) for text in sorted(texts, key=len)])


def test_tokens_that_prompts_begin_with_are_read_once() -> None:
    tree = tree_of([(1, 2, 3), (1, 2, 3, 4), (1, 2, 5), (7,)])
    assert tree.ids == (1, 2, 3, 4, 5, 7)
    assert tree.positions == (0, 1, 2, 3, 2, 0)
    assert tree.ends == (5, 5, 4, 4, 5, 6)
    assert tree.paths == ((0, 1, 2), (0, 1, 2, 3), (0, 1, 4), (5,))


async def test_the_engine_shares_where_it_saves_enough_and_draws_the_same(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = []
    reads = forward._prefill_trees
    monkeypatch.setattr(forward, "_prefill_trees", lambda *given: shared.append(len(given[1])) or reads(*given))
    frame = tuple(range(3, 60))
    engine, made = TransformersEngine(base), []
    sampling = Sampling(max_tokens=6)
    for worth in (1e18, 0):
        monkeypatch.setattr(forward, "_WORTH", worth)
        forward._sharing.pop(base.model, None)
        shared.clear()
        jobs = [Request(prompt_ids=(*frame, 3 + n), sampling=sampling, seeds=(n, 9)) for n in range(8)]
        made.append([g for one in [await engine.generate(job) for job in jobs] for g in one])
        made[-1] += [g for one in await asyncio.gather(*(engine.generate(job) for job in jobs)) for g in one]
        assert (8 in shared) is (worth == 0)
    for one, other in zip(*made, strict=True):
        assert one.token_ids == other.token_ids
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-4)
    await engine.close()


def test_a_model_whose_tree_computes_something_else_is_read_padded(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forward, "_WORTH", 0)
    for wrong in (lambda *_: (_ for _ in ()).throw(TypeError("no argument packing")), _shifted):
        forward._sharing.pop(base.model, None)
        monkeypatch.setattr(forward, "_prefill_trees", wrong)
        with torch.inference_mode():
            found, right = prefill(base, prompts_of(base))[1], forward._prefill_padded(base, prompts_of(base))[1]
        assert torch.equal(found, right)
    forward._sharing.pop(base.model, None)


def _shifted(base: BaseModel, prompts: Sequence[Prompt], _: object) -> forward.Prefilled:
    layers, logits_UV = forward._prefill_padded(base, prompts)
    return layers, logits_UV.roll(1, -1)
