"""What a vLLM server elsewhere can do wrong while adapters are loaded, shown by a stand-in for one."""

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
from conftest import BaseFor
from loopback import served
from loud import loud_adapter
from starlette.applications import Starlette
from starlette.requests import Request as Call
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

import mas.serving.remote_vllm
from mas.config.servers import RemoteOptions
from mas.core.engine import AdapterRef, Request, Sampling
from mas.core.errors import EngineError, NotServed, TrainingError
from mas.serving.model import BaseModel
from mas.serving.publication import Probe
from mas.serving.remote_vllm import RemoteVllmEngine
from mas.serving.replicated_engine import ReplicatedEngine
from mas.training.engines import start_servers

ASK = Request(prompt_ids=(5, 6), sampling=Sampling(max_tokens=1), seeds=(1, 2, 3), adapter="a")


class StandIn:
    """Answers like `vllm serve`. `loses`: so many answers to loading are lost, though the adapter is loaded.
    `logprob`: of every token that is scored. `most_scored`: how many texts it was asked to score at the same time, at
    most. `dies_for`: its engine process is gone, so that it only lists its models, until it was asked so many times for
    its health and begins anew."""

    def __init__(self, *, loads: bool = True, loses: int = 0) -> None:
        self.paths: dict[str, Path] = {}
        self.loaded: list[str] = []
        self.asked: list[str] = []
        self.loses = loses
        self.scoring = self.most_scored = self.dies_for = 0
        self.logprob = -1.0
        routes = [Route("/v1/models", self.models), Route("/v1/completions", self.complete, methods=["POST"])]
        routes.append(Route("/health", self.health))
        if loads:
            routes.append(Route("/v1/load_lora_adapter", self.load, methods=["POST"]))
            routes.append(Route("/v1/unload_lora_adapter", self.unload, methods=["POST"]))
        self.app = Starlette(routes=routes)

    async def models(self, call: Call) -> Response:
        base: dict[str, Any] = {"id": "base", "parent": None, "max_model_len": 64}
        return JSONResponse({"data": [base, *({"id": name, "parent": "base"} for name in self.paths)]})

    async def health(self, call: Call) -> Response:
        if not self.dies_for:
            return Response()
        self.dies_for -= 1
        if not self.dies_for:
            self.paths.clear()
        return Response(status_code=503)

    async def load(self, call: Call) -> Response:
        if self.dies_for:
            return self.problem(500, "EngineCore encountered an issue.")
        body = await call.json()
        name, path = body["lora_name"], Path(body["lora_path"])
        if name in self.paths:
            return self.problem(400, f"The lora adapter '{name}' has already been loaded.")
        assert (path / "adapter_model.safetensors").is_file()
        self.paths[name] = path
        self.loaded.append(name)
        if self.loses:
            self.loses -= 1
            return JSONResponse({"error": {"message": "lost"}}, 502, {"retry-after-ms": "5"})
        return PlainTextResponse("Success")

    async def unload(self, call: Call) -> Response:
        name = (await call.json())["lora_name"]
        return PlainTextResponse("Success") if self.paths.pop(name, None) else self.problem(404, "cannot be found")

    async def complete(self, call: Call) -> Response:
        if self.dies_for:
            return self.problem(500, "EngineCore encountered an issue.")
        body = await call.json()
        self.asked.append(body["model"])
        if body["model"] not in self.paths:
            return self.problem(404, f"The model `{body['model']}` does not exist.")
        if "prompt_logprobs" in body:
            return await self.score(body["prompt"])
        return JSONResponse({"choices": [{"token_ids": [8], "logprobs": {"token_logprobs": [-1.0]}}]})

    async def score(self, ids: list[int]) -> Response:
        self.scoring += 1
        self.most_scored = max(self.most_scored, self.scoring)
        for _ in range(100):  # the others' requests come in meanwhile
            await asyncio.sleep(0)
        self.scoring -= 1
        scored = [None, *({str(token): {"logprob": self.logprob}} for token in ids[1:])]
        return JSONResponse({"choices": [{"token_ids": [8], "logprobs": None, "prompt_logprobs": scored}]})

    def problem(self, status: int, message: str) -> Response:
        return JSONResponse({"error": {"message": message, "code": status}}, status)


@pytest.fixture
def base(base_for: BaseFor) -> BaseModel:
    return base_for("plan_path")


async def test_a_server_that_does_not_load_adapters_is_refused_with_what_to_set(base: BaseModel) -> None:
    async with served(StandIn(loads=False).app) as url:
        with pytest.raises(EngineError, match=r"VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and with --enable-lora"):
            await RemoteVllmEngine.start(base, RemoteOptions(url=url))


