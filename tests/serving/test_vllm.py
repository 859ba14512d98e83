"""The engine contract on real vLLM with several adapters, and what vLLM alone can get wrong."""

import asyncio
import gc
import os
import shutil
import signal
from collections.abc import AsyncIterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from statistics import fmean
from types import SimpleNamespace

import pytest
import pytest_asyncio
from conftest import BaseFor
from loud import loud_adapter

from mas.config.load import load_config
from mas.config.options import EngineOptions, ModelOptions, TinyOptions
from mas.core.engine import AdapterRef, Engine, Generation, Request, Sampling
from mas.core.errors import ConfigError, EngineError, EngineLost, ModelError, NotServed, TrainingError
from mas.runs.resolve import resolve, resolve_training
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel
from mas.serving.publication import TOLERANCE, AdapterVersion, Probe
from mas.serving.transformers_engine import TransformersEngine
from mas.serving.vllm_engine import VllmEngine
from mas.serving.vllm_options import CPU_LORA, vllm_arguments
from mas.testing.engine import EngineContract
from mas.training.adapters import check_sampled
from mas.training.base import open_base
from mas.training.trainer import Trainer
from mas.training.watch import Silent

pytestmark = [
    pytest.mark.nightly(of=16),
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.filterwarnings("default"),  # vLLM and what it imports warn of many things
]

BLOCK = 128
"""Tokens of one entry of the prefix cache on a CPU: shorter prompts are never found in it."""
WIDE = ModelOptions(tiny=TinyOptions(head_size=32, steps=20, habit_steps=5, batch=16))
"""vLLM's CPU kernels need heads of 32."""


@pytest.fixture(scope="session")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("plan_path", WIDE)


async def started(base: BaseModel) -> VllmEngine:
    options = EngineOptions(name="vllm", adapters=3, vllm={"max_num_seqs": 64})  # three places, all of them taken
    engine = await VllmEngine.start(base, options, rank=8)
    for number, name in enumerate("ab", start=1):
        await engine.store.publish(name, loud_adapter(base, number))
    return engine


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def served(base: BaseModel) -> AsyncIterator[VllmEngine]:
    """One vLLM for all tests here."""
    engine = await started(base)
    yield engine
    await engine.close()
    gc.collect()  # vLLM leaves its sockets' contexts to the collector, which warns of them


class TestVllmEngine(EngineContract):
    @pytest.fixture(autouse=True)
    def _base(self, base: BaseModel) -> None:
        self.base = base

    @pytest.fixture
    def engine(self, served: VllmEngine) -> Engine:
        return served

    async def make_engine(self) -> Engine:
        return await started(self.base)

    async def publish_again(self, engine: Engine) -> AdapterRef:
        assert isinstance(engine, VllmEngine)
        return (await engine.store.publish("a", loud_adapter(self.base, 3))).ref

    @pytest.mark.nightly(shard=False)  # another start
    async def test_closing_finishes_what_is_in_flight_and_is_safe_twice(self) -> None:
        await super().test_closing_finishes_what_is_in_flight_and_is_safe_twice()


def request(number: int, adapter: str | None) -> Request:
    prompt_ids = (5, 6, 7 + number % 9)
    return Request(
        prompt_ids=prompt_ids, sampling=Sampling(max_tokens=6), seeds=(number, 1000 + number), adapter=adapter
    )


def assert_same(found: Sequence[Generation], wanted: Sequence[Generation]) -> None:
    """The same tokens of the same version, up to rounding, which depends on the adapter's place in vLLM."""
    for one, other in zip(found, wanted, strict=True):
        assert (one.token_ids, one.finish, one.adapter) == (other.token_ids, other.finish, other.adapter)
        assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)


