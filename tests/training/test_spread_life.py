"""Agents in processes of their own come and go: within limits, in good order, and when they are told."""

import asyncio
import io
import os
import signal
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from between import QUICK, until, vanish
from mosquitto import Mosquitto, needs_mosquitto, running_mosquitto
from process_lives import interrupted
from rich.console import Console
from spreading import CONFIG, Held, asked, relay, serving, with_replicas, without_a_base

from mas.bus.journal import Journal
from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.coordination import shut_down
from mas.core.errors import Closed, ConfigError, Halted, NoRoute
from mas.runs.resolve import resolve
from mas.runtime.replay_log import ReplayLog
from mas.training.distributed import open_distributed
from mas.training.show import show_episode

pytestmark = needs_mosquitto
Engines = dict[str, list[Held]]


@pytest.fixture
def engines(monkeypatch: pytest.MonkeyPatch) -> Engines:
    """The engines of each agent, in the order in which they were started."""
    made: Engines = {"planner": [], "executor": []}

    def engine(name: str) -> Held:
        made[name].append(Held())
        return made[name][-1]

    without_a_base(monkeypatch, engine)
    monkeypatch.setattr("mas.bus.mqtt.bus.MqttOptions", lambda: QUICK)
    return made


@pytest.fixture
def broker(tmp_path: Path, engines: Engines) -> Iterator[Mosquitto]:
    with running_mosquitto(tmp_path) as running:
        yield running


async def test_processes_beyond_the_most_are_refused_also_when_all_start_at_once(
    broker: Mosquitto, tmp_path: Path
) -> None:
    config = with_replicas(tmp_path, most=2, concurrency=1)
    said: list[list[str]] = [[] for _ in range(5)]
    async with AsyncExitStack() as stack:
        tries = (stack.enter_async_context(serving("planner", broker, config, notes)) for notes in said[:4])
        tasks = await asyncio.gather(*tries)
        refused = [str(task.exception()) for task in tasks if task.done()]
        assert len(refused) == 2
        assert all("'relay/planner' is served by" in text and "2 may be at most" in text for text in refused)
        speaks = [note for notes in said for note in notes if "serves on the bus" in note]
        assert any("2 of at most 2; Ctrl-C" in note for note in speaks)
        leaves = next(task for task in tasks if not task.done())
        leaves.cancel()
        await asyncio.wait((leaves,))
        again = await stack.enter_async_context(serving("planner", broker, config, said[4]))
        assert not again.done()
        assert "2 of at most 2; Ctrl-C" in said[4][-1]


async def test_whoever_plays_waits_for_the_least(
    broker: Mosquitto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mas.training.distributed.WAIT_S", 0.5)
    config, said = with_replicas(tmp_path, least=2, most=3, concurrency=1), list[str]()
    async with serving("executor", broker), serving("planner", broker, config):
        playing = open_distributed(resolve(config, relay()), broker.url("coordinator"), said.append)
        with pytest.raises(NoRoute, match=r"planner \(1 more\)"):
            await playing.__aenter__()
        assert said == ["waiting up to 0.5 s for agents to come to the bus: planner (1 more)"]
        async with (
            serving("planner", broker, config),
            open_distributed(resolve(config, relay()), broker.url("coordinator"), said.append),
        ):
            assert len(said) == 1


async def test_a_process_that_is_told_to_end_finishes_what_it_has_and_takes_nothing_new(
    broker: Mosquitto, engines: Engines
) -> None:
    said: list[str] = []
    async with (
        serving("executor", broker),
        serving("planner", broker, said=said) as first,
        open_distributed(resolve(CONFIG, relay()), broker.url("coordinator"), str) as players,
    ):
        (held,) = engines["planner"]
        held.let.clear()
        begun = asked(players, "planner", 1)
        await until(lambda: held.begun == 1)
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: said[-1].startswith("leaving: requests that have begun are finished"))
        async with serving("planner", broker):
            other = engines["planner"][1]
            await asyncio.gather(*(asked(players, "planner", seed) for seed in range(2, 6)))
            assert (held.begun, held.ended, other.ended) == (1, 0, 4)
            held.let.set()
            assert [candidate.text for candidate in await begun] == ["a"]
            await first
            assert (held.begun, held.ended, held.cancelled) == (1, 1, 0)
            assert isinstance(players.runtime.bus, MqttBus)
            assert players.runtime.bus.statistics().resent == 0


async def test_told_twice_it_ends_at_once(broker: Mosquitto, engines: Engines) -> None:
    async with (
        serving("executor", broker),
        serving("planner", broker) as first,
        open_distributed(resolve(CONFIG, relay()), broker.url("coordinator"), str) as players,
    ):
        (held,) = engines["planner"]
        held.let.clear()
        begun = asked(players, "planner", 1)
        await until(lambda: held.begun == 1)
        for number in (signal.SIGTERM, signal.SIGINT):
            os.kill(os.getpid(), number)
        await first
        assert held.cancelled == 1
        with pytest.raises((Closed, NoRoute)):
            await begun


async def test_told_twice_it_ends_also_while_the_broker_is_away(broker: Mosquitto, engines: Engines) -> None:
    said: list[str] = []
    async with (
        serving("executor", broker),
        serving("planner", broker, said=said) as first,
        open_distributed(resolve(CONFIG, relay()), broker.url("coordinator"), str) as players,
    ):
        (held,) = engines["planner"]
        held.let.clear()
        begun = asked(players, "planner", 1)
        await until(lambda: held.begun == 1)
        broker.kill()
        await until(lambda: said[-1].startswith("the connection to the broker is lost"))
        os.kill(os.getpid(), signal.SIGTERM)
        await until(lambda: said[-1].startswith("leaving"))
        held.let.set()
        await until(lambda: held.ended == 1)
        assert not first.done(), "nobody has heard its answer yet"
        os.kill(os.getpid(), signal.SIGTERM)
        await asyncio.wait_for(first, 10.0)
        begun.cancel()
        broker.start()


