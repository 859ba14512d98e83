"""A recorded run plays again exactly from its journal, and a copy of its beginning goes on otherwise."""

import asyncio
import zlib
from pathlib import Path
from typing import NoReturn

import pytest

from mas.bus.journal import Journal
from mas.bus.journal_tables import State, read_records
from mas.bus.memory import MemoryBus
from mas.bus.replay import fork, replay
from mas.bus.serve import EnvelopeFactory, serve
from mas.config.options import ScenarioOptions
from mas.core.bus import Bus
from mas.core.errors import ConfigError, JournalError, ReplayError
from mas.core.messages import Envelope, Note, Payload
from mas.graph.load import find_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.play import DecisionPoint
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.testing.bus_suite import next_text, start
from mas.testing.scripted import ScriptedEngine

SCENARIO = build_scenario(ScenarioOptions(name="plan_path"))
PLAN = compile_team(spec := find_team(SCENARIO, "team"), build_roles(spec))
WORLD = f"{PLAN.spec.name}/environment"


def scripted(prompt: str, adapter: str | None, seed: int) -> str:
    """Something that depends on all that was asked."""
    return "UDLR"[zlib.crc32(f"{prompt}{adapter}{seed}".encode()) % 4]


def silent(*_: object) -> NoReturn:
    raise AssertionError("an agent was asked although its answers are recorded")


async def play(bus: Bus, answer=scripted, *, task: int = 0, seeds: tuple[int, ...] = (7,)) -> list[object]:
    """One episode; every turn's outputs and what it paid."""
    turns: list[object] = []
    environment = SCENARIO.environment()
    environment.reset(SCENARIO.task("eval", task))
    async with TeamRuntime(PLAN, ScriptedEngine(answer), bus, adapters={}) as runtime:

        async def decide(point: DecisionPoint) -> Payload:
            return (await runtime.ask(point, seeds, episode="e"))[0].payload

        await runtime.play("e", environment, decide, lambda turn, flow, step: turns.append((turn, flow.outputs, step)))
    return turns


@pytest.fixture
async def recorded(tmp_path: Path) -> tuple[Path, list[object]]:
    """A journal with one episode, and what happened."""
    path = tmp_path / "bus.sqlite"
    with Journal.open(path, keep=None) as journal:
        bus = MemoryBus(journal=journal)
        turns = await play(bus)
        await bus.close()
    return path, turns


async def test_a_team_whose_agents_are_replaced_by_the_record_plays_exactly_as_before(recorded):
    path, turns = recorded
    bus = replay(path, live={WORLD})
    assert await play(bus, silent) == turns
    assert len(turns) > 1
    bus.check_finished()


async def test_agents_that_are_live_and_unchanged_give_the_recorded_answers(recorded):
    path, turns = recorded
    live = {WORLD, *(f"{PLAN.spec.name}/{agent}" for agent in PLAN.agents)}
    assert await play(replay(path, live=live)) == turns


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"seeds": (8,)}, r"request '.*', recorded as '.*': payload\.fields\.seeds\[0\] is 8, in the record 7"),
        ({"task": 1}, r"answer '.*', recorded as '.*': payload\.fields\.observations\..* is '.*', in the record '"),
    ],
)
async def test_the_first_difference_names_message_and_field(recorded, changes, said):
    with pytest.raises(ReplayError, match=said):
        await play(replay(recorded[0], live={WORLD}), silent, **changes)


async def test_a_live_agent_that_says_something_else_is_found(recorded):
    agent = f"{PLAN.spec.name}/{PLAN.agents[0]}"
    with pytest.raises(ReplayError, match=r"payload\.fields\.candidates\[0\]"):
        await play(replay(recorded[0], live={WORLD, agent}), lambda *_: "?")


async def test_a_run_that_asks_more_or_less_than_the_recorded_one_is_found(recorded):
    bus = replay(recorded[0], live={WORLD})
    with pytest.raises(ReplayError, match="recorded requests were not made"):
        bus.check_finished()
    await play(bus, silent)
    with pytest.raises(ReplayError, match="no more in episode 'e'"):
        await play(bus, silent)