async def test_three_adapters_and_the_base_in_one_batch_agree_with_the_trainer(
    served: VllmEngine, base: BaseModel
) -> None:
    checker = TransformersEngine(base)
    for number, name in enumerate("abc"):
        weights = loud_adapter(base, 10 + number)
        await served.store.publish(name, weights)
        await checker.store.publish(name, weights)
    wanted = [request(number, (None, "a", "b", "c")[number % 4]) for number in range(24)]
    made = await asyncio.gather(*(served.generate(one) for one in wanted))
    worst = 0.0
    for one, generations in zip(wanted, made, strict=True):
        for generation in generations:
            scores = await checker.score(one.prompt_ids, generation.token_ids, one.adapter)
            worst = max(worst, *(abs(a - b) for a, b in zip(scores, generation.logprobs, strict=True)))
            other = await checker.score(one.prompt_ids, generation.token_ids, "a" if one.adapter != "a" else "b")
            assert max(abs(a - b) for a, b in zip(other, generation.logprobs, strict=True)) > 1e-2
    assert worst <= 1e-5
    await checker.close()


async def test_the_bare_base_is_the_base_beside_as_many_adapters_as_there_is_room_for(
    served: VllmEngine, base: BaseModel
) -> None:
    checker = TransformersEngine(base)
    names = [f"full{number}" for number in range(served.options.adapters + 1)]
    for number, name in enumerate(names):
        await served.store.publish(name, loud_adapter(base, 60 + number))
    wanted = [request(number, name) for number, name in enumerate([None, *names, None, *names, None])]
    made = await asyncio.gather(*(served.generate(one) for one in wanted))
    for one, generations in zip(wanted, made, strict=True):
        if one.adapter is None:
            for generation in generations:
                scores = await checker.score(one.prompt_ids, generation.token_ids)
                assert generation.logprobs == pytest.approx(scores, abs=1e-4)
    await checker.close()


async def test_scoring_beside_other_requests_is_right(served: VllmEngine, base: BaseModel) -> None:
    checker = TransformersEngine(base)
    for name in "ab":
        await checker.store.publish(name, served.store.weights(name))
    prompts = [(tuple(range(5, 20 + number)), (None, "a", "b")[number % 3]) for number in range(9)]
    scores = [served.score(prompt_ids, (8, 9), adapter) for prompt_ids, adapter in prompts]
    found, _ = await asyncio.gather(
        asyncio.gather(*scores), asyncio.gather(*(served.generate(request(number, "a")) for number in range(9)))
    )
    for (prompt_ids, adapter), logprobs in zip(prompts, found, strict=True):
        assert logprobs == pytest.approx(await checker.score(prompt_ids, (8, 9), adapter), abs=1e-5)
    assert served.restarts == 0
    await checker.close()


async def test_more_prompts_than_one_step_reads_are_served(served: VllmEngine) -> None:
    long = [tuple(5 + (number + place) % 60 for place in range(200)) for number in range(60)]
    wanted = [Request(prompt_ids=ids, sampling=Sampling(max_tokens=2), seeds=(1,), adapter="a") for ids in long]
    made = await asyncio.gather(*(served.generate(one) for one in wanted))
    assert [len(one.token_ids) for (one,) in made] == [2] * 60
    assert served.restarts == 0


async def test_the_canary_catches_a_wrong_adapter_and_the_old_one_serves_on(
    served: VllmEngine, base: BaseModel
) -> None:
    checker = TransformersEngine(base)
    good, bad = loud_adapter(base, 20), loud_adapter(base, 21)
    await checker.store.publish("d", good)
    probe = Probe((5, 6, 7), (8, 9), await checker.score((5, 6, 7), (8, 9), "d"))
    found = await served.store.publish("d", good, probes=(probe,))
    assert found.gap is not None
    assert found.gap <= 1e-5
    before = await served.generate(request(1, "d"))
    with pytest.raises(NotServed):
        await served.store.publish("d", bad, probes=(probe,))
    assert_same(await served.generate(request(1, "d")), before)
    await checker.close()


async def test_a_prefix_cache_never_mixes_versions(served: VllmEngine, base: BaseModel) -> None:
    long = tuple(5 + number % 40 for number in range(BLOCK + 50))
    for number in range(3):
        weights = loud_adapter(base, 30 + number)
        await served.store.publish("a", weights)
        checker = TransformersEngine(base)
        await checker.store.publish("a", weights)
        one = Request(prompt_ids=long, sampling=Sampling(max_tokens=4), seeds=(1, 2), adapter="a")
        for generation in (await served.generate(one)) + (await served.generate(one)):
            scores = await checker.score(long, generation.token_ids, "a")
            assert generation.logprobs == pytest.approx(scores, abs=1e-4)
        await checker.close()


