"""The engine contract over HTTP against a real vLLM server, and what a server elsewhere can get wrong."""

import asyncio
from collections.abc import AsyncIterator
from importlib.util import find_spec
from pathlib import Path

import pytest
import pytest_asyncio
from conftest import BaseFor
from loud import loud_adapter
from vllm_server import SHORT, WIDE, VllmServer

from mas.config.load import load_config
from mas.config.servers import RemoteOptions
from mas.core.engine import AdapterRef, Engine, Request, Sampling
from mas.core.errors import ConfigError, EngineError, NotServed
from mas.runs.resolve import resolve_training
from mas.serving.model import BaseModel, load_text
from mas.serving.publication import Probe
from mas.serving.remote_completions import OpenAIEngine
from mas.serving.remote_vllm import RemoteVllmEngine
from mas.serving.transformers_engine import TransformersEngine
from mas.testing.engine import EngineContract
from mas.training.trainer import Trainer
from mas.training.watch import Silent

pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.nightly(shard=False),  # a default run starts vLLM once, in test_vllm.py
    pytest.mark.timeout(600),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest.fixture(scope="session")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("plan_path", WIDE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(base: BaseModel) -> AsyncIterator[VllmServer]:
    """One vLLM for all tests here."""
    server = VllmServer(base.name)
    try:
        await server.wait()
        yield server
    finally:
        server.stop()


async def started(base: BaseModel, server: VllmServer, **options: str) -> RemoteVllmEngine:
    engine = await RemoteVllmEngine.start(base, RemoteOptions.model_validate({"url": server.url, **options}))
    for number, name in enumerate("ab", start=1):
        await engine.store.publish(name, loud_adapter(base, number))
    return engine


@pytest_asyncio.fixture(loop_scope="module")
async def engine_of(base: BaseModel, server: VllmServer) -> AsyncIterator[RemoteVllmEngine]:
    engine = await started(base, server)
    yield engine
    await engine.close()


class TestRemoteVllmEngine(EngineContract):
    @pytest.fixture(autouse=True)
    def _served(self, base: BaseModel, server: VllmServer) -> None:
        self.base, self.server = base, server

    @pytest.fixture
    def engine(self, engine_of: RemoteVllmEngine) -> Engine:
        return engine_of

    async def make_engine(self) -> Engine:
        return await started(self.base, self.server)

    async def publish_again(self, engine: Engine) -> AdapterRef:
        assert isinstance(engine, RemoteVllmEngine)
        return (await engine.store.publish("a", loud_adapter(self.base, 3))).ref


def request(number: int, adapter: str | None) -> Request:
    prompt_ids = (5, 6, 7 + number % 9)
    return Request(
        prompt_ids=prompt_ids, sampling=Sampling(max_tokens=6), seeds=(number, 1000 + number), adapter=adapter
    )


async def loaded(server: VllmServer) -> set[str]:
    """Adapters that the server lists."""
    text = load_text(WIDE, server.model)
    engine = await OpenAIEngine.start(RemoteOptions(url=server.url), text)
    names = set(engine.adapters())
    await engine.close()
    return names


async def test_the_canary_catches_a_wrong_adapter_and_the_old_one_serves_on(
    engine_of: RemoteVllmEngine, base: BaseModel
) -> None:
    checker = TransformersEngine(base)
    good, bad = loud_adapter(base, 20), loud_adapter(base, 21)
    await checker.store.publish("d", good)
    probe = Probe((5, 6, 7), (8, 9), await checker.score((5, 6, 7), (8, 9), "d"))
    found = await engine_of.store.publish("d", good, probes=(probe,))
    assert found.gap is not None
    assert found.gap <= 1e-5
    before = await engine_of.generate(request(1, "d"))
    with pytest.raises(NotServed):
        await engine_of.store.publish("d", bad, probes=(probe,))
    assert await engine_of.generate(request(1, "d")) == before
    await checker.close()


async def test_the_bare_base_is_the_base_beside_more_adapters_than_there_is_room_for(
    engine_of: RemoteVllmEngine, base: BaseModel
) -> None:
    checker = TransformersEngine(base)
    names = [f"full{number}" for number in range(9)]
    for number, name in enumerate(names):
        await engine_of.store.publish(name, loud_adapter(base, 60 + number))
    wanted = [request(number, name) for number, name in enumerate([None, *names, None, *names, None])]
    made = await asyncio.gather(*(engine_of.generate(one) for one in wanted))
    for one, generations in zip(wanted, made, strict=True):
        if one.adapter is None:
            for generation in generations:
                scores = await checker.score(one.prompt_ids, generation.token_ids)
                assert generation.logprobs == pytest.approx(scores, abs=1e-4)
    await checker.close()


async def test_versions_are_retired_and_a_closed_engine_leaves_nothing_behind(
    server: VllmServer, base: BaseModel
) -> None:
    before = await loaded(server)
    engine = await started(base, server)
    paths = []
    for number in range(4):
        await engine.store.publish("a", loud_adapter(base, 30 + number))
        paths.append(engine.store.loaded()[0].path)
    served = await loaded(server) - before
    assert {name.rsplit("-", 2)[0] for name in served} == {"a@4", "b@0", "base@0"}
    await engine.close()
    assert await loaded(server) == before
    assert not any(path.exists() for path in paths if path is not None)


async def test_two_runs_share_a_server_and_never_a_version(server: VllmServer, base: BaseModel) -> None:
    first, second = await started(base, server), await started(base, server)
    await second.store.publish("a", loud_adapter(base, 40))
    await first.store.publish("a", loud_adapter(base, 41))
    for engine, seed in ((first, 41), (second, 40)):
        checker = TransformersEngine(base)
        await checker.store.publish("a", loud_adapter(base, seed))
        for generation in await engine.generate(request(1, "a")):
            scores = await checker.score(request(1, "a").prompt_ids, generation.token_ids, "a")
            assert generation.logprobs == pytest.approx(scores, abs=1e-4)
        await checker.close()
    await first.close()
    await second.close()


async def test_files_lie_where_the_server_reads_them(server: VllmServer, base: BaseModel, tmp_path: Path) -> None:
    engine = await started(base, server, shared_dir=str(tmp_path))
    folders = {version.path.parent for version in engine.store.loaded() if version.path is not None}
    (folder,) = folders
    assert folder.parent == tmp_path
    assert folder.stat().st_mode & 0o777 == 0o755
    assert len(await engine.generate(request(1, "b"))) == 2
    await engine.close()
    assert not folder.exists()


async def test_files_that_the_server_does_not_see_are_an_error_that_says_what_to_do(
    engine_of: RemoteVllmEngine, base: BaseModel
) -> None:
    await engine_of.store.publish("c", loud_adapter(base, 1))
    (version,) = [one for one in engine_of.store.loaded() if one.ref.name == "c"]
    await engine_of.unload(version)
    assert version.path is not None
    version.path.rename(version.path.with_name("elsewhere"))
    with pytest.raises(EngineError, match=r"cannot read adapter c@0 .*engine.remote.shared_dir"):
        await engine_of.generate(request(1, "c"))


async def test_a_shared_directory_that_is_none_is_refused(server: VllmServer, base: BaseModel) -> None:
    with pytest.raises(ConfigError, match="shared_dir=nowhere is no directory here"):
        await RemoteVllmEngine.start(base, RemoteOptions(url=server.url, shared_dir="nowhere"))


async def test_a_rank_above_the_servers_is_refused_with_its_words(engine_of: RemoteVllmEngine, base: BaseModel) -> None:
    options = base.options.lora.model_copy(update={"rank": 64})
    with pytest.raises(EngineError, match=r"cannot load adapter big@0: .*rank"):
        await engine_of.store.publish("big", base.bank.create(options, 0))
    assert "big" not in engine_of.adapters()


async def test_a_server_started_anew_is_given_its_adapters_again(
    server: VllmServer, engine_of: RemoteVllmEngine
) -> None:
    names = (None, "a", "b", "a")
    wanted = [await engine_of.generate(request(number, name)) for number, name in enumerate(names)]
    server.stop()
    server.start()
    await server.wait()
    made = await asyncio.gather(*(engine_of.generate(request(number, name)) for number, name in enumerate(names)))
    assert made == wanted


async def test_a_team_is_trained_against_the_server(server: VllmServer, base: BaseModel) -> None:
    config = load_config(["engine=vllm_server", f"engine.remote.url={server.url}", "train.steps=2", *SHORT])
    outcome = await Trainer(resolve_training(config), base).run(Silent())
    assert outcome.reason == "2 steps done"
    assert set(outcome.progress.versions.values()) == {2}
    assert max(found["gap"] for step in outcome.history for found in step["canary"].values()) <= 1e-4
    for step in outcome.history:
        assert max(role["behaviour_gap"] for role in step["adapters"].values()) <= 1e-4