async def test_an_answer_that_was_given_while_the_broker_was_away_is_confirmed_before_its_process_ends(
    broker: Mosquitto, engines: Engines
) -> None:
    async with (
        serving("executor", broker),
        serving("planner", broker) as first,
        open_distributed(resolve(CONFIG, relay()), broker.url("coordinator"), str) as players,
    ):
        (held,) = engines["planner"]
        held.let.clear()
        begun = asked(players, "planner", 1)
        await until(lambda: held.begun == 1)
        broker.kill()
        os.kill(os.getpid(), signal.SIGTERM)
        held.let.set()
        await until(lambda: held.ended == 1)
        broker.start()
        assert [candidate.text for candidate in await begun] == ["a"]
        await first
        assert held.begun == 1


@pytest.mark.parametrize("at_once", [False, True])
async def test_agents_end_on_the_word_of_whoever_plays(broker: Mosquitto, engines: Engines, at_once: bool) -> None:
    said: list[str] = []
    async with (
        serving("executor", broker) as executor,
        serving("planner", broker) as planner,
        open_distributed(resolve(CONFIG, relay()), broker.url("coordinator"), str) as players,
        MqttBus.connect(broker.url("coordinator"), options=QUICK) as bus,
    ):
        (held,) = engines["planner"]
        held.let.clear()
        begun = asked(players, "planner", 1)
        await until(lambda: held.begun == 1)
        stopping = asyncio.create_task(shut_down(bus, said.append, at_once=at_once), name="stop")
        await executor
        async with serving("executor", broker) as later:
            if not at_once:
                assert not stopping.done()
                assert not planner.done()
                held.let.set()
            outcome = (await asyncio.gather(begun, return_exceptions=True))[0]
            assert isinstance(outcome, Closed | NoRoute) is at_once
            await asyncio.gather(planner, stopping)
            assert not later.done(), "it was started later"
        assert (held.cancelled, held.ended) == ((1, 0) if at_once else (0, 1))
    assert len([line for line in said if line.startswith("has ended: relay/")]) == 2


@pytest.mark.parametrize("ends", ["cancel", "death"])
async def test_agents_stop_generating_for_a_play_that_is_cancelled_or_whose_player_dies(
    broker: Mosquitto, engines: Engines, ends: str
) -> None:
    async with (
        serving("executor", broker),
        serving("planner", broker),
        open_distributed(resolve(CONFIG, relay()), broker.url("coordinator"), str) as players,
    ):
        (held,) = engines["planner"]
        held.let.clear()
        begun = [asked(players, "planner", seed) for seed in range(3)]
        await until(lambda: held.begun == 3)
        bus = players.runtime.bus
        assert isinstance(bus, MqttBus)
        if ends == "cancel":
            await players.runtime.cancel()
            outcomes = await asyncio.gather(*begun, return_exceptions=True)
            assert [type(outcome) for outcome in outcomes] == [Halted] * 3
        else:
            await vanish(bus)
        await until(lambda: held.cancelled == 3)
        for task in begun:
            task.cancel()
    assert held.ended == 0


async def test_a_play_that_drains_lets_agents_elsewhere_come_to_their_end(broker: Mosquitto, engines: Engines) -> None:
    async with (
        serving("executor", broker),
        serving("planner", broker),
        open_distributed(resolve(CONFIG, relay()), broker.url("coordinator"), str) as players,
    ):
        (held,) = engines["planner"]
        held.let.clear()
        begun = asked(players, "planner", 1)
        await until(lambda: held.begun == 1)
        draining = asyncio.create_task(players.runtime.drain(), name="drain")
        await asyncio.sleep(0)
        with pytest.raises(Halted):
            await asked(players, "planner", 2)
        held.let.set()
        assert [candidate.text for candidate in await begun] == ["a"]
        await draining
        assert (held.begun, held.cancelled) == (1, 0)


async def test_a_name_of_nobody_is_refused_before_anything(broker: Mosquitto) -> None:
    async with serving("plannr", broker) as task:
        with pytest.raises(ConfigError, match="no agent 'plannr'"):
            await task


async def test_who_plays_with_a_journal_comes_back_at_once_and_joins_what_it_had_asked(
    broker: Mosquitto, engines: Engines, tmp_path: Path
) -> None:
    task, console = relay().task("eval", 0), Console(file=io.StringIO())
    async with serving("planner", broker), serving("executor", broker):
        (held,), (executor,) = engines["planner"], engines["executor"]
        held.let.clear()
        with Journal.open(tmp_path / "bus.sqlite") as journal:
            killed = open_distributed(resolve(CONFIG, relay()), broker.url("coordinator"), str, log=ReplayLog(journal))
            players = await killed.__aenter__()
            showing = asyncio.create_task(show_episode(players, task, 7, console), name="first life")
            await until(lambda: held.begun == 1)
            assert isinstance(players.runtime.bus, MqttBus)
            await vanish(players.runtime.bus)
        with Journal.open(tmp_path / "bus.sqlite") as journal:
            async with open_distributed(
                resolve(CONFIG, relay()), broker.url("coordinator"), str, log=ReplayLog(journal)
            ) as again:
                held.let.set()
                episode = await show_episode(again, task, 7, console)
        await interrupted(showing)
    assert [line.text for line in episode.lines] == ["a", "7"]
    assert (held.begun, held.ended, held.cancelled, executor.begun) == (1, 1, 0, 1)