async def test_a_stale_prefix_cache_is_noticed_before_anything_learns_from_it(
    served: VllmEngine, base: BaseModel, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    from vllm.lora.request import LoRARequest

    def used_again(version: AdapterVersion) -> LoRARequest:
        """What overwriting a version in place comes to: the cache tells adapters apart by name and path."""
        assert version.path is not None
        shutil.copytree(version.path, tmp_path, dirs_exist_ok=True)
        return LoRARequest(version.ref.name, version.number, str(tmp_path))

    long = tuple(5 + (3 * number) % 50 for number in range(BLOCK + 50))
    one = Request(prompt_ids=long, sampling=Sampling(max_tokens=4), seeds=(1, 2, 3), adapter="stale")
    gaps = []
    for is_used_again in (False, True):
        with monkeypatch.context() as patch:
            if is_used_again:
                patch.setattr("mas.serving.vllm_engine._lora", used_again)
            for number in (40, 41):
                weights = loud_adapter(base, number)
                await served.store.publish("stale", weights)
                made = await served.generate(one)
            checker = TransformersEngine(base)
            await checker.store.publish("stale", weights)
            scores = [await checker.score(long, generation.token_ids, "stale") for generation in made]
            pairs = [pair for s, g in zip(scores, made, strict=True) for pair in zip(s, g.logprobs, strict=True)]
            gaps.append(fmean(abs(a - b) for a, b in pairs))
            await checker.close()
    right, stale = gaps
    check_sampled({"stale": {"behaviour_gap": right}}, TOLERANCE["float32"])
    with pytest.raises(TrainingError, match="not drawn from the policy in training"):
        check_sampled({"stale": {"behaviour_gap": stale}}, TOLERANCE["float32"])


def resident_mb() -> float:
    """Memory of this process and of vLLM's, in MB."""
    import psutil  # comes with vLLM

    me = psutil.Process()
    return sum(process.memory_info().rss for process in (me, *me.children(recursive=True))) / 2**20


@pytest.mark.nightly(shard=False)  # half a minute of waiting
async def test_a_hundred_publishes_under_load_keep_every_completion_true_to_its_version_and_memory_flat(
    served: VllmEngine, base: BaseModel
) -> None:
    weights = {}
    made = []
    memory = []

    async def publish() -> None:
        for number in range(100):
            name = "abc"[number % 3]
            adapter = loud_adapter(base, 100 + number)
            weights[str((await served.store.publish(name, adapter)).ref)] = adapter
            if number in (30, 99):
                memory.append(resident_mb())

    async def ask(name: str) -> None:
        for number in range(40):
            one = request(number, name)
            made.extend((one, generation) for generation in await served.generate(one))

    for name in "abc":
        if name not in served.adapters():
            await served.store.publish(name, loud_adapter(base, 99))
        weights[str(served.adapters()[name])] = served.store.weights(name)
    restarts = served.restarts
    await asyncio.gather(publish(), *(ask(name) for name in "abc"))
    assert len({str(generation.adapter) for _, generation in made}) > 10
    for one, generation in made[::3]:
        checker = TransformersEngine(base)
        await checker.store.publish("x", weights[str(generation.adapter)])
        scores = await checker.score(one.prompt_ids, generation.token_ids, "x")
        assert generation.logprobs == pytest.approx(scores, abs=1e-4)
        await checker.close()
    assert len(await served._llm.list_loras()) <= len(served.store.loaded()) + 1
    assert memory[1] - memory[0] < 30, memory  # seventy versions of 0.5 MB each in two processes would be more
    assert served.restarts == restarts


async def test_tokens_are_streamed_and_a_stopped_stream_frees_its_place(served: VllmEngine) -> None:
    one = Request(prompt_ids=(5, 6, 7), sampling=Sampling(max_tokens=20), seeds=(4,), adapter="a")
    (whole,) = await served.generate(one)
    stream = served.stream(one)
    assert (await anext(stream)).token_ids == whole.token_ids[:1]
    await stream.aclose()
    async with asyncio.timeout(20):
        while served._llm.get_num_unfinished_requests():  # noqa: ASYNC110 - vLLM has no event for it
            await asyncio.sleep(0.01)


async def test_a_rank_above_the_engines_is_refused(served: VllmEngine, base: BaseModel) -> None:
    options = base.options.lora.model_copy(update={"rank": 64})
    with pytest.raises(EngineError, match="rank 64; the engine was started for at most 8"):
        await served.store.publish("big", base.bank.create(options, 0))
    assert "big" not in served.adapters()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_nmu_seqs": 4}, "Did you mean 'max_num_seqs'"),
        ({"logprobs_mode": "raw_logprobs"}, "training relies on"),
        ({"max_loras": 1}, "training relies on"),
        ({"worker_extension_cls": "mine.Worker"}, "engine.cpu_lora=false to use it"),
    ],
)
async def test_options_are_checked_before_anything_starts(
    base: BaseModel, options: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        await VllmEngine.start(base, EngineOptions(name="vllm", vllm=options), rank=8)


async def test_an_unknown_vllm_adds_adapters_by_itself_and_says_so(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    options = EngineOptions(name="vllm")
    assert vllm_arguments(base, options, 8).worker_extension_cls == CPU_LORA
    assert caplog.text == ""
    assert not vllm_arguments(base, options.model_copy(update={"cpu_lora": False}), 8).worker_extension_cls
    monkeypatch.setattr("vllm.__version__", "0.33.0")
    assert not vllm_arguments(base, options, 8).worker_extension_cls
    assert "vLLM 0.33.0 adds adapters by itself" in caplog.text


async def test_heads_that_vllm_cannot_serve_are_refused_with_what_to_do(base_for: BaseFor) -> None:
    narrow = base_for("plan_path", ModelOptions(tiny=WIDE.tiny.model_copy(update={"head_size": None})))
    with pytest.raises(ModelError, match=r"the model has 16; for the tiny base set model.tiny.head_size=32"):
        await VllmEngine.start(narrow, EngineOptions(name="vllm"), rank=8)


@pytest.mark.nightly(shard=False)  # another start
async def test_an_engine_that_dies_is_started_again_with_its_adapters(served: VllmEngine) -> None:
    import psutil  # comes with vLLM

    wanted = await served.generate(request(1, "a"))
    for child in psutil.Process().children(recursive=True):
        if "EngineCore" in child.name() or "VLLM" in child.name():
            os.kill(child.pid, signal.SIGKILL)
    assert_same(await served.generate(request(1, "a")), wanted)
    assert served.restarts == 1


async def test_a_start_that_fails_is_one_more_loss(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the memory of the one that died is not free yet."""
    options, arguments, dead = (
        EngineOptions(name="vllm", restarts=2),
        SimpleNamespace(worker_extension_cls=""),
        SimpleNamespace(),
    )
    dead.shutdown = lambda: None
    engine, starts = VllmEngine(base, options, arguments, dead), []

    async def start(*_: object) -> None:
        starts.append(1)
        raise ModelError("no memory is free")

    monkeypatch.setattr("mas.serving.vllm_engine._start", start)
    with pytest.raises(EngineLost, match="restarted 2 times before: no memory is free"):
        await engine._restart(dead, RuntimeError("it died"))
    assert (engine.is_lost, len(starts)) == (True, 2)


@pytest.mark.nightly(shard=False)  # another start
async def test_a_team_served_by_vllm_learns_relay() -> None:
    config = load_config(
        ["scenario=relay", "engine=vllm", "train.target=0.95", "train.eval_every=10", "train.eval_tasks=40"]
    )
    scenario = build_scenario(config.scenario)
    watcher = Silent()
    outcome = await Trainer(
        resolve_training(config, scenario), open_base(resolve(config, scenario), lambda text: None)
    ).run(watcher)
    assert outcome.reason == "target success 0.95 reached", watcher.curve
    assert max(found["gap"] for step in outcome.history for found in step["canary"].values()) <= 1e-4