async def test_recorded_errors_are_raised_again(tmp_path):
    path, sender = tmp_path / "bus.sqlite", EnvelopeFactory("a")
    asked = [sender.new("b", Note(text=text)) for text in ("config", "value")]

    async def handle(envelope: Envelope) -> Payload:
        raise ConfigError("no key x") if envelope.payload.content == "config" else ValueError("by nought")

    async def errors(bus: Bus) -> list[str]:
        outcomes = await asyncio.gather(*(bus.request(envelope) for envelope in asked), return_exceptions=True)
        return [repr(outcome) for outcome in outcomes]

    with Journal.open(path, keep=None) as journal:
        bus = MemoryBus(journal=journal)
        async with serve(bus, "b", handle):
            before = await errors(bus)
    assert await errors(replay(path)) == before


async def test_a_record_that_was_cut_short_cannot_be_replayed(tmp_path):
    path, sender = tmp_path / "bus.sqlite", EnvelopeFactory("a")
    with Journal.open(path, keep=0) as journal:
        journal._steps_since = 4_000
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b") as inbox:
            for _ in range(2):
                await bus.publish(sender.new("b", Note(text="x")))
                inbox.done(await inbox.receive())
                await journal.flush()
                journal._steps_since = 4_000
        await bus.close()
    with pytest.raises(ReplayError, match="lacks its first"):
        replay(path)


async def test_a_fork_stands_where_its_last_message_was_accepted_and_goes_on_otherwise(tmp_path):
    path, new, sender = tmp_path / "bus.sqlite", tmp_path / "fork.sqlite", EnvelopeFactory("a")
    with Journal.open(path, keep=None) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b") as inbox:
            for text in "12":
                await bus.publish(sender.new("b", Note(text=text)))
            inbox.done(await inbox.receive())
            await bus.publish(sender.new("b", Note(text="3")))
            await bus.publish(sender.new("b", Note(text="4")))
            for _ in range(3):
                inbox.done(await inbox.receive())
            await bus.close()
    before = read_records(path)
    assert fork(path, at=before[2].id, new=new) == 3
    assert [record.state for record in read_records(new)] == [State.PROCESSED, State.OPEN, State.OPEN]
    assert read_records(path) == before
    with Journal.open(new, keep=None) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b") as inbox:
            assert [await next_text(inbox), await next_text(inbox)] == ["2", "3"]
            four = before[3].envelope
            await bus.publish(four)
            assert await next_text(inbox) == "4", "what came after the fork has not happened"
            await bus.publish(before[0].envelope)
            assert bus.statistics().duplicates == 1


async def test_a_forked_run_replays_up_to_the_fork(recorded, tmp_path):
    path, _ = recorded
    asks = [record for record in read_records(path) if record.way == "request"]
    fork(path, at=asks[4].id, new=tmp_path / "fork.sqlite")
    with pytest.raises(ReplayError, match="the record ends before its answer"):
        await play(replay(tmp_path / "fork.sqlite"), silent)


def test_a_fork_needs_a_message_and_a_new_file(tmp_path):
    path = tmp_path / "bus.sqlite"
    Journal.open(path).close()
    with pytest.raises(JournalError, match="has no message 'x'"):
        fork(path, at="x", new=tmp_path / "new.sqlite")
    with pytest.raises(JournalError, match="exists"):
        fork(path, at="x", new=path)
    with pytest.raises(JournalError, match="there is no journal"):
        fork(tmp_path / "none", at="x", new=tmp_path / "new.sqlite")


async def test_one_way_messages_travel_as_usual_while_a_run_is_replayed(recorded):
    bus = replay(recorded[0])
    async with bus.subscribe("b") as inbox:
        receiving = start(inbox.receive())
        await bus.publish(EnvelopeFactory("a").new("b", Note(text="x")))
        assert (await receiving).payload.content == "x"
