"""Plays that outlive their process: a runtime with a log records what happens, and another one resumes from there.

    with Journal.open(path) as journal:
        async with TeamRuntime(plan, engine, bus, adapters={}, log=ReplayLog(journal)) as runtime:
            await runtime.play("episode", environment, decide, on_turn)  # the same after a kill

Playing an episode that the log has replays the record, without asking any agent, and then continues live. Leaves out on
purpose: making the environment and `decide` again, which the caller does.

An event is on the disk before anything depends on it: an answer before its tokens travel, the order of tokens before
the next agents are asked, a step of the environment before the next turn begins. So whatever was asked before a kill is
asked again with the same words, seeds and id, or not at all. What the record says nothing of must wait until all that
it has is replayed (`TurnReplayLog.peek` finds no more rounds): in a turn that is over it was cancelled, and must not be
asked again.
"""

import asyncio
import secrets
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import msgspec

from mas.bus.journal import Journal
from mas.bus.plays import PlayRow, Plays
from mas.bus.wire import pack
from mas.core.environment import Environment
from mas.core.errors import JournalError, Malformed, MasError
from mas.graph.plan import TeamPlan
from mas.runtime.replay_events import Beginning, DroppedEvent, EndEvent, GaveUp, Setting, read_beginning, read_event
from mas.runtime.turn_replay_log import PlayRecord, TurnReplayLog


class PlayReplayLog(PlayRecord):
    """One play while a process plays it.

    Args:
        play: its id; life: which process this is, from 1.
        events: what is written of it.
        played_s: how long it was played in earlier lives, at least.

    Raises:
        Malformed: an event holds a payload that is unknown here.
    """

    def __init__(self, plays: Plays, play: str, *, life: int, events: Sequence[bytes], played_s: float) -> None:
        known = [read_event(frame) for frame in events]
        times = (event.at for event in known if not isinstance(event, DroppedEvent | GaveUp))
        super().__init__(plays, play, max([played_s, *times]))
        self.life = life
        self._turns: dict[int, TurnReplayLog] = {}
        self._looks = 0
        for event in known:
            if isinstance(event, EndEvent):
                self.is_over = True
            else:
                self.of_turn(event.turn).load(event)

    def of_turn(self, turn: int) -> TurnReplayLog:
        if turn not in self._turns:
            self._turns[turn] = TurnReplayLog(self, turn)
        return self._turns[turn]

    def look_id(self) -> str:
        """The id of the next message to the environment, which is another one in every life."""
        self._looks += 1
        return f"{self.id}/life/{self.life}/{self._looks}"

    async def failed(self, error: MasError) -> None:
        """This life ends with an error. What was compensated is over; everything else can be resumed."""
        text = f"{type(error).__name__}: {error}"
        if self.is_undone and not self.is_over:
            await self.end(text)
        if not isinstance(error, JournalError):
            self._plays.fail(self.id, text)

    async def end(self, failure: str | None = None) -> None:
        """The play is over.

        Raises:
            JournalError: the disk has failed.
        """
        if self.is_over:
            return
        self.go_live()
        self.put(EndEvent(failure=failure, at=self.clock_s()))
        self.is_over = True
        self._plays.end(self.id)
        await self._plays.is_safe()


_TICK_S = 1.0


class Play(msgspec.Struct, frozen=True, kw_only=True):
    """A play as the log has it.

    Attributes:
        id: its messages' ids begin with it.
        plan: digest of the team that it was begun with.
        began_at: seconds since 1970; played_s: how long it was played, waits for a process not counted.
        settings: see `TeamRuntime.play`.
        lives: how often a process has begun to play it.
        is_over: nothing of it is left to do, or can be, as its record is damaged; failure: what it, or its last life,
            failed with.
    """

    id: str
    team: str
    plan: str
    episode: str
    began_at: float
    played_s: float
    settings: Mapping[str, Setting]
    lives: int
    is_over: bool
    failure: str | None


