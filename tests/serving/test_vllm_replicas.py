"""Two real vLLM servers as one engine: training continues while the test kills one of them and starts it again."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

import pytest
import pytest_asyncio
from conftest import BaseFor
from vllm_server import SHORT, WIDE, VllmServer

from mas.config.load import load_config
from mas.core.engine import Generation, Request
from mas.runs.resolve import resolve_training
from mas.serving.model import BaseModel
from mas.serving.publication import AdapterVersion, Scorer
from mas.serving.remote_vllm import RemoteVllmEngine
from mas.serving.store import AdapterStore
from mas.training.trainer import Trainer
from mas.training.watch import Silent

pytestmark = [
    pytest.mark.skipif(find_spec("vllm") is None, reason="vLLM is not installed"),
    pytest.mark.vllm,
    pytest.mark.slow,
    pytest.mark.nightly(shard=False),  # three starts of vLLM
    pytest.mark.timeout(3000),
    pytest.mark.asyncio(loop_scope="module"),
]


@pytest.fixture(scope="session")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", WIDE)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def servers(base: BaseModel) -> AsyncIterator[Sequence[VllmServer]]:
    started = VllmServer(base.name), VllmServer(base.name)
    try:
        await asyncio.gather(*(server.wait() for server in started))
        yield started
    finally:
        for server in started:
            server.stop()


def lists(served: set[str] | None, version: AdapterVersion) -> bool:
    """Whether a server that answered so has a version; each client adds a name of its own in the middle."""
    ends = f"{version.ref}-", f"-{version.number}"
    return served is not None and any(name.startswith(ends[0]) and name.endswith(ends[1]) for name in served)


@dataclass
class Watch:
    """What the clients of servers ask for, and what the servers have before that. `kill_at`: with this request for a
    version of step 1, the last of the servers is killed, and started again.

    Attributes:
        asked, scored: URL and version, of completions and of the canary, in order.
        before: version -> whether each server had it before the first completion with it.
        replayed: of each start after a kill, the versions that the server had before the canary.
        killed: how much was asked and scored before.
    """

    servers: Sequence[VllmServer]
    kill_at: int
    asked: list[tuple[str, str]] = field(default_factory=list)
    scored: list[tuple[str, str]] = field(default_factory=list)
    before: dict[str, list[bool]] = field(default_factory=dict)
    replayed: list[set[str]] = field(default_factory=list)
    killed: list[tuple[int, int]] = field(default_factory=list)
    looking: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def ask(self, url: str, version: AdapterVersion) -> None:
        ref = str(version.ref)
        async with self.looking:  # also who asks meanwhile waits, so that none of the servers is killed before
            if ref not in self.before:
                found = await asyncio.gather(*(asyncio.to_thread(server.served) for server in self.servers))
                self.before[ref] = [lists(served, version) for served in found]
        self.asked.append((url, ref))
        last = self.servers[-1]
        if not self.killed and self.asked.count((last.url, "executor@1")) == self.kill_at:
            self.killed.append((len(self.asked), len(self.scored)))
            last.stop()
            last.start()

    async def replay(self, loaded: Sequence[AdapterVersion]) -> None:
        served = await asyncio.to_thread(self.servers[-1].served)
        self.replayed.append({str(version.ref) for version in loaded if lists(served, version)})

    def attach(self, patch: pytest.MonkeyPatch) -> None:
        """See all calls of all clients."""
        generate, score, prove = RemoteVllmEngine.generate_version, RemoteVllmEngine.score_version, AdapterStore.prove

        async def generating(
            engine: RemoteVllmEngine, version: AdapterVersion | None, request: Request
        ) -> tuple[Generation, ...]:
            assert version is not None
            await self.ask(engine._server.options.url, version)
            return await generate(engine, version, request)

        async def scoring(
            engine: RemoteVllmEngine, version: AdapterVersion | None, prompt: Sequence[int], completion: Sequence[int]
        ) -> tuple[float, ...]:
            assert version is not None
            scores = await score(engine, version, prompt, completion)
            self.scored.append((engine._server.options.url, str(version.ref)))
            return scores

        async def proving(store: AdapterStore, name: str, part: Scorer) -> None:
            await self.replay(store.loaded())
            await prove(store, name, part)

        patch.setattr(RemoteVllmEngine, "generate_version", generating)
        patch.setattr(RemoteVllmEngine, "score_version", scoring)
        patch.setattr(AdapterStore, "prove", proving)


async def test_training_over_two_servers_goes_on_while_one_is_killed_and_started_again(
    servers: Sequence[VllmServer], base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = servers
    watch = Watch(servers, kill_at=2)
    watch.attach(monkeypatch)
    words = ["scenario=relay", "engine=vllm_server", f"engine.remote.url={first.url}", "engine.remote.timeout_s=1500"]
    words += [f"engine.remote.replicas=[{second.url}]", "train.steps=2", "train.eval_first=false", *SHORT]
    config = load_config([*words, "train.tasks_per_step=4", "train.eval_tasks=6"])
    outcome = await Trainer(resolve_training(config), base).run(Silent())
    assert outcome.reason == "2 steps done"
    assert outcome.progress.versions == {"planner": 2, "executor": 2}
    refs = {f"{name}@{version}" for name in ("planner", "executor") for version in (0, 1, 2)}
    trained = {ref for ref in refs if not ref.endswith("@0")}
    assert watch.before == {ref: [True, True] for ref in refs}  # on both before anything was drawn with it
    ((asked, scored),) = watch.killed
    assert watch.replayed == [{"planner@1", "executor@1"}]
    for url in (first.url, second.url):
        assert {ref for where, ref in watch.scored if where == url} >= trained  # the canary, on each
        assert [one for one in watch.asked[:asked] if one[0] == url]
        assert [one for one in watch.asked[asked:] if one[0] == url]
    assert {ref for where, ref in watch.scored[scored:] if where == second.url} >= trained  # of its new process
    for step in outcome.history:
        assert step["episodes"]["failed"] == step["failed_attempts"] == 0
        assert min(step["engines"]["requests"].values()) > 0
        assert max(found["gap"] for found in step["canary"].values()) <= 1e-4
        assert max(role["behaviour_gap"] for role in step["adapters"].values()) <= 1e-4
    assert [step["engines"]["restarts"] for step in outcome.history] == [0, 1]
    assert len({step["episodes"]["done"] for step in outcome.history}) == 1
    assert [await asyncio.to_thread(server.served) for server in servers] == [{"tiny"}, {"tiny"}]  # nothing is left
