"""Restricted sampling in vLLM on the real model: answers keep to the constraint, supports are those of the learner."""

import gc
import re
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio
import torch
from loud import loud_adapter

from mas.config.options import EngineOptions, LoraOptions, ModelOptions
from mas.core.engine import Grammar, Request, Sampling
from mas.core.errors import RefusedRequest
from mas.core.support import unpack_support
from mas.serving.forward import ScoredRow, completion_logits
from mas.serving.model import load_base
from mas.serving.vllm_engine import VllmEngine

pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.nightly(shard=False),  # a start of its own
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("default"),  # vLLM and what it imports warn of many things
]

NAMES = Grammar("regex", "( )?(dog|horse|clock)")
WISH = Grammar(
    "schema",
    '{"type": "object", "properties": {"n": {"enum": [1, 2, 30]}}, "required": ["n"], "additionalProperties": false}',
)
SAMPLINGS = {
    "one of": Sampling(grammar=NAMES, temperature=0.8, max_tokens=6),
    "schema": Sampling(grammar=WISH, temperature=1.0, max_tokens=24),
    "top k": Sampling(top_k=7, max_tokens=5),
    "top k and p": Sampling(top_k=50, top_p=0.7, temperature=0.9, max_tokens=5),
    "min p": Sampling(top_k=100, min_p=0.05, max_tokens=5),
    "grammar and top k": Sampling(grammar=Grammar("regex", "[a-z ]{1,20}"), top_k=5, max_tokens=5),
}


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(smollm: Path) -> AsyncIterator[VllmEngine]:
    base = load_base(ModelOptions(path="smollm2", lora=LoraOptions(targets=("q_proj", "v_proj")), max_context=512))
    engine = await VllmEngine.start(base, EngineOptions(name="vllm", adapters=2, vllm={"max_num_seqs": 16}), rank=8)
    await engine.store.publish("a", loud_adapter(base, 1, 0.02))
    yield engine
    await engine.close()
    gc.collect()  # vLLM leaves its sockets' contexts to the collector, which warns of them


@pytest.mark.parametrize("name", SAMPLINGS)
async def test_log_probabilities_are_those_over_the_supports(served: VllmEngine, name: str) -> None:
    base, sampling = served.base, SAMPLINGS[name]
    sampling = Sampling(**{key: getattr(sampling, key) for key in sampling.__struct_fields__} | {"stop": base.stop_ids})
    prompt = base.tokenizer.chat_messages([("user", "Which animal barks? Answer with one word or JSON.")])
    made = await served.generate(Request(prompt_ids=prompt, sampling=sampling, seeds=(1, 2, 3, 4), adapter="a"))
    weights = served.store.weights("a")
    for one in made:
        assert len(one.supports) == len(one.token_ids)
        logits_LV = completion_logits(base.model, base.bank, [ScoredRow(prompt, one.token_ids, weights)])[0]
        logits_LV = logits_LV / sampling.temperature
        for place, support in enumerate(one.supports):
            possible_V = torch.from_numpy(unpack_support(support, logits_LV.shape[-1]).copy())
            assert 0 < int(possible_V.sum()) < logits_LV.shape[-1]
            logits_LV[place].masked_fill_(~possible_V, -torch.inf)
        right_LV = logits_LV.log_softmax(-1)
        right = [float(right_LV[place, token]) for place, token in enumerate(one.token_ids)]
        assert one.logprobs == pytest.approx(right, abs=2e-3)
        text = base.tokenizer.decode(one.token_ids)
        if name == "one of":
            assert one.finish == "stop"
            assert re.fullmatch(NAMES.text, text)
        if name == "schema" and one.finish == "stop":
            assert re.fullmatch(r'\s*\{\s*"n"\s*:\s*(1|2|30)\s*\}\s*', text), text


async def test_the_most_likely_tokens_are_told(served: VllmEngine) -> None:
    base, prompt = served.base, (1, 2, 3, 4)
    for temperature, grammar in ((0.0, None), (0.7, None), (1.0, NAMES)):
        sampling = Sampling(temperature=temperature, max_tokens=4, grammar=grammar, stop=base.stop_ids, alternatives=5)
        (made,) = await served.generate(Request(prompt_ids=prompt, sampling=sampling, seeds=(1,), adapter="a"))
        weights = served.store.weights("a")
        logits_LV = completion_logits(base.model, base.bank, [ScoredRow(prompt, made.token_ids, weights)])[0]
        assert len(made.alternatives) == len(made.token_ids)
        for place, told in enumerate(made.alternatives):
            scores_V = logits_LV[place] / (temperature or 1.0)
            if grammar is not None:
                possible_V = torch.from_numpy(unpack_support(made.supports[place], scores_V.shape[-1]).copy())
                scores_V = scores_V.masked_fill(~possible_V, -torch.inf)
            values_K, _ = scores_V.log_softmax(-1).topk(len(told))
            assert [value for _, value in told] == pytest.approx(values_K.tolist(), abs=5e-3)
            assert len(told) == 5 or grammar is not None


async def test_a_stream_has_its_supports_too(served: VllmEngine) -> None:
    sampling = Sampling(grammar=NAMES, max_tokens=6, stop=served.stop_ids)
    request = Request(prompt_ids=(1, 2, 3), sampling=sampling, seeds=(5,), adapter="a")
    (whole,) = await served.generate(request)
    pieces = [piece async for piece in served.stream(request)]
    assert tuple(token for piece in pieces for token in piece.token_ids) == whole.token_ids
    assert tuple(support for piece in pieces for support in piece.supports) == whole.supports


async def test_limits_whose_supports_vllm_does_not_say_are_refused(served: VllmEngine) -> None:
    for sampling in (Sampling(top_p=0.9), Sampling(min_p=0.1), Sampling(top_k=101), Sampling(top_k=500, top_p=0.9)):
        with pytest.raises(RefusedRequest, match="top_k from 1 to 100"):
            await served.generate(Request(prompt_ids=(1, 2, 3), sampling=sampling, seeds=(5,), adapter="a"))
