"""Several engines as one: who answers, what is published to each, and what a loss moves, replays and ends."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager

import pytest
from conftest import BaseFor
from loud import loud_adapter

from mas.core.engine import AdapterRef, Engine, Generation, Request, Sampling
from mas.core.errors import EngineError, EngineLost, NotServed, TrainingError
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.forward import ScoredRow, score_rows
from mas.serving.model import BaseModel
from mas.serving.publication import AdapterUpdate, AdapterVersion, Probe
from mas.serving.replicated_engine import Member, ReplicatedEngine, choose_member
from mas.serving.transformers_engine import TransformersEngine
from mas.testing.engine import EngineContract

PROMPT, COMPLETION = (5, 6, 7), (8, 9, 10)
NAMES = ("engine-0", "engine-1", "engine-2")


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay")


class Scripted:
    """A replica in this process: an embedded engine, which can be told what goes wrong.

    Attributes:
        loaded: what it holds. asked: sessions of its requests. starts: how often it was started again.
        dies: so many calls to generate, to come, lose it. dies_at_start: so many starts lose it.
        serves: computes with these weights in place of those of each version that it gets.
        gate: starting again waits for it.
    """

    def __init__(self, base: BaseModel) -> None:
        self.base, self.dtype = base, base.options.dtype
        self.engine = TransformersEngine(base)
        self.loaded: dict[int, AdapterVersion] = {}
        self.asked: list[str | None] = []
        self.starts = self.dies = self.dies_at_start = 0
        self.refuses = self.is_lost = self.is_closed = False
        self.serves: AdapterWeights | None = None
        self.gate = asyncio.Event()
        self.gate.set()

    async def load(self, version: AdapterVersion) -> None:
        self._check()
        await asyncio.sleep(0)
        if self.refuses:
            raise EngineError("no room")
        weights = version.weights if self.serves is None else self.serves
        self.loaded[version.number] = AdapterVersion(version.ref, version.number, weights, None)

    async def unload(self, version: AdapterVersion) -> None:
        self._check()
        self.loaded.pop(version.number, None)

    async def generate_version(self, version: AdapterVersion | None, request: Request) -> tuple[Generation, ...]:
        self._check()
        self.asked.append(request.session)
        if self.dies:
            self.dies -= 1
            self.lose()
            self._check()
        return await self.engine.generate_version(self._held(version), request)

    async def score_version(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int]
    ) -> tuple[float, ...]:
        self._check()
        return await self.engine.score_version(self._held(version), prompt_ids, completion_ids)

    async def restart(self) -> None:
        self.starts += 1
        await self.gate.wait()
        if self.dies_at_start:
            self.dies_at_start -= 1
            raise EngineLost("it died while it started")
        self.is_lost = False

    async def close(self) -> None:
        self.is_closed = True
        await self.engine.close()

    def lose(self) -> None:
        self.is_lost = True
        self.loaded.clear()

    def _check(self) -> None:
        if self.is_lost:
            raise EngineLost("it was killed")

    def _held(self, version: AdapterVersion | None) -> AdapterVersion | None:
        return None if version is None else self.loaded[version.number]


def replicated(base: BaseModel, replicas: Sequence[Scripted]) -> ReplicatedEngine:
    return ReplicatedEngine(base, dict(zip(NAMES, replicas, strict=False)), limits=base.limits)


@asynccontextmanager
async def opened(base: BaseModel, count: int = 2) -> AsyncIterator[tuple[ReplicatedEngine, list[Scripted]]]:
    replicas = [Scripted(base) for _ in range(count)]
    engine = replicated(base, replicas)
    try:
        yield engine, replicas
    finally:
        await engine.close()
    assert all(replica.is_closed for replica in replicas)


def asking(session: str | None, adapter: str | None = "a", seed: int = 1) -> Request:
    return Request(prompt_ids=PROMPT, sampling=Sampling(max_tokens=3), seeds=(seed,), adapter=adapter, session=session)


async def said(engine: ReplicatedEngine, session: str) -> tuple[AdapterRef | None, tuple[int, ...]]:
    (made,) = await engine.generate(asking(session))
    return made.adapter, made.token_ids


def probe_of(base: BaseModel, weights: AdapterWeights) -> Probe:
    (scores,) = score_rows(base, [ScoredRow(PROMPT, COMPLETION, weights)])
    return Probe(PROMPT, COMPLETION, scores)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(20):
        while not condition():  # noqa: ASYNC110 - scripted replicas only count
            await asyncio.sleep(0)


class TestReplicatedEngine(EngineContract):
    @pytest.fixture(autouse=True)
    def _base(self, base_for: BaseFor) -> None:
        self.base = base_for("plan_path")

    async def make_engine(self) -> Engine:
        engine = replicated(self.base, [Scripted(self.base), Scripted(self.base)])
        await engine.store.publish("a", loud_adapter(self.base, 1))
        await engine.store.publish("b", loud_adapter(self.base, 2))
        return engine

    async def publish_again(self, engine: Engine) -> AdapterRef:
        assert isinstance(engine, ReplicatedEngine)
        return (await engine.store.publish("a", loud_adapter(self.base, 3))).ref


def members(base: BaseModel, count: int = 3) -> list[Member]:
    return [Member(name, Scripted(base)) for name in NAMES[:count]]


async def test_a_lost_replica_moves_its_own_sessions_only_and_gets_them_back(base: BaseModel) -> None:
    three, sessions = members(base), [f"episode-{number}" for number in range(900)]
    before = {session: choose_member(session, three).name for session in sessions}
    counts = Counter(before.values())
    # 900 / 3 = 300 each; 5 standard deviations of a binomial (900, 1/3) are 71
    assert all(abs(counts[name] - 300) < 71 for name in NAMES)
    left = {session: choose_member(session, three[1:]).name for session in sessions}
    assert {before[session] for session in sessions if left[session] != before[session]} == {"engine-0"}
    moved = Counter(left[session] for session in sessions if before[session] == "engine-0")
    assert min(moved["engine-1"], moved["engine-2"]) > 90  # of about 300, to both
    assert {session: choose_member(session, three).name for session in sessions} == before


async def test_a_replica_that_is_far_busier_gives_way_and_requests_of_no_session_go_to_the_least_busy(
    base: BaseModel,
) -> None:
    first, second = members(base, 2)
    session = next(name for name in map(str, range(99)) if choose_member(name, [first, second]) is first)
    second.completions = 4
    for count, wanted in ((16, first), (17, second)):  # 2 x 4 + 8 = 16 are not far more
        first.completions = count
        assert choose_member(session, [first, second]) is wanted
        assert choose_member(None, [first, second]) is second


async def test_an_episode_stays_with_one_replica_and_the_metrics_count_requests(base: BaseModel) -> None:
    async with opened(base) as (engine, replicas):
        await engine.store.publish("a", loud_adapter(base, 1))
        for turn in range(3):
            for number in range(12):
                await engine.generate(asking(f"episode-{number}", seed=turn))
        assert not {*replicas[0].asked} & {*replicas[1].asked}
        counts = [len(replica.asked) for replica in replicas]
        assert min(counts) > 0
        wanted = {"engine-0": counts[0], "engine-1": counts[1]}
        assert engine.metrics() == {"count": 2, "restarts": 0, "requests": wanted}
        assert engine.metrics()["requests"] == {"engine-0": 0, "engine-1": 0}


async def test_a_version_becomes_current_only_if_every_replica_serves_it(base: BaseModel) -> None:
    async with opened(base) as (engine, replicas):
        old, new = loud_adapter(base, 1), loud_adapter(base, 2)
        await engine.store.publish("a", old)
        await engine.store.publish("b", old)
        updates = {name: AdapterUpdate(new, [probe_of(base, new)]) for name in ("b", "a")}
        replicas[1].serves = old  # it stays with what it had: the other replica is fine
        with pytest.raises(NotServed, match=r"engine-1's log-probabilities differ .* like the version before"):
            await engine.store.publish_all(updates)
        assert engine.adapters() == {"a": AdapterRef("a", 0), "b": AdapterRef("b", 0)}
        assert [len(replica.loaded) for replica in replicas] == [2, 2]
        replicas[1].serves, replicas[1].refuses = None, True
        with pytest.raises(EngineError, match="no room"):
            await engine.store.publish_all(updates)
        assert [len(replica.loaded) for replica in replicas] == [2, 2]
        replicas[1].refuses = False
        published = await engine.store.publish_all(updates)
        assert published["a"].gap is not None
        assert published["a"].gap < 1e-4
        assert engine.adapters() == {"a": AdapterRef("a", 1), "b": AdapterRef("b", 1)}


async def test_a_lease_keeps_an_old_version_on_every_replica(base: BaseModel) -> None:
    async with opened(base) as (engine, replicas):
        await engine.store.publish("a", loud_adapter(base, 1))
        async with engine.store.lease("a@0"):
            await engine.store.publish("a", loud_adapter(base, 2))
            for replica in replicas:
                assert sorted(version.ref.version for version in replica.loaded.values()) == [0, 1]
        for replica in replicas:
            assert [version.ref.version for version in replica.loaded.values()] == [1]
    assert not any(replica.loaded for replica in replicas)  # the engine took out what it had put in


async def test_requests_of_a_lost_replica_are_sent_again_and_it_gets_every_version_that_is_held(
    base: BaseModel,
) -> None:
    async with opened(base) as (engine, replicas):
        for number in range(2):
            weights = loud_adapter(base, number)
            await engine.store.publish_all({"a": AdapterUpdate(weights, [probe_of(base, weights)])})
        sessions = [f"episode-{number}" for number in range(8)]
        wanted = [await said(engine, session) for session in sessions]
        first, second = ({*replica.asked} for replica in replicas)
        assert first
        assert second
        replicas[0].asked.clear()
        replicas[1].asked.clear()
        replicas[0].dies = 1
        replicas[0].gate.clear()
        async with engine.store.lease("a@1"):
            assert await asyncio.gather(*(said(engine, session) for session in sessions)) == wanted
            assert {*replicas[1].asked} == {*sessions}  # the sessions of the lost one moved, once it was lost
            publishing = asyncio.create_task(engine.store.publish("a", loud_adapter(base, 7)), name="publish")
            await asyncio.sleep(0)
            assert engine.adapters()["a"].version == 1  # it waits for the replica that is being started
            replicas[0].gate.set()
            await publishing
            assert sorted(version.ref.version for version in replicas[0].loaded.values()) == [1, 2]
        assert engine.restarts == replicas[0].starts == 1
        replicas[0].asked.clear()
        for session in sessions:
            await engine.generate(asking(session))
        assert {*replicas[0].asked} == first


async def test_a_version_that_is_unloaded_while_a_replica_gets_it_again_is_no_failure(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    load = Scripted.load
    async with opened(base, 1) as (engine, (replica,)), AsyncExitStack() as second:
        await engine.store.publish("a", loud_adapter(base, 1))
        async with engine.store.lease("a@0"):
            await engine.store.publish("a", loud_adapter(base, 2))
            await second.enter_async_context(engine.store.lease("a@1"))
            await engine.store.publish("a", loud_adapter(base, 3))

            async def late(replica: Scripted, version: AdapterVersion) -> None:
                if version.ref.version == 1:
                    await second.aclose()
                    raise EngineError("its files are gone")
                await load(replica, version)

            monkeypatch.setattr(Scripted, "load", late)
            replica.dies = 1
            assert (await said(engine, "episode"))[0] == AdapterRef("a", 2)
            assert sorted(version.ref.version for version in replica.loaded.values()) == [0, 2]


async def test_a_replica_that_was_started_again_passes_the_canary_before_it_answers(base: BaseModel) -> None:
    async with opened(base) as (engine, replicas):
        weights = loud_adapter(base, 1)
        await engine.store.publish_all({"a": AdapterUpdate(weights, [probe_of(base, weights)])})
        replicas[0].serves = loud_adapter(base, 2)
        replicas[0].lose()
        replicas[1].lose()
        replicas[1].gate.clear()
        with pytest.raises(TrainingError, match=r"engine-0 was lost .*cannot serve again.*engine-0's log-prob"):
            await engine.generate(asking(None))


async def test_three_losses_in_a_row_are_one_error_and_an_answer_between_starts_anew(base: BaseModel) -> None:
    async with opened(base, 1) as (engine, (replica,)):
        await engine.store.publish("a", loud_adapter(base, 1))
        for _ in range(4):  # answers between
            replica.dies = 2
            await engine.generate(asking(None))
        assert engine.restarts == 8
        replica.dies, replica.dies_at_start = 1, 2
        with pytest.raises(TrainingError, match=r"engine-0 was lost 3 times in a row.*while it started"):
            await engine.generate(asking(None))
        with pytest.raises(TrainingError, match="3 times in a row"):
            await engine.store.publish("a", loud_adapter(base, 2))
        assert engine.adapters()["a"].version == 0


async def test_a_request_that_every_replica_is_lost_with_is_one_error(base: BaseModel) -> None:
    async with opened(base, 3) as (engine, replicas):
        for replica in replicas:
            replica.dies = 1
        with pytest.raises(TrainingError, match="3 engine replicas were lost while they answered the same request"):
            await engine.generate(asking("episode-1", adapter=None))


async def test_a_replica_that_is_lost_while_the_engine_closes_is_not_started_again(base: BaseModel) -> None:
    async with opened(base) as (engine, replicas):
        await engine.store.publish("a", loud_adapter(base, 1))
        replicas[0].lose()
    assert [replica.starts for replica in replicas] == [0, 0]
    assert replicas[1].loaded == {}


async def test_a_publish_that_is_cancelled_leaves_nothing_loaded(base: BaseModel) -> None:
    async with opened(base) as (engine, replicas):
        await engine.store.publish("a", loud_adapter(base, 1))
        replicas[0].lose()
        replicas[0].gate.clear()
        publishing = asyncio.create_task(engine.store.publish("a", loud_adapter(base, 2)), name="publish")
        await until(lambda: len(replicas[1].loaded) == 2 and replicas[0].starts == 1)
        publishing.cancel()
        await asyncio.gather(publishing, return_exceptions=True)
        assert engine.adapters()["a"].version == 0
        assert len(replicas[1].loaded) == 1
        replicas[0].gate.set()
        await until(lambda: len(replicas[0].loaded) == 1)
