"""An agent uses the very version that it is asked for, whoever trains it, and fetches it once."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import pytest
from conftest import BaseFor
from loud import loud_adapter

from mas.bus.memory import MemoryBus
from mas.bus.serve import EnvelopeFactory, serve
from mas.core.engine import AdapterRef, PinnedAdapter, Request, Sampling
from mas.core.errors import CheckpointError, EngineError, MasError, NoRoute, UnknownAdapter
from mas.core.messages import Envelope, Payload
from mas.runtime.payloads import Fetch, Fetched
from mas.serving.adapter_files import digest_of, to_files
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.serving.transformers_engine import TransformersEngine
from mas.training.over_bus import AgentsEngine
from mas.training.remote_adapter_sync import SyncedEngine

PROMPT = (5, 6, 7)


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay")


class Trainer:
    """Whoever trains: gives out files by their digest, and counts how often."""

    def __init__(self) -> None:
        self.files: dict[str, Mapping[str, bytes]] = {}
        self.asked: list[str] = []

    def publish(self, base: BaseModel, weights: AdapterWeights, version: int) -> PinnedAdapter:
        files = to_files(weights, base.origin)
        self.files[digest_of(files)] = files
        return PinnedAdapter(AdapterRef("planner", version), digest_of(files))

    async def handle(self, envelope: Envelope) -> Payload:
        assert isinstance(envelope.payload, Fetch)
        self.asked.append(str(envelope.payload.adapter.ref))
        return Fetched(files=dict(self.files[envelope.payload.adapter.digest]))


@asynccontextmanager
async def followed(base: BaseModel, trainer: Trainer) -> AsyncIterator[SyncedEngine]:
    """An agent's engine beside a trainer."""
    bus = MemoryBus()
    engine = TransformersEngine(base)
    await engine.store.publish("planner", loud_adapter(base, 99))
    follower = SyncedEngine(engine, base.bank, bus, trainer="relay/run", envelopes=EnvelopeFactory("relay/planner"))
    async with serve(bus, "relay/run", trainer.handle):
        yield follower
    await follower.close()
    await bus.close()


def request(adapter: PinnedAdapter | str, seeds: tuple[int, ...] = (1, 2)) -> Request:
    return Request(prompt_ids=PROMPT, sampling=Sampling(max_tokens=4), seeds=seeds, adapter=str(adapter))


async def test_a_version_is_fetched_once_and_speaks_as_where_it_was_made(base: BaseModel) -> None:
    trainer, weights = Trainer(), loud_adapter(base, 1)
    pinned = trainer.publish(base, weights, 4)
    at_home = TransformersEngine(base)
    await at_home.store.publish("planner", weights, version=4)
    async with followed(base, trainer) as follower:
        together = await asyncio.gather(*(follower.generate(request(pinned)) for _ in range(3)))
        scores = await follower.score(PROMPT, (8, 9), str(pinned))
        pieces = [piece async for piece in follower.stream(request(pinned, seeds=(1,)))]
        own = await follower.generate(request("planner"))
        bare = await follower.score(PROMPT, (8, 9))
    assert trainer.asked == ["planner@4"]
    expected = await at_home.generate(request("planner"))
    for made in together:
        assert [(one.token_ids, one.finish, one.adapter) for one in made] == [
            (one.token_ids, one.finish, one.adapter) for one in expected
        ]
        for one, other in zip(made, expected, strict=True):
            assert one.logprobs == pytest.approx(other.logprobs, abs=1e-5)
    assert {str(piece.adapter) for piece in pieces} == {"planner@4"}
    assert {str(one.adapter) for one in own} == {"planner@0"}  # the agent's own, not what was fetched
    assert scores == pytest.approx(await at_home.score(PROMPT, (8, 9), "planner"), abs=1e-5)
    assert bare != pytest.approx(scores, abs=1e-3)
    await at_home.close()


async def test_the_same_name_and_version_of_another_run_is_another_adapter(base: BaseModel) -> None:
    trainer = Trainer()
    first, second = (trainer.publish(base, loud_adapter(base, seed), 3) for seed in (1, 2))
    older = trainer.publish(base, loud_adapter(base, 3), 1)
    async with followed(base, trainer) as follower:
        scores = [await follower.score(PROMPT, (8, 9), str(one)) for one in (first, second, first, older)]
    assert scores[2] == scores[0]
    assert len({scores[0], scores[1], scores[3]}) == 3
    assert trainer.asked == ["planner@3", "planner@3", "planner@1"]  # the first one was still here when it came again


