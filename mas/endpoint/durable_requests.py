"""Requests to teams that outlive their connection and their process: each has a key, and its plays lie in a journal.

    with Journal.open(path) as journal:
        log = ReplayLog(journal)  # the teams' runtimes and their desk have it, too
        async with KeptRequests(log, teams, of={"run": "relay"}) as kept:
            app = build_app(served, desk=desk, kept=kept)

Entering it goes on with all that is not over. Leaves out on purpose: requests to models that are no teams, which nobody
waits for when their client is gone.
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Self

import msgspec

from mas.core.concurrency import together
from mas.core.errors import ConfigError, JournalError
from mas.core.naming import listed
from mas.core.seeds import derive_seed, digest
from mas.endpoint.completions import seeds_from
from mas.endpoint.errors import Refused
from mas.endpoint.teams import UNFINISHED, TeamModel, TeamTurn
from mas.endpoint.wire import ChatRequest, CompletionRequest
from mas.runtime.replay_events import Setting
from mas.runtime.replay_log import Play, ReplayLog

KEY_HEADER = "Idempotency-Key"
MAX_OPEN = 1024
"""Requests that may be under way at once, with a client or without."""
_KEY = re.compile(r"[!-~]{1,255}")
_ASKED, _OF = "asked.", "of."
"""Begin the settings that say what was asked, and whom."""
OnCost = Callable[[int, int], None]
"""Called with the numbers of prompt and generated tokens."""
_log = logging.getLogger(__name__)


def _no_cost(prompt: int, generated: int) -> None:
    """The tokens are charged to no client."""


class KeptRequest(msgspec.Struct, frozen=True, kw_only=True):
    """A request as the journal has it: all that is needed to play it again.

    Attributes:
        key: the client's, or one drawn here (`is_own`), which no client can send again.
        request: fingerprint of the whole request.
        team: its name; message: the situation.
        seed: of the first of `n` turns; the others have those after it.
        temperature: 0: greedy; None: each role's own.
    """

    key: str
    is_own: bool
    request: str
    team: str
    message: str
    seed: int
    temperature: float | None
    n: int

    @property
    def episodes(self) -> tuple[str, ...]:
        return tuple(f"{self.key}#{index}" for index in range(self.n))

    @property
    def settings(self) -> dict[str, Setting]:
        """What its plays are begun with."""
        fields: dict[str, Setting] = msgspec.to_builtins(self)
        return {f"{_ASKED}{name}": value for name, value in fields.items()}


def asked_of(team: TeamModel, message: str, request: CompletionRequest | ChatRequest, key: str | None) -> KeptRequest:
    """A request to a team. `key`: the client's, None: it gave none."""
    own = secrets.token_hex(16) if key is None else key
    return KeptRequest(
        key=own,
        is_own=key is None,
        request=digest(type(request).__name__, request.model_dump_json()),
        team=team.name,
        message=message,
        seed=derive_seed("request", own) if request.seed is None else request.seed,
        temperature=request.temperature,
        n=request.n,
    )


def check_key_header(given: Sequence[str]) -> str | None:
    """The key in a request's headers of this name, None: there is none.

    Raises:
        Refused: there are several, or it is empty, too long, or has other characters than visible ASCII.
    """
    if not given:
        return None
    if len(given) > 1 or not _KEY.fullmatch(given[0]):
        raise Refused(
            400,
            f"the header {KEY_HEADER} is {', '.join(map(repr, given))[:80]}; give one, of 1 to 255 visible ASCII "
            "characters without spaces, such as a UUID",
            code="idempotency_key",
        )
    return given[0]


@dataclass(frozen=True, slots=True)
class _OpenRequest:
    """A request under way."""

    asked: KeptRequest
    task: asyncio.Task[list[TeamTurn]]