async def test_versions_have_names_of_their_own_and_go_when_the_engine_does(base: BaseModel) -> None:
    server = StandIn()
    async with served(server.app) as url:
        first = await RemoteVllmEngine.start(base, RemoteOptions(url=url))
        second = await RemoteVllmEngine.start(base, RemoteOptions(url=url))
        for engine in (first, second):
            for seed in (1, 2):
                await engine.store.publish("a", loud_adapter(base, seed))
        assert len(set(server.loaded)) == len(server.loaded) == 6
        assert len(server.paths) == 4  # of each: its current version, and the bare base
        paths = list(server.paths.values())
        (made, *_) = await first.generate(ASK)
        assert made.adapter == AdapterRef("a", 1)
        await first.close()
        await second.close()
    assert server.paths == {}
    assert not any(path.exists() for path in paths)


async def test_the_bare_base_is_asked_for_as_an_adapter(base: BaseModel) -> None:
    server = StandIn()
    async with served(server.app) as url:
        engine = await RemoteVllmEngine.start(base, RemoteOptions(url=url))
        (made,) = await engine.generate(Request(prompt_ids=(5,), sampling=Sampling(max_tokens=1), seeds=(1,)))
        assert made.adapter is None
        assert server.asked == server.loaded
        await engine.close()


async def test_loading_whose_answer_was_lost_is_no_failure(base: BaseModel) -> None:
    server = StandIn(loses=1)
    async with served(server.app) as url:
        engine = await RemoteVllmEngine.start(base, RemoteOptions(url=url))
        await engine.close()
    assert len(server.loaded) == 1


async def test_what_a_server_has_forgotten_is_loaded_again_once(base: BaseModel) -> None:
    server = StandIn()
    async with served(server.app) as url:
        engine = await RemoteVllmEngine.start(base, RemoteOptions(url=url))
        await engine.store.publish("a", loud_adapter(base, 1))
        server.paths.clear()
        assert len(await engine.generate(ASK)) == 3
        assert len(server.loaded) == 3  # the bare base, the version, the version again
        await engine.close()


async def test_a_server_that_comes_back_with_another_base_is_not_asked(base: BaseModel) -> None:
    server, probe = StandIn(), Probe((5, 6), (7, 8), (-1.0, -1.0))
    async with served(server.app) as url:
        engine = await RemoteVllmEngine.start(base, RemoteOptions(url=url))
        await engine.store.publish("a", loud_adapter(base, 1), probes=(probe,))
        server.paths.clear()
        assert len(await engine.generate(ASK)) == 3
        assert await engine.score((5, 6), (7,), "a") == (-1.0,)
        for _ in range(2):
            server.paths.clear()
            server.logprob, asked = -3.0, len(server.asked)
            with pytest.raises(NotServed, match=rf"a@0 is not served as it was trained: {url}'s log-prob.* by 2 nats"):
                await engine.generate(ASK)
            assert len(server.asked) - asked <= 4  # the three that found it forgotten, and the probe
            with pytest.raises(NotServed):
                await engine.score((5, 6), (7,), "a")
        await engine.close()


async def test_files_lie_in_a_shared_directory_that_others_may_read(base: BaseModel, tmp_path: Path) -> None:
    server = StandIn()
    async with served(server.app) as url:
        engine = await RemoteVllmEngine.start(base, RemoteOptions(url=url, shared_dir=str(tmp_path)))
        await engine.store.publish("a", loud_adapter(base, 1))
        folders = {path.parent for path in server.paths.values()}
        assert {folder.parent for folder in folders} == {tmp_path}
        assert {folder.stat().st_mode & 0o777 for folder in folders} == {0o755}
        assert {path.stat().st_mode & 0o555 for path in server.paths.values()} == {0o555}
        await engine.close()
    assert not any(folder.exists() for folder in folders)


async def test_texts_are_scored_one_at_a_time_since_the_cpu_build_ends_over_several(base: BaseModel) -> None:
    server = StandIn()
    async with served(server.app) as url:
        engine = await RemoteVllmEngine.start(base, RemoteOptions(url=url))
        texts = [((5, 6), (8,)), ((5, 7, 6), (8, 9)), ((6,), (9,))]
        scores = await asyncio.gather(*(engine.score(*text) for text in texts))
        assert scores == [(-1.0,) * len(completion) for _, completion in texts]
        assert server.most_scored == 1
        await engine.close()


SESSIONS = [f"episode-{number}" for number in range(8)]


def asking(session: str) -> Request:
    return Request(
        prompt_ids=ASK.prompt_ids, sampling=ASK.sampling, seeds=ASK.seeds, adapter=ASK.adapter, session=session
    )


