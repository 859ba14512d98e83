"""One game between a person and a player of a league, in a thread with an event loop of its own: players that search
or compute hold up the loop that they run in. Nothing of the game is written."""

import asyncio
import secrets
import threading
import weakref
from collections.abc import Sequence
from contextvars import copy_context
from dataclasses import dataclass, replace

from mas.core.errors import ConfigError, MasError
from mas.league.games import open_world
from mas.league.match import Chance, Fixture, PlayedGame, play
from mas.league.page_parts import GameStep, game_steps
from mas.league.players import open_players
from mas.league.stored_sources import check_sources, stored_world
from mas.person.seats import action_of

YOU = "you"
_PATIENCE_S = 1800.0
_MOST_ON, _MOST_KEPT = 4, 32
"""Games that are on at one time, and those that are kept, the ended ones too."""
_LONGEST = 10_000
"""Characters of a move."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayTerms:
    """What is played.

    Attributes:
        game: its id. seat: the person's.
        league: the file of the league that names game and opponent; empty: the studio offers both itself.
        opponent: its name, which plays all other seats; source: how it is opened.
    """

    game: str
    seat: str
    league: str
    opponent: str
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PlayView:
    """How a game stands.

    Attributes:
        version: another number whenever anything changed.
        asked: what the person is asked; None: it is not the person's move.
        note: what takes long just now. problem: why the game broke off; empty: it did not.
        played: the whole game, and its steps; None: it is not over.
    """

    version: int = 0
    asked: Chance | None = None
    note: str = ""
    problem: str = ""
    played: PlayedGame | None = None
    steps: Sequence[GameStep] = ()

    @property
    def is_over(self) -> bool:
        """Whether nothing will change any more."""
        return self.played is not None or bool(self.problem)


class PlaySession:
    """A game that has begun. Satisfies `mas.league.match.Player`: the person's moves come from requests.

    Attributes:
        terms: what is played.
    """

    def __init__(self, terms: PlayTerms) -> None:
        self.terms = terms
        self._changed = threading.Condition()
        self._view = PlayView()
        self._answer: asyncio.Future[str] | None = None
        self._task: tuple[asyncio.AbstractEventLoop, asyncio.Task[None]] | None = None
        self._is_ended = False
        self._thread = threading.Thread(target=copy_context().run, args=(self._run,), name="mas-play", daemon=True)
        self._thread.start()

    @property
    def view(self) -> PlayView:
        """How the game stands now."""
        with self._changed:
            return self._view

    def settled(self, after: int, limit_s: float) -> PlayView:
        """How the game stands once it is the person's move or over, later than a version; at the latest in so many
        seconds."""
        with self._changed:
            self._changed.wait_for(
                lambda: self._view.version > after and (self._view.asked is not None or self._view.is_over), limit_s
            )
            return self._view

    def say(self, text: str, version: int) -> None:
        """The person's move in a version of the view.

        Raises:
            ConfigError: it is not the person's move, or the move is not legal: says what is.
        """
        with self._changed:
            asked, answer = self._view.asked, self._answer
            if asked is None or answer is None or self._view.version != version:
                raise ConfigError("it was not your move: this is how the game stands now")
            action = action_of(asked.copy(), asked.seat, text.strip()[:_LONGEST], asked.legal)
            self._answer = None
            self._set(replace(self._view, asked=None))
        answer.get_loop().call_soon_threadsafe(_set_result, answer, action)

    def end(self) -> None:
        """Break the game off."""
        with self._changed:
            self._is_ended = True
            if self._task is not None and not self._view.is_over:
                loop, task = self._task
                loop.call_soon_threadsafe(task.cancel)

    def join(self, limit_s: float) -> None:
        """Wait until the game is over; at most so many seconds."""
        self._thread.join(limit_s)

    async def move(self, asked: Chance) -> str:
        """The person's move, when it comes."""
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        with self._changed:
            self._answer = answer
            self._set(replace(self._view, asked=asked, note=""))
        async with asyncio.timeout(_PATIENCE_S):
            return await answer

    def _set(self, view: PlayView) -> None:
        """Another view; the condition is held."""
        self._view = replace(view, version=self._view.version + 1)
        self._changed.notify_all()

    def _note(self, text: str) -> None:
        with self._changed:
            self._set(replace(self._view, note=text))

    def _run(self) -> None:
        problem = "the game broke off: the output of mas studio says why"
        try:
            asyncio.run(self._play())
        except asyncio.CancelledError:
            problem = "the game was broken off"
        except TimeoutError:
            problem = f"the game was broken off: no move came for {_PATIENCE_S / 60:.0f} minutes"
        except (MasError, OSError) as error:
            problem = str(error)
        finally:
            with self._changed:
                self._task = None
                if self._view.played is None:
                    self._set(replace(self._view, asked=None, problem=problem))

    async def _play(self) -> None:
        terms, task = self.terms, asyncio.current_task()
        assert task is not None
        with self._changed:
            self._task = (asyncio.get_running_loop(), task)
            if self._is_ended:
                raise asyncio.CancelledError
        if terms.league:
            world = stored_world(terms.game, terms.league)
            check_sources({terms.opponent: terms.source}, terms.league)
        else:
            world = open_world(terms.game)
        other = terms.opponent if terms.opponent != YOU else f"{YOU} (of the league)"
        seated = tuple(YOU if seat == terms.seat else other for seat in world.open().spec.seats)
        async with open_players({other: terms.source}, world, self._note) as players:
            fixture = Fixture(seated, secrets.randbits(62), 0, 0)
            played = await play(world.open(), fixture, {**players, YOU: self})
        steps = game_steps(world.open(), played)
        with self._changed:
            self._set(replace(self._view, played=played, steps=steps, asked=None))


def _set_result(answer: "asyncio.Future[str]", action: str) -> None:
    """Unless the game was broken off meanwhile."""
    if not answer.done():
        answer.set_result(action)


class PlaySessions:
    """The games of one studio; those that are on are broken off when the studio ends."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._sessions: dict[str, PlaySession] = {}
        weakref.finalize(self, _end_all, self._sessions)

    def begin(self, terms: PlayTerms) -> str:
        """Begin a game; what names it in addresses.

        Raises:
            ConfigError: as many are on as may be.
        """
        with self._lock:
            if sum(not session.view.is_over for session in self._sessions.values()) >= _MOST_ON:
                raise ConfigError(f"{_MOST_ON} games are on: finish one of them, or give one up")
            key = secrets.token_urlsafe(12)
            self._sessions[key] = PlaySession(terms)
            over = [key for key, session in self._sessions.items() if session.view.is_over]
            for old in over[: max(0, len(self._sessions) - _MOST_KEPT)]:
                del self._sessions[old]
            return key

    def on(self) -> dict[str, PlayTerms]:
        """The games that are not over."""
        with self._lock:
            return {key: session.terms for key, session in self._sessions.items() if not session.view.is_over}

    def find(self, key: str) -> PlaySession | None:
        """A game; None: there is none, or it was long ago."""
        with self._lock:
            return self._sessions.get(key)


def _end_all(sessions: dict[str, PlaySession]) -> None:
    for session in sessions.values():
        session.end()
    for session in sessions.values():
        session.join(5.0)