class KeptRequests:
    """All requests to teams of one journal. Use as an async context manager; for one event loop.

    Args:
        log: that of the teams' runtimes.
        of: what the requests depend on beside themselves, such as the run; the journal goes on only with the same.
        most: requests that may be under way at once; more are refused.

    Raises:
        ConfigError: a team's runtime has another log, or none.
    """

    def __init__(
        self,
        log: ReplayLog,
        teams: Sequence[TeamModel],
        *,
        of: Mapping[str, Setting] = MappingProxyType({}),
        most: int = MAX_OPEN,
    ) -> None:
        for team in teams:
            if team.runtime.log is not log:
                raise ConfigError(f"the runtime of team {team.name!r} needs the log that keeps its requests: log=")
        self._log, self._most = log, most
        self._teams = {team.name: team for team in teams}
        self._of = {f"{_OF}{name}": value for name, value in of.items()}
        self._open: dict[str, _OpenRequest] = {}

    async def __aenter__(self) -> Self:
        """Go on with all requests that are not over.

        Raises:
            JournalError: the journal has plays of something else, or cannot be read.
        """
        unfinished: dict[str, KeptRequest] = {}
        for play in await self._log.plays():
            asked = self._read(play)
            if not play.is_over:
                unfinished[asked.key] = asked
        for asked in unfinished.values():
            self._begin(asked)
        return self

    async def __aexit__(self, *error: object) -> None:
        """End what is under way; the journal's next process goes on with it."""
        tasks = [request.task for request in self._open.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def under_way(self) -> int:
        return len(self._open)

    async def turns(self, asked: KeptRequest, on_cost: OnCost = _no_cost) -> tuple[list[TeamTurn], bool]:
        """What comes of a request, and whether it was begun by this call: one that is under way is joined, and the
        result of one that is over is that of the record. It goes on when the caller is cancelled.

        Args:
            on_cost: see `TeamModel.turn`; of a request that this call begins, told also when the caller is gone.

        Raises:
            Refused: the key was given with another request, too much is under way, or as `TeamModel.turn`.
            JournalError: the disk has failed.
        """
        known = None if asked.is_own else await self._known(asked.key)
        request = self._open.get(asked.key)  # nothing is awaited from here on
        before = known if request is None else request.asked
        if before is not None and before.request != asked.request:
            raise Refused(
                422,
                f"{KEY_HEADER} {asked.key!r} was given with another request before: give each request a key of its "
                "own, and send the very same one again with the same key",
                code="idempotency_key",
            )
        if request is None:
            if len(self._open) >= self._most:
                raise Refused(429, f"{len(self._open)} requests to teams are under way: come again later", code="busy")
            request = self._begin(asked, on_cost if before is None else _no_cost)
        return await asyncio.shield(request.task), before is None

    async def _known(self, key: str) -> KeptRequest | None:
        """The request of a key, as the journal has it."""
        for team in self._teams:
            play = await self._log.find(team, f"{key}#0")
            if play is not None:
                return self._read(play)
        return None

    def _begin(self, asked: KeptRequest, on_cost: OnCost = _no_cost) -> _OpenRequest:
        task = asyncio.create_task(self._play(asked, on_cost), name=f"request {asked.key}")
        task.add_done_callback(lambda done: self._ended(asked.key, done))
        self._open[asked.key] = _OpenRequest(asked, task)
        return self._open[asked.key]

    def _ended(self, key: str, task: asyncio.Task[list[TeamTurn]]) -> None:
        """Nobody needs to wait for a request that failed."""
        del self._open[key]
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, Refused):
            _log.error("request %r failed", key, exc_info=error)

    async def _play(self, asked: KeptRequest, on_cost: OnCost) -> list[TeamTurn]:
        """Play its turns, or go on. What failed and nobody can ask for again, or only in vain, is dropped."""
        team, settings = self._teams[asked.team], {**asked.settings, **self._of}
        seeds = seeds_from(asked.seed, asked.n)
        plays = [
            team.turn(asked.message, seed, asked.temperature, episode=episode, settings=settings, on_cost=on_cost)
            for seed, episode in zip(seeds, asked.episodes, strict=True)
        ]
        try:
            return await together(plays, "team-turn")
        except Refused as refused:
            if refused.code != UNFINISHED and (asked.is_own or refused.status < 500):
                for episode in asked.episodes:
                    await self._log.forget(asked.team, episode)
            raise

    def _read(self, play: Play) -> KeptRequest:
        """The request that a play is of."""
        begun = f"the journal {self._log.path} has episode {play.episode!r} of team {play.team!r}, begun "
        hint = "Go on with what it was begun with, or name another journal."
        fields = {name.removeprefix(_ASKED): value for name, value in play.settings.items() if name.startswith(_ASKED)}
        try:
            asked = msgspec.convert(fields, KeptRequest)
        except msgspec.ValidationError:
            raise JournalError(f"{begun}by something else than requests to a server. {hint}") from None
        if play.team not in self._teams:
            raise JournalError(f"{begun}with that team; served are {listed(self._teams)}. {hint}")
        for name, value in self._of.items():
            if play.settings.get(name) != value:
                was = play.settings.get(name)
                raise JournalError(f"{begun}with {name.removeprefix(_OF)} {was!r}, now it is {value!r}. {hint}")
        plan = self._teams[play.team].runtime.plan.digest
        if play.plan != plan:
            raise JournalError(f"{begun}with another team of this name (digest {play.plan}, now {plan}). {hint}")
        return asked
