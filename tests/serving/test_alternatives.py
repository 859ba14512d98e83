"""The most likely tokens beside each drawn one: those of the distribution that was sampled from."""

from collections.abc import AsyncIterator

import pytest
import torch
from conftest import BaseFor
from loud import loud_adapter

from mas.core.engine import Grammar, Request, Sampling
from mas.core.errors import RefusedRequest
from mas.core.support import unpack_support
from mas.serving.forward import ScoredRow, completion_logits
from mas.serving.transformers_engine import TransformersEngine

PROMPT = (5, 6, 7)


@pytest.fixture
async def engine(base_for: BaseFor) -> AsyncIterator[TransformersEngine]:
    base = base_for("relay")
    engine = TransformersEngine(base)
    await engine.store.publish("a", loud_adapter(base, 3, 0.2))
    yield engine
    await engine.close()


@pytest.mark.parametrize(
    "sampling",
    [
        Sampling(max_tokens=6, stop=(1,), alternatives=4),
        Sampling(max_tokens=6, stop=(1,), alternatives=3, temperature=0.5),
        Sampling(max_tokens=6, stop=(1,), alternatives=20, temperature=0.0),
        Sampling(max_tokens=6, stop=(1,), alternatives=5, top_k=2),
        Sampling(max_tokens=6, stop=(1,), alternatives=5, grammar=Grammar("regex", "dog|cat|horse")),
    ],
)
async def test_they_are_those_of_the_plain_distribution(engine: TransformersEngine, sampling: Sampling) -> None:
    made = await engine.generate(Request(prompt_ids=PROMPT, sampling=sampling, seeds=(1, 2, 3), adapter="a"))
    base, weights = engine.base, engine.store.weights("a")
    for one in made:
        assert len(one.alternatives) == len(one.token_ids)
        logits_LV = completion_logits(base.model, base.bank, [ScoredRow(PROMPT, one.token_ids, weights)])[0]
        for place, told in enumerate(one.alternatives):
            scores_V = logits_LV[place].float() / (sampling.temperature or 1.0)
            if one.supports:
                possible_V = torch.from_numpy(unpack_support(one.supports[place], scores_V.shape[-1]).copy())
                scores_V = scores_V.masked_fill(~possible_V, -torch.inf)
            right_V = scores_V.log_softmax(-1)
            wanted = min(sampling.alternatives, int(torch.isfinite(right_V).sum()))
            values_K, _ = right_V.topk(wanted)
            assert [value for _, value in told] == pytest.approx(values_K.tolist(), abs=1e-4)
            assert [value for token, value in told] == pytest.approx([float(right_V[t]) for t, _ in told], abs=1e-4)
            if one.token_ids[place] in dict(told):
                assert dict(told)[one.token_ids[place]] == pytest.approx(one.logprobs[place], abs=1e-5)


async def test_they_change_nothing_and_come_in_pieces_too(engine: TransformersEngine) -> None:
    plain = Sampling(max_tokens=8, stop=(1,))
    told = Sampling(max_tokens=8, stop=(1,), alternatives=3)
    seeds = (1, 2, 3, 4)
    without = await engine.generate(Request(prompt_ids=PROMPT, sampling=plain, seeds=seeds, adapter="a"))
    beside = await engine.generate(Request(prompt_ids=PROMPT, sampling=told, seeds=seeds, adapter="a"))
    assert [one.token_ids for one in without] == [one.token_ids for one in beside]
    assert all(one.alternatives == () for one in without)
    request = Request(prompt_ids=PROMPT, sampling=told, seeds=(2,), adapter="a")
    pieces = [piece async for piece in engine.stream(request)]
    joined = [one for piece in pieces for place in piece.alternatives for one in place]
    whole = [one for place in beside[1].alternatives for one in place]
    assert [token for token, _ in joined] == [token for token, _ in whole]
    assert [value for _, value in joined] == pytest.approx([value for _, value in whole], abs=1e-5)


async def test_more_than_twenty_are_refused(engine: TransformersEngine) -> None:
    request = Request(prompt_ids=PROMPT, sampling=Sampling(alternatives=21), seeds=(1,), adapter="a")
    with pytest.raises(RefusedRequest, match="from 0 to 20"):
        await engine.generate(request)