async def test_every_server_gets_every_version_and_none_keeps_one(base: BaseModel) -> None:
    servers = StandIn(), StandIn()
    async with served(servers[0].app) as first, served(servers[1].app) as second:
        engine = await start_servers(base, RemoteOptions(url=first, replicas=(second,)))
        assert isinstance(engine, ReplicatedEngine)
        assert engine.limits.context == 64  # the servers'
        for seed in (1, 2):
            await engine.store.publish("a", loud_adapter(base, seed))
        for server in servers:
            assert len(server.loaded) == 3  # the bare base and two versions
            assert len(server.paths) == 2  # the old one is unloaded
        for session in SESSIONS:
            (made, *_) = await engine.generate(asking(session))
            assert made.adapter is not None
            assert made.adapter.version == 1
        counts = engine.metrics()["requests"]
        assert [len(server.asked) // 3 for server in servers] == [counts["server-0"], counts["server-1"]]
        assert min(counts.values()) > 0
        paths = [path for server in servers for path in server.paths.values()]
        await engine.close()
        assert [server.paths for server in servers] == [{}, {}]
    assert not any(path.exists() for path in paths)


async def test_a_server_that_is_not_there_is_one_error_and_the_others_keep_nothing(base: BaseModel) -> None:
    server = StandIn()
    async with served(server.app) as url:
        async with served(StandIn().app) as gone:
            pass
        with pytest.raises(EngineError, match=rf"server 2 of 2 cannot be used: no connection to {gone}.*leave it out"):
            await start_servers(base, RemoteOptions(url=url, replicas=(gone,), retries=0))
    assert server.loaded
    assert server.paths == {}


async def test_a_server_that_goes_and_comes_back_gets_its_versions_and_sessions_again(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mas.serving.remote_vllm, "_PAUSE_S", 0.01)
    servers = StandIn(), StandIn()
    async with served(servers[0].app) as first, AsyncExitStack() as second:
        url = await second.enter_async_context(served(servers[1].app))
        engine = await start_servers(base, RemoteOptions(url=first, replicas=(url,), retries=0))
        assert isinstance(engine, ReplicatedEngine)
        await engine.store.publish("a", loud_adapter(base, 1))
        await second.aclose()
        servers[1].paths.clear()  # what is started again has forgotten all
        for session in SESSIONS:
            assert len(await engine.generate(asking(session))) == 3
        assert servers[1].asked == []
        port = int(url.removesuffix("/v1").rpartition(":")[2])
        async with served(servers[1].app, port):
            restarting = engine._members[1].restarting
            assert restarting is not None
            await restarting
            assert len(servers[1].paths) == 2
            for session in SESSIONS:
                await engine.generate(asking(session))
            assert servers[1].asked
            assert engine.restarts == 1
            await engine.close()


@pytest.mark.parametrize("is_published", [False, True])
async def test_a_server_whose_engine_process_dies_is_lost_though_it_still_answers(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch, is_published: bool
) -> None:
    monkeypatch.setattr(mas.serving.remote_vllm, "_PAUSE_S", 0.01)
    servers = StandIn(), StandIn()
    async with served(servers[0].app) as first, served(servers[1].app) as second:
        engine = await start_servers(base, RemoteOptions(url=first, replicas=(second,), retries=0))
        assert isinstance(engine, ReplicatedEngine)
        await engine.store.publish("a", loud_adapter(base, 1))
        servers[1].dies_for = 4
        if is_published:  # it waits until all have the version
            await engine.store.publish("a", loud_adapter(base, 2))
            assert len(servers[1].paths) == 2
        for session in SESSIONS:
            (made, *_) = await engine.generate(asking(session))
            assert made.adapter == AdapterRef("a", int(is_published))
        assert engine.restarts == 1
        restarting = engine._members[1].restarting
        assert restarting is not None
        await restarting
        assert len(servers[1].paths) == 2  # the bare base, and the version of now
        await engine.close()


async def test_a_server_that_was_started_again_unseen_gets_all_versions_before_it_is_asked_again(
    base: BaseModel,
) -> None:
    servers = StandIn(), StandIn()
    async with served(servers[0].app) as first, served(servers[1].app) as second:
        engine = await start_servers(base, RemoteOptions(url=first, replicas=(second,)))
        assert isinstance(engine, ReplicatedEngine)
        for name in "ab":
            await engine.store.publish(name, loud_adapter(base, 1))
        servers[1].paths.clear()
        for session in SESSIONS:  # of "a" only
            assert len(await engine.generate(asking(session))) == 3
        assert engine.restarts == 1
        restarting = engine._members[1].restarting
        assert restarting is not None
        await restarting
        assert len(servers[1].paths) == 3
        await engine.close()


async def test_a_server_that_does_not_come_back_ends_training(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mas.serving.remote_vllm, "_PAUSE_S", 0.01)
    async with served(StandIn().app) as first, AsyncExitStack() as second:
        url = await second.enter_async_context(served(StandIn().app))
        engine = await start_servers(base, RemoteOptions(url=first, replicas=(url,), retries=0, timeout_s=0.5))
        await second.aclose()
        with pytest.raises(TrainingError, match=rf"cannot serve again: {url} does not answer again within 0.5 s"):
            await engine.store.publish("a", loud_adapter(base, 1))
        await engine.close()
