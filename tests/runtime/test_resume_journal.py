"""Plays in a journal's file: bounded like the rest of it, beside a bus that has it too, and not in forks of it."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from play_lives import World

from mas.bus.journal import Journal
from mas.bus.memory import MemoryBus
from mas.bus.replay import fork
from mas.core.errors import JournalError
from mas.core.messages import Payload
from mas.runtime.play import DecisionPoint
from mas.runtime.replay_log import ReplayLog
from mas.runtime.team import TeamRuntime
from mas.testing.scripted import ScriptedEngine
from mas.testing.teams import plan_of


async def played(path: Path, *episodes: str, keep: int = 10_000, has_bus: bool = False) -> list[str]:
    """What was asked for these episodes, and then the episodes that the log knows."""
    plan, engine, asked = plan_of(("start -> a", "a -> done")), ScriptedEngine(lambda role, *_: role), list[str]()
    with Journal.open(path, keep=keep) as journal:
        bus, log = MemoryBus(journal=journal if has_bus else None), ReplayLog(journal)
        async with TeamRuntime(plan, engine, bus, adapters={}, log=log) as runtime:
            for episode in episodes:

                async def decide(point: DecisionPoint, episode: str = episode) -> Payload:
                    (candidate,) = await runtime.ask(point, (point.turn,), episode=episode)
                    return candidate.payload

                before = len(engine.requests)
                await runtime.play(episode, World(plan), decide, lambda *_: None)
                asked.append(f"{episode}: {len(engine.requests) - before}")
        await bus.close()
        return [*asked, *[play.episode for play in await log.plays()]]


async def test_plays_that_are_over_are_dropped_behind_the_latest_events(tmp_path: Path) -> None:
    """A play of two turns with one agent is seven events: two for each beginning, answer and step, and its end."""
    path = tmp_path / "bus.sqlite"
    assert await played(path, "e0", "e1", "e2", keep=7) == ["e0: 2", "e1: 2", "e2: 2", "e2"]
    assert await played(path, "e2", "e0", keep=14) == ["e2: 0", "e0: 2", "e2", "e0"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("SELECT count(*) FROM event").fetchone() == (14,)


async def test_a_bus_may_have_the_same_journal(tmp_path: Path) -> None:
    path = tmp_path / "bus.sqlite"
    assert await played(path, "e0", has_bus=True) == ["e0: 2", "e0"]
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DELETE FROM event WHERE seq > 4")
        connection.execute("UPDATE play SET ended = NULL")
    assert await played(path, "e0", has_bus=True) == ["e0: 1", "e0"], "a bus that has seen its id takes it again"


async def test_a_play_that_was_forgotten_is_played_anew(tmp_path: Path) -> None:
    path = tmp_path / "bus.sqlite"
    await played(path, "e0")
    with Journal.open(path) as journal:
        log = ReplayLog(journal)
        assert await log.forget("t", "e0")
        assert not await log.forget("t", "e0")
    assert await played(path, "e0") == ["e0: 2", "e0"]


async def test_a_fork_has_no_plays(tmp_path: Path) -> None:
    path, copy = tmp_path / "bus.sqlite", tmp_path / "fork.sqlite"
    await played(path, "e0", has_bus=True)
    with closing(sqlite3.connect(path)) as connection:
        (message,) = connection.execute("SELECT id FROM record ORDER BY seq LIMIT 1").fetchone()
    fork(path, at=message, new=copy)
    assert await played(copy, "e0") == ["e0: 2", "e0"]


def test_another_file_is_no_journal(tmp_path: Path) -> None:
    path = tmp_path / "notes.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE note (text TEXT)")
    with pytest.raises(JournalError, match="is no journal of version 2"):
        Journal.open(path)