async def test_a_version_that_was_dropped_is_fetched_again(base: BaseModel) -> None:
    trainer = Trainer()
    versions = [trainer.publish(base, loud_adapter(base, seed), seed) for seed in range(4)]
    async with followed(base, trainer) as follower:
        for one in (*versions, versions[0]):
            await follower.score(PROMPT, (8, 9), str(one))
    assert trainer.asked == [f"planner@{number}" for number in (0, 1, 2, 3, 0)]


async def test_what_came_damaged_or_cannot_be_read_is_not_served(base: BaseModel) -> None:
    trainer, weights = Trainer(), loud_adapter(base, 1)
    damaged = trainer.publish(base, weights, 0)
    trainer.files[damaged.digest] = to_files(loud_adapter(base, 2), base.origin)
    files = {name: content[:-8] for name, content in to_files(weights, base.origin).items()}
    trainer.files[digest_of(files)] = files
    async with followed(base, trainer) as follower:
        with pytest.raises(EngineError, match="adapter planner@0 was not fetched as it was published: its digest"):
            await follower.generate(request(damaged))
        with pytest.raises(CheckpointError, match=r"adapter planner@1 is not .* the same model options"):
            await follower.generate(request(PinnedAdapter(AdapterRef("planner", 1), digest_of(files))))
        assert set(follower.adapters()) == {"planner"}


async def test_where_nobody_trains_nothing_can_be_fetched(base: BaseModel) -> None:
    engine = TransformersEngine(base)
    follower = SyncedEngine(
        engine, base.bank, MemoryBus(), trainer="relay/run", envelopes=EnvelopeFactory("relay/planner")
    )
    with pytest.raises(NoRoute, match="there is no listener at 'relay/run'"):
        await follower.generate(request(PinnedAdapter(AdapterRef("planner", 0), "0" * 64)))
    await follower.close()


async def published(base: BaseModel, max_bytes: int) -> AgentsEngine:
    """The trainer's side with one version published, on a bus where nobody is."""

    async def until_there(address: str) -> bool:
        return False

    engine = AgentsEngine(
        base,
        MemoryBus(),
        envelopes=EnvelopeFactory("relay/run"),
        principal="coordinator",
        address_of={"planner": "relay/planner"},
        until_there=until_there,
        max_bytes=max_bytes,
        timeout_s=None,
    )
    await engine.store.publish("planner", loud_adapter(base, 1), version=7)
    return engine


async def test_the_trainer_gives_out_what_is_published_and_nothing_else(base: BaseModel) -> None:
    engine = await published(base, 1 << 20)
    pinned = engine.pinned("planner")
    make = EnvelopeFactory("relay/planner")
    fetched = await engine.handle(make.new("relay/run", Fetch(adapter=pinned)))
    assert pinned.ref == AdapterRef("planner", 7)
    assert digest_of(fetched.files) == pinned.digest
    with pytest.raises(UnknownAdapter, match=rf"no adapter planner@7:0{{64}} is published; .*{pinned}"):
        await engine.handle(make.new("relay/run", Fetch(adapter=PinnedAdapter(pinned.ref, "0" * 64))))
    with pytest.raises(MasError, match="sent 'fetched', it answers 'fetch'"):
        await engine.handle(make.new("relay/run", fetched))
    with pytest.raises(NoRoute):  # nobody there scores for the canary
        await engine.score_version(None, PROMPT, (8,))
    await engine.close()


async def test_an_adapter_that_no_message_holds_is_an_error_at_once(base: BaseModel) -> None:
    size = sum(len(content) for content in to_files(loud_adapter(base, 1), base.origin).values())
    with pytest.raises(
        EngineError,
        match=rf"planner@7 has {size:,} bytes, and .* holds {size - 1:,}: give all processes the same --store",
    ):
        await published(base, size - 1 + 4096)
    await (await published(base, size + 4096)).close()
