"""Agents that are heard while they speak say what they say unheard, over both buses."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from mosquitto import needs_mosquitto, running_mosquitto
from spans import spans_in

from mas.bus.memory import MemoryBus
from mas.bus.mqtt import MqttBus
from mas.bus.serve import EnvelopeFactory, serve
from mas.config.options import ScenarioOptions
from mas.core.bus import Bus, Gap, Restart
from mas.core.engine import Generation, Request
from mas.core.environment import Task
from mas.core.messages import Envelope, Note
from mas.core.seeds import derive_seed
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.observe.tracing import open_tracing
from mas.roles import build_roles
from mas.runtime.agents import ModelEndpoint as TeamVoice
from mas.runtime.flow import Flow
from mas.runtime.payloads import TEAM_PAYLOADS, AgentAnswer, Ask, Piece
from mas.runtime.play import DecisionPoint, look
from mas.runtime.streaming import ask_streaming, streamed_to
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine

Told = list[Piece | Gap | Restart]
SOLO = {
    "name": "solo",
    "roles": {"solo": {"type": "agent", "emits": "action", "view": "solo", "template": "Q>", "max_tokens": 12}},
    "edges": ["start -> solo", "solo -> done"],
    "output": "solo",
}


class ModelEndpoint(ScriptedEngine):
    """Says numbers, and notes how it was asked; its first `broken` streams end in an error after three characters."""

    def __init__(self, broken: int = 0) -> None:
        super().__init__(lambda prompt, _, seed: f"é{derive_seed(prompt, seed) % 10**6}")
        self.streams = 0
        self.broken = broken

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        self.streams += 1
        number, is_broken = 0, self.streams <= self.broken
        async for piece in super().stream(request):
            if is_broken and number == 3:
                raise OSError("torn")
            number += 1
            yield piece


@asynccontextmanager
async def team(bus: Bus, engine: ModelEndpoint, **more: object) -> AsyncIterator[tuple[TeamRuntime, DecisionPoint]]:
    spec = load_team(SOLO | more)
    plan = compile_team(spec, build_roles(spec))
    environment = build_scenario(ScenarioOptions(name="relay")).environment()
    environment.reset(Task(id="train-0", seed=0))
    async with TeamRuntime(plan, engine, bus, adapters={}) as runtime:
        flow = Flow.start(plan).begin("solo")
        observations = look(plan, environment)
        yield (
            runtime,
            DecisionPoint(agent="solo", flow=flow, environment=environment, observations=observations, turn=0),
        )


def text_of(told: Told, candidate: int = 0) -> str:
    return "".join(piece.text for piece in told if isinstance(piece, Piece) and piece.candidate == candidate)


async def check(bus: Bus, seeds: tuple[int, ...]) -> None:
    told: Told = []
    engine = ModelEndpoint()
    async with team(bus, engine) as (runtime, point):
        unheard = await runtime.ask(point, seeds, episode="e", temperature=0.7)
        assert engine.streams == 0
        heard = await runtime.ask(point, seeds, episode="e", temperature=0.7, on_part=told.append)
        assert heard == unheard
        assert engine.streams == len(seeds)
        assert [text_of(told, number) for number in range(len(seeds))] == [candidate.text for candidate in heard]
        assert max(len(piece.text) for piece in told if isinstance(piece, Piece)) == 1
        before = len(told)
        assert await runtime.ask(point, seeds, episode="e", temperature=0.7) == unheard
        assert len(told) == before, "who listened to one question does not hear the next"


@pytest.mark.parametrize("seeds", [(1,), (1, 2, 3)])
async def test_candidates_are_those_that_nobody_hears_and_their_pieces_are_the_text(seeds):
    await check(MemoryBus(), seeds)


@needs_mosquitto
async def test_so_they_are_over_a_broker(tmp_path: Path):
    with running_mosquitto(tmp_path) as broker:
        async with MqttBus.connect(broker.url("team"), payloads=TEAM_PAYLOADS) as bus:
            await check(bus, (1, 2))
            assert bus.statistics().parts.missing == bus.statistics().malformed == 0


async def test_an_attempt_after_a_failed_one_makes_void_what_was_heard():
    told: Told = []
    retries = {"solo": {"retries": {"attempts": 3, "wait_s": 0}}}
    async with team(MemoryBus(), ModelEndpoint(broken=2), policies=retries) as (runtime, point):
        (candidate,) = await runtime.ask(point, (1,), episode="e", on_part=told.append)
    assert told.count(Restart()) == 2
    cut = [index for index, piece in enumerate(told) if piece == Restart()]
    assert cut == [3, 7]
    assert text_of(told[cut[1] :]) == candidate.text


async def test_a_listener_that_raises_ends_the_question():
    def refuse(told: object) -> None:
        raise ValueError("enough")

    engine = ModelEndpoint()
    async with team(MemoryBus(), engine) as (runtime, point):
        with pytest.raises(ValueError, match="enough"):
            await runtime.ask(point, (1,), episode="e", on_part=refuse)
        assert await runtime.ask(point, (1,), episode="e")


async def test_whoever_listens_around_a_question_hears_it_and_nothing_imagined():
    told: Told = []
    async with team(MemoryBus(), ModelEndpoint()) as (runtime, point):
        with streamed_to(told.append):
            await runtime.sample_locally(point, 1)
            assert not told
            (candidate,) = await runtime.ask(point, (1,), episode="e")
    assert text_of(told) == candidate.text


async def test_a_traced_team_is_heard_as_well_and_what_it_says_is_in_no_span(tmp_path: Path):
    told: Told = []
    retries = {"solo": {"retries": {"attempts": 2, "wait_s": 0}}}
    with open_tracing(tmp_path, process="p", most=99):
        async with team(MemoryBus(), ModelEndpoint(broken=1), policies=retries) as (runtime, point):
            (candidate,) = await runtime.ask(point, (1,), episode="e", on_part=told.append)
    assert text_of(told[told.index(Restart()) :]) == candidate.text
    spans = spans_in(tmp_path)
    assert [span.error for span in spans if span.name == "send solo/solo"] == ["RemoteError", None]
    assert [span.attributes.get("gen_ai.request.stream") for span in spans if "completion" in span.name] == [True] * 2
    assert candidate.text not in (tmp_path / "spans.jsonl").read_text()


async def test_one_more_agent_with_an_endpoint_of_its_own_is_heard_as_well():
    told: tuple[Told, Told] = ([], [])
    first, second = ModelEndpoint(), ModelEndpoint()
    replicas = {"solo": {"most": 2, "concurrency": 1}}
    async with team(MemoryBus(), first, replicas=replicas) as (runtime, point):
        await runtime.spawn("solo", endpoint=TeamVoice(engine=second))
        asking = [runtime.ask(point, (seed,), episode="e", on_part=told[seed].append) for seed in (0, 1)]
        said = [candidate.text for (candidate,) in await asyncio.gather(*asking)]
    assert (first.streams, second.streams) == (1, 1)
    assert [text_of(one) for one in told] == said


async def test_a_part_that_is_no_piece_of_text_is_a_gap():
    bus, told = MemoryBus(), []

    async def handle(envelope: Envelope) -> AgentAnswer:
        assert isinstance(envelope.payload, Ask)
        bus.part(envelope, Note(text="no piece"))
        return AgentAnswer.model_construct(candidates=())

    async with serve(bus, "b", handle):
        question = EnvelopeFactory("a").new("b", Ask.model_construct(view=None, seeds=(1,), is_heard=True))
        with streamed_to(told.append):
            answer = await ask_streaming(bus, question, 10.0)
    assert told == [Gap(0, 0)]
    assert isinstance(answer.payload, AgentAnswer)
