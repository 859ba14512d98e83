"""The benchmark itself at its smallest: everybody makes what was asked, and mas says what PEFT says."""

import asyncio
import gc
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.models import make_adapter
from benchmarks.result import Result
from benchmarks.serving import field, run
from benchmarks.serving.competitors import GenerateCompetitor, logprob_gap
from benchmarks.serving.completions import Made
from benchmarks.serving.field import open_field
from benchmarks.serving.models import make_base
from benchmarks.serving.options import GENERATE, OURS, OURS_BASE, PEFT, SIZES, VLLM, VLLM_BASE, ServingBench
from benchmarks.serving.workload import Workload
from mas.core.engine import Generation
from mas.core.errors import EngineError
from mas.serving.vllm_options import _CPU_HEADS

pytestmark = pytest.mark.nightly

SMALL = partial(Workload, prompt_tokens=(4, 12), completion_tokens=(3, 9))


@pytest.fixture(scope="module")
def result() -> Iterator[Result]:
    """A whole run of the smallest size without vLLM."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(field, "find_spec", lambda name: None)
        patch.setattr(run, "Workload", SMALL)
        patch.setattr(run, "COUNT", 1)
        options = ServingBench(sizes=("1M",), repeats=2, requests=6, threads=1)
        yield asyncio.run(run.bench_serving(options, lambda text: None))
    assert torch.get_num_threads() == threads
    gc.collect()


def test_every_competitor_has_a_row_with_the_same_wanted_tokens(result: Result) -> None:
    assert [row.name for row in result.rows] == [GENERATE, PEFT, OURS_BASE, OURS, VLLM_BASE, VLLM]
    ran = [row for row in result.rows if not row.note]
    wanted = SMALL(requests=6).wanted
    assert [(row.tokens, len(row.repeats)) for row in ran] == [(wanted, 2)] * 4
    assert result.workload == {"requests": 6, "tokens": wanted, "seed": 0}
    for row in ran:
        assert row.repeats == pytest.approx([wanted / took for took in row.seconds])
    assert {row.name: row.ratio for row in ran}[OURS_BASE] == 1.0


def test_vllm_is_said_to_be_missing_where_it_is(result: Result) -> None:
    assert {row.name: row.note for row in result.rows if row.note} == dict.fromkeys((VLLM_BASE, VLLM), "not installed")


def test_the_engine_agrees_with_peft_and_publishes_under_load(result: Result) -> None:
    measures = {row.name: row.measures for row in result.rows}
    assert measures[OURS]["logprob_gap"] <= 1e-5
    assert measures[OURS_BASE]["logprob_gap"] <= 1e-5
    published = {name: value for name, value in measures[OURS].items() if name.startswith("publish")}
    assert len(published) == 4
    assert min(published.values()) > 0


def test_targets_hold_the_ratios_and_the_gap(result: Result) -> None:
    rows = {row.name: row for row in result.rows}
    values = {target.name: (target.value, target.goal, target.bound) for target in result.targets}
    assert values[f"1M: {OURS} / {OURS_BASE}"] == (rows[OURS].ratio, 0.8, "at least")
    assert values[f"1M: {OURS} / {PEFT}"][1:] == (1.5, "at least")
    assert values["1M: log-probabilities of mas against PEFT's, nats"][1:] == (1e-5, "at most")


async def test_the_gap_notices_another_adapter_and_another_token(tmp_path: Path) -> None:
    options = ServingBench(sizes=("1M",), threads=1, without=frozenset({"generate", "vllm"}))
    async with open_field("1M", options, SMALL(requests=5), tmp_path) as held:
        await held.engines[OURS].run(1)
        made = held.engines[OURS].last()
        assert logprob_gap(held.peft, made, is_mixed=True) <= 1e-5
        exchanged = {"a": "b", "b": "c", "c": None, None: "a"}
        others = tuple(_with_adapter(request, exchanged[request.adapter]) for request in made.requests)
        for request in range(4):
            one = Made((others[request],), (made.generations[request],))
            assert logprob_gap(held.peft, one, is_mixed=True) > 1e-2
    gc.collect()


def _with_adapter(request: Any, adapter: str | None) -> Any:
    return type(request)(prompt_ids=request.prompt_ids, sampling=request.sampling, seeds=request.seeds, adapter=adapter)


class Model:
    """Stands in for a model: keeps what `generate` was asked and gives `longer` more tokens than the most wanted."""

    device = torch.device("cpu")

    def __init__(self, longer: int = 0) -> None:
        self.longer = longer

    def generate(self, **asked: Any) -> torch.Tensor:
        self.asked = asked
        ids_NT = asked["input_ids"]
        return torch.cat([ids_NT, torch.ones(len(ids_NT), asked["max_new_tokens"] + self.longer, dtype=torch.long)], 1)


async def test_generate_is_asked_for_plain_sampling_of_each_rows_adapter_until_the_longest_is_done() -> None:
    workload = SMALL(requests=5)
    model = Model()
    assert await GenerateCompetitor("x", model, workload, is_mixed=True).run(1) == workload.wanted
    assert model.asked["adapter_names"] == ["a", "b", "c", "__base__", "a"]
    assert (model.asked["temperature"], model.asked["top_k"], model.asked["top_p"]) == (1.0, 0, 1.0)
    completions = [completion for _, completion in workload.lengths()]
    assert model.asked["max_new_tokens"] == max(completions)
    (stop,) = model.asked["stopping_criteria"]
    width = model.asked["input_ids"].shape[1]
    for made in range(1, max(completions) + 1):
        ids = torch.zeros(5, width + made, dtype=torch.long)
        assert stop(ids, None).tolist() == [completion <= made for completion in completions]


async def test_the_bare_base_is_asked_for_no_adapters_and_its_randomness_is_its_own() -> None:
    model = Model()
    before = torch.random.get_rng_state()
    await GenerateCompetitor("x", model, SMALL(requests=5), is_mixed=False).run(1)
    assert "adapter_names" not in model.asked
    assert torch.equal(torch.random.get_rng_state(), before)


async def test_too_few_tokens_void_the_measurement() -> None:
    with pytest.raises(EngineError, match=r"x: request \d+ got \d tokens, wanted were \d"):
        await GenerateCompetitor("x", Model(longer=-1), SMALL(requests=5), is_mixed=False).run(1)


def test_too_many_tokens_void_it_as_well() -> None:
    (request,) = SMALL(requests=1).round(0, is_mixed=False)
    wanted = request.sampling.max_tokens
    good = Generation(token_ids=(1,) * wanted, logprobs=(), finish="length")
    assert Made.checked("x", [request], [good]).tokens == wanted
    long = Generation(token_ids=(1,) * (wanted + 1), logprobs=(), finish="length")
    with pytest.raises(EngineError, match="wanted were"):
        Made.checked("x", [request], [long])


@pytest.mark.parametrize("size", SIZES)
def test_a_size_has_about_as_many_weights_as_its_name_says_and_heads_that_vllm_serves(size: str) -> None:
    shape = SIZES[size]
    attention = 2 * shape.hidden * 32 * (shape.heads + shape.kv_heads)
    weights = shape.layers * (attention + 3 * shape.hidden * shape.intermediate)
    assert weights == pytest.approx(float(size.removesuffix("M")) * 1e6, rel=0.1)
    assert shape.head_size in _CPU_HEADS


def test_bases_and_adapters_follow_from_the_seed(tmp_path: Path) -> None:
    bases = [make_base("1M", tmp_path / str(n), seed=seed, threads=1) for n, seed in enumerate((0, 0, 1))]
    first, same, other = (next(base.model.parameters()) for base in bases)
    assert torch.equal(first, same)
    assert not torch.equal(first, other)
    adapters = [make_adapter(bases[0], *seed) for seed in ((0, "a"), (0, "a"), (0, "b"))]
    for mine, again, others in zip(*(weights.parameters() for weights in adapters), strict=True):
        assert torch.equal(mine, again)
        assert not torch.equal(mine, others)