class ReplayLog:
    """The plays of one journal, which a bus may have, too. For one event loop.

    Raises:
        JournalError: it cannot be read.
    """

    def __init__(self, journal: Journal) -> None:
        self.journal = journal
        self.path = journal.path
        self._plays = Plays(journal)
        self._open: set[tuple[str, str]] = set()
        self._replies = self._plays.replies()
        self._has_written = False

    async def plays(self) -> list[Play]:
        """All plays, the oldest first; of those that are over the journal keeps the latest.

        Raises:
            JournalError: the disk has failed.
        """
        await self._written()
        return [_play(row) for row in self._plays.rows()]

    async def unfinished(self) -> list[Play]:
        """The plays that can be resumed, the oldest first.

        Raises:
            JournalError: the disk has failed.
        """
        return [play for play in await self.plays() if not play.is_over]

    async def find(self, team: str, episode: str) -> Play | None:
        """The play of an episode, None: there is none.

        Raises:
            JournalError: the disk has failed.
        """
        row = await self._find(team, episode)
        return None if row is None else _play(row)

    async def forget(self, team: str, episode: str) -> bool:
        """Delete the record of a play, so that the episode can be played anew; False: there was none.

        Raises:
            JournalError: it is being played, or the disk has failed.
        """
        if (team, episode) in self._open:
            raise JournalError(f"episode {episode!r} of team {team!r} is being played: it cannot be forgotten now")
        row = await self._find(team, episode)
        if row is not None:
            self._plays.forget(row.id)
            await self._plays.flush()
        return row is not None

    @asynccontextmanager
    async def play(
        self, plan: TeamPlan, episode: str, environment: Environment, settings: Mapping[str, Setting], *, ticks: bool
    ) -> AsyncIterator[PlayReplayLog]:
        """The record of an episode while it is played, from its beginning or from where it ended.

        Args:
            environment: after its reset.
            ticks: whether to note the time every second, for teams with limits in time.

        Raises:
            JournalError: it is being played already, or was begun with another team, task or setting.
            Malformed: the record holds a payload whose class was not imported.
        """
        name = (plan.spec.name, episode)
        if name in self._open:
            raise JournalError(f"episode {episode!r} of team {name[0]!r} is being played already on this log")
        self._open.add(name)
        ticking: asyncio.Task[None] | None = None
        try:
            beginning = Beginning(plan=plan.digest, state=environment.state_key(), settings=dict(settings))
            log = await self._opened(name, beginning)
            if ticks:
                ticking = asyncio.create_task(_tick(log), name=f"clock of {episode}")
            try:
                yield log
            except MasError as error:
                await log.failed(error)
                raise
            finally:
                log.tick()
        finally:
            self._open.discard(name)
            if ticking is not None:
                ticking.cancel()
                await asyncio.wait([ticking])

    def reply_to(self, question: str) -> str | None:
        """The answer of a person to a question, None: none yet."""
        return self._replies.get(question)

    def replied(self, question: str, text: str) -> None:
        """Write a person's answer down; it survives once `is_safe` has returned."""
        self._replies[question] = text
        self._plays.reply(question, text)

    async def is_safe(self) -> None:
        """Wait until all that was written so far survives.

        Raises:
            JournalError: the disk has failed.
        """
        await self._plays.is_safe()

    async def _opened(self, name: tuple[str, str], beginning: Beginning) -> PlayReplayLog:
        row = await self._find(*name)
        if row is None:
            play, lives = f"{name[0]}/play/{secrets.token_hex(8)}", 0
            self._plays.begin(play, *name, pack(beginning))
            log = PlayReplayLog(self._plays, play, life=1, events=[], played_s=0.0)
        else:
            _check(self._plays, row, beginning)
            play, lives = row.id, row.lives
            log = PlayReplayLog(
                self._plays, play, life=lives + 1, events=self._plays.events(play), played_s=row.clock_s
            )
        self._has_written = True
        self._plays.live(play)
        await self._plays.is_safe()
        return log

    async def _find(self, team: str, episode: str) -> PlayRow | None:
        await self._written()
        return self._plays.row(team, episode)

    async def _written(self) -> None:
        if self._has_written:
            await self._plays.flush()


def _check(plays: Plays, row: PlayRow, now: Beginning) -> None:
    """Refuse to resume another play than the one that was begun.

    Raises:
        JournalError: says what differs.
    """
    then = read_beginning(row.frame)
    began = datetime.fromtimestamp(row.at, UTC).isoformat(sep=" ", timespec="seconds")[:19]
    text = f"episode {row.episode!r} of team {row.team!r} was begun at {began} UTC in the journal {plays.path} "
    hint = "Go on with what it was begun with, or name another journal."
    if then.plan != now.plan:
        raise JournalError(f"{text}with another team of this name (digest {then.plan}, now {now.plan}). {hint}")
    for key in sorted({*then.settings, *now.settings}):
        mine, theirs = now.settings.get(key), then.settings.get(key)
        if mine != theirs:
            raise JournalError(f"{text}with {key}: {theirs!r}, now it is {mine!r}. {hint}")
    if then.state != now.state:
        raise JournalError(
            f"{text}in another world: its first state is {then.state}, now {now.state}; another task, or another "
            f"version or option of the scenario. {hint}"
        )


def _play(row: PlayRow) -> Play:
    try:
        beginning, damage = read_beginning(row.frame), None
    except Malformed as error:  # one damaged play hides none of the others
        beginning, damage = Beginning(plan="", state="", settings={}), f"its record is damaged: {error}"
    return Play(
        id=row.id,
        team=row.team,
        plan=beginning.plan,
        episode=row.episode,
        began_at=row.at,
        played_s=row.clock_s,
        settings=beginning.settings,
        lives=row.lives,
        is_over=row.ended is not None or damage is not None,
        failure=damage or row.failure,
    )


async def _tick(log: PlayReplayLog) -> None:
    while True:
        await asyncio.sleep(_TICK_S)
        log.tick()
