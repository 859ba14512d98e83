"""A tournament whose workers are killed at random moments, and which is interrupted once, has the games of one that
nobody disturbed.

A default run takes one seed, `make chaos` and the nightly run all of them.
"""

import asyncio
import os
import signal
import time
from pathlib import Path
from random import Random
from typing import Any

import pytest

from mas.cluster.handle import Handle
from mas.config.options import WorkerOptions
from mas.league.games import open_world
from mas.league.match import PlayedGame
from mas.league.players import play_games
from mas.league.standings import standings
from mas.league.store import LeagueStore
from mas.league.tournament import Terms
from mas.league.workers import played_by_workers

pytestmark = pytest.mark.slow
pytest.importorskip("pyspiel")
TERMS = Terms(
    game="open_spiel:tic_tac_toe", players={"a": "mcts:400", "b": "mcts:100", "c": "random"}, games=20, seed=5
)
GAMES, KILLS, AT_ONCE, WITHIN_S = 60, 6, 6, 0.2
MOST_STARTS = 2
"""Kills of workers that are being started again: a third one in a row is an error."""


class Killer:
    """Kills workers at drawn moments: soon after so many games have been given to workers, any of those that live or
    are being started again.

    Args:
        within_s: how long after a moment at most, a small part of what all games take.
    """

    def __init__(self, draw: Random, moments: set[int], within_s: float) -> None:
        self._draw, self._moments, self._within_s = draw, moments, within_s
        self._handles: list[Handle] = []
        self.given, self.states = 0, list[str]()

    def watch(self, patch: pytest.MonkeyPatch) -> None:
        """See every worker that starts and every game that is given to one."""
        call, start = Handle.call, Handle.start

        async def seen(handle: Handle, method: str, payload: bytes = b"", **options: Any) -> bytes:
            self.given += 1
            if self.given in self._moments:
                asyncio.get_running_loop().call_later(self._draw.uniform(0, self._within_s), self._kill)
            return await call(handle, method, payload, **options)

        async def started(handle: Handle) -> None:
            self._handles.append(handle)
            await start(handle)

        patch.setattr(Handle, "call", seen)
        patch.setattr(Handle, "start", started)

    def _kill(self) -> None:
        states = {handle: handle.member().state for handle in self._handles}
        may_start = self.states.count("starting") == MOST_STARTS
        living = [
            handle
            for handle, state in states.items()
            if state == "alive" or (state == "starting" and handle.restarts and not may_start)
        ]
        if living and (pid := (handle := self._draw.choice(living)).pid) is not None:
            os.kill(pid, signal.SIGKILL)
            self.states.append(states[handle])


class Stored(LeagueStore):
    """Counts what is stored, and interrupts its user after so many games."""

    interrupt_at = GAMES // 3
    stored = 0

    def add(self, tournament: str, game: PlayedGame) -> bool:
        is_new = super().add(tournament, game)
        assert is_new, f"{game.id} was played twice"
        self.stored += 1
        task = asyncio.current_task()
        assert task is not None
        if self.stored == self.interrupt_at:
            task.get_loop().call_soon(self.user.cancel)
        return is_new

    user: "asyncio.Task[list[PlayedGame]]"


@pytest.mark.nightly(of=16)
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(5))
async def test_a_tournament_whose_workers_are_killed_again_and_again_has_the_games_of_one_that_was_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    draw, world = Random(seed), open_world(TERMS.game)
    began = time.monotonic()
    undisturbed = await play_games("cup", TERMS, LeagueStore.open(tmp_path / "one.db"), world, AT_ONCE)
    within_s = min(WITHIN_S, (time.monotonic() - began) / GAMES)
    killer = Killer(draw, set(draw.sample(range(2, GAMES - 5), KILLS)), within_s)
    killer.watch(monkeypatch)
    store, options = Stored.open(tmp_path / "x.db"), WorkerOptions(workers=2, start_s=300.0, cpus=4)

    def begin() -> "asyncio.Task[list[PlayedGame]]":
        playing = played_by_workers("cup", TERMS, store, world, AT_ONCE, options, tmp_path / "logs")
        return asyncio.create_task(playing, name="tournament")

    store.user = begin()
    with pytest.raises(asyncio.CancelledError):
        await store.user
    assert Stored.interrupt_at <= len(store.games("cup")) < GAMES
    games = await begin()
    print(f"seed {seed}: killed {killer.states} while {killer.given} games were given to workers")
    assert len(killer.states) >= 2
    assert killer.given > GAMES
    assert store.stored == GAMES
    assert games == undisturbed
    names = list(TERMS.players)
    assert repr(standings(names, games)) == repr(standings(names, undisturbed))
