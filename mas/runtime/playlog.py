"""The record of one play: what it has is played again in its order, what happens beyond it is written down.

An event is on the disk before anybody can notice it: an answer before its tokens travel, the order of tokens before
the next agents are asked, a step of the environment before the next turn begins. So whatever was asked before a kill is
asked again with the same words, seeds and id, or not at all.

What the record says nothing of must wait until all that it has is played again (`TurnLog.peek` finds no more rounds):
in a turn that is over it was cancelled, and must not be asked again.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence

from mas.bus.plays import Plays
from mas.bus.wire import pack
from mas.core.environment import Environment, Observation, Step
from mas.core.errors import JournalError, Malformed, MasError, ReplayError
from mas.core.messages import Payload
from mas.runtime.agents import Candidate
from mas.runtime.budget import Purse, Spent
from mas.runtime.events import (
    Called,
    Committed,
    Dropped,
    Event,
    GaveUp,
    Over,
    Round,
    TurnBegan,
    failure_of,
    fingerprint,
    read_event,
)

Visit = tuple[int, str, int]
"""Turn, agent, and how often it has spoken before."""


class PlayLog:
    """One play while a process plays it.

    Args:
        play: its id; life: which process this is, from 1.
        events: what is written of it.
        played_s: how long it was played in earlier lives, at least.

    Raises:
        Malformed: an event holds a payload that is unknown here.
    """

    def __init__(self, plays: Plays, play: str, *, life: int, events: Sequence[bytes], played_s: float) -> None:
        self.id, self.life = play, life
        self._plays = plays
        self._now = asyncio.get_running_loop().time
        self._live_since: float | None = None
        self._turns: dict[int, TurnLog] = {}
        self._looks = 0
        self.is_over = False
        self.is_undone = False
        self.failure: str | None = None
        known = [read_event(frame) for frame in events]
        self.is_known = bool(known)
        times = (event.at for event in known if not isinstance(event, Dropped | GaveUp))
        self.played_s = max([played_s, *times])
        for event in known:
            if isinstance(event, Over):
                self.is_over = True
            else:
                self.of_turn(event.turn).load(event)

    def of_turn(self, turn: int) -> "TurnLog":
        """The record of a team turn."""
        if turn not in self._turns:
            self._turns[turn] = TurnLog(self, turn)
        return self._turns[turn]

    @property
    def turns(self) -> int:
        """Team turns that are committed."""
        return sum(1 for turn in self._turns.values() if turn.committed is not None)

    def clock_s(self) -> float:
        """How long the play was played, in all lives."""
        return self.played_s + (0.0 if self._live_since is None else self._now() - self._live_since)

    def go_live(self) -> None:
        """The record is played to its end: time passes again."""
        if self._live_since is None:
            self._live_since = self._now()

    def tick(self) -> None:
        """Note how long it was played."""
        if self._live_since is not None and not self.is_over:
            self._plays.tick(self.id, self.clock_s())

    def look_id(self) -> str:
        """The id of the next message to the environment, which is another one in every life."""
        self._looks += 1
        return f"{self.id}/life/{self.life}/{self._looks}"

    def put(self, event: Event) -> None:
        """Write an event down, without waiting.

        Raises:
            JournalError: it cannot be written.
        """
        try:
            frame = pack(event)
        except Malformed as error:
            raise JournalError(f"play {self.id!r} cannot be kept: {error}") from error
        self._plays.add(self.id, frame)

    async def write(self, event: Event) -> None:
        """Write an event down, and wait until it survives.

        Raises:
            JournalError: it cannot be written, or the disk has failed.
        """
        self.put(event)
        await self._plays.is_safe()

    async def failed(self, error: MasError) -> None:
        """This life ends with an error. What was compensated is over; everything else can go on."""
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
        self.put(Over(failure=failure, at=self.clock_s()))
        self.is_over = True
        self._plays.end(self.id)
        await self._plays.is_safe()


class TurnLog:
    """One team turn of a play.

    Attributes:
        committed: the step that ended it, None while it goes on.
    """

    def __init__(self, play: PlayLog, turn: int) -> None:
        self.play, self.turn = play, turn
        self.committed: Committed | None = None
        self._began: TurnBegan | None = None
        self._rounds: deque[Round] = deque()
        self._calls: dict[tuple[Visit, int], Called] = {}
        self._dropped: set[tuple[Visit, int]] = set()
        self._lost: defaultdict[Visit, list[Called]] = defaultdict(list)
        self._made: dict[Visit, int] = {}
        self._said: dict[tuple[Visit, int], asyncio.Event] = {}
        self._before: dict[tuple[Visit, int], asyncio.Event] = {}
        self._live = asyncio.Event()
        self._at = 0.0

    def load(self, event: Event) -> None:
        """Take an event of an earlier life."""
        if isinstance(event, TurnBegan):
            self._began = event
        elif isinstance(event, Round):
            self._rounds.append(event)
        elif isinstance(event, Committed):
            self.committed = event
        elif isinstance(event, Called):
            self._calls[(event.turn, event.agent, event.visit), event.number] = event
        elif isinstance(event, Dropped):
            self._dropped.add(((event.turn, event.agent, event.visit), event.number))
        elif isinstance(event, GaveUp):
            visit = (event.turn, event.agent, event.visit)
            gone = [key for key in self._calls if key[0] == visit]
            self._lost[visit] += [self._calls.pop(key) for key in gone]
            self._made[visit] = max([self._made.get(visit, 0), *(number for _, number in gone)])

    async def begin(self, observations: Mapping[str, Observation]) -> None:
        """The turn begins, or does so again.

        Raises:
            ReplayError: its agents see something else than they did. JournalError: the disk has failed.
        """
        seen = fingerprint(dict(observations))
        if self._began is None:
            self.peek()
            self.play.put(TurnBegan(turn=self.turn, seen=seen, at=self.play.clock_s()))
        elif self._began.seen != seen:
            raise ReplayError(
                f"turn {self.turn} of play {self.play.id!r}: its agents see something else than they did when it was "
                "recorded: the environment is not deterministic, or of another version"
            )
        else:
            self._at = self._began.at
        self._chain()

    def _chain(self) -> None:
        """Let recorded calls return in their order: what is done with their answers then has that order, too."""
        before: asyncio.Event | None = None
        for key in [key for key in self._calls if key not in self._dropped]:
            if before is not None:
                self._before[key] = before
            before = self._said[key] = asyncio.Event()

    def now(self) -> float:
        """Seconds that the play has been played, as the recorded turn goes on, or now."""
        return self.play.clock_s() if self._live.is_set() else self._at

    def peek(self) -> Round | None:
        """The next round of the record; None: there is none any more, and from now on the turn goes on live."""
        if self._rounds:
            return self._rounds[0]
        if not self._live.is_set() and self.committed is None:
            self._live.set()
            self.play.go_live()
        return None

    def next_round(self) -> Round | None:
        """As `peek`, where several agents are at work or somebody waits.

        Raises:
            ReplayError: the recorded turn was over here.
        """
        recorded = self.peek()
        if recorded is None and self.committed is not None:
            raise ReplayError(
                f"turn {self.turn} of play {self.play.id!r} goes on where it was over when it was recorded: the record "
                "is of another version"
            )
        return recorded

    def take(self) -> Round:
        """The next round of the record is played again."""
        self._at = self._rounds[0].at
        return self._rounds.popleft()

    async def write(self, spoke: Sequence[str], expired: Sequence[str]) -> None:
        """A round happens.

        Raises:
            JournalError: the disk has failed.
        """
        at = self.play.clock_s()
        await self.play.write(Round(turn=self.turn, spoke=tuple(spoke), expired=tuple(expired), at=at))

    async def catch_up(self, tasks: Mapping[str, asyncio.Task[Payload]]) -> None:
        """Let recorded answers be heard that came too late to change the turn: they were heard then, too.

        Args:
            tasks: agent -> its work.
        """
        unsaid = [(key[0][1], said) for key, said in self._said.items() if not said.is_set()]
        for agent, said in unsaid:
            if agent not in tasks:
                continue
            saying = asyncio.create_task(said.wait(), name=f"recorded answer of {agent}")
            await asyncio.wait([saying, tasks[agent]], return_when=asyncio.FIRST_COMPLETED)
            saying.cancel()
            await asyncio.wait([saying])

    async def failed(self, agent: str, visit: int, *, is_undone: bool) -> None:
        """The turn fails with this agent; whoever goes on asks it again.

        Args:
            is_undone: what was said is compensated instead, and when that is done the play is over.

        Raises:
            JournalError: the disk has failed.
        """
        if is_undone:
            self.peek()
            self.play.is_undone = True
        else:
            await self.play.write(GaveUp(turn=self.turn, agent=agent, visit=visit))

    async def commit(self, actions: dict[str, str], step: Step, environment: Environment) -> None:
        """The environment has made its step.

        Raises:
            JournalError: the disk has failed.
        """
        self.play.go_live()
        await self.play.write(
            Committed(
                turn=self.turn,
                actions=actions,
                step=step,
                state=environment.snapshot(),
                key=environment.state_key(),
                at=self.play.clock_s(),
            )
        )

    def knows_next(self, agent: str, visit: int) -> bool:
        """Whether the record has another call of this visit."""
        key = (self.turn, agent, visit)
        return (key, self._made.get(key, 0) + 1) in self._calls

    def call(self, agent: str, visit: int, name: str, asked: str) -> "Call":
        """An agent's visit asks somebody."""
        key = (self.turn, agent, visit)
        number = self._made[key] = self._made.get(key, 0) + 1
        return Call(self, key, number, name, asked)

    async def recorded(self, key: tuple[Visit, int], purses: Sequence[Purse], most: Spent) -> Called | None:
        """What came of a call, as soon as it is its turn; None: nothing is known of it, and it is to be made now.

        What is not known was reserved nevertheless, and what was dropped was paid; if it is cancelled here, as it was
        then, that stays spent.

        Raises:
            ReplayError: the record goes on without it.
        """
        known = self._calls.get(key)
        if known is None:
            agent = key[0][1]
            is_passed = self.committed is not None and not self._rounds
            if is_passed or any(agent in recorded.spoke for recorded in self._rounds):
                raise ReplayError(
                    f"agent {agent!r} is asked in turn {self.turn} of play {self.play.id!r} what it was not asked when "
                    "it was recorded: whoever decides is not deterministic, or of another version"
                )
            await self._held(purses, most)
            return None
        if key in self._dropped:
            await self._held(purses, known.spent)
            return known
        if key in self._before:
            await self._before[key].wait()
        self._said[key].set()
        return known

    async def _held(self, purses: Sequence[Purse], spent: Spent) -> None:
        """Wait until the record is played to its end."""
        for purse in purses:
            purse.take(spent)
        await self._live.wait()
        for purse in purses:
            purse.give_back(spent, Spent())

    def lost(self, visit: Visit) -> list[Called]:
        """Calls that failed for good in an earlier life, once."""
        return self._lost.pop(visit, [])


class Call:
    """One question to an agent, or to who stands in for it. `id`: of its message, the same in every life."""

    def __init__(self, turn: TurnLog, visit: Visit, number: int, name: str, asked: str) -> None:
        self.id = f"{turn.play.id}/{visit[0]}/{visit[1]}/{visit[2]}/{number}"
        self._turn, self._visit, self._number = turn, visit, number
        self._name, self._asked = name, asked
        self._began = 0.0

    async def known(self, purses: Sequence[Purse], most: Spent) -> Called | None:
        """What is recorded of it, None where it is to be made now; what was spent is taken from the purses.

        Args:
            most: what it reserves there when it is made.

        Raises:
            ReplayError: something else was asked.
        """
        play, known = self._turn.play, await self._turn.recorded((self._visit, self._number), purses, most)
        for call in (*self._turn.lost(self._visit), *(() if known is None else (known,))):
            for purse in purses:
                purse.take(call.spent, ago_s=play.clock_s() - call.began)
        self._began = play.clock_s()
        if known is not None and (known.asked, known.name) != (self._asked, self._name):
            raise ReplayError(
                f"agent {self._visit[1]!r} is asked something else in turn {self._visit[0]} of play {play.id!r} than "
                "when it was recorded: another seed, temperature or version, or whoever decides is not deterministic"
            )
        return known

    async def answered(self, candidates: tuple[Candidate, ...], spent: Spent) -> None:
        """It was answered.

        Raises:
            JournalError: the answer cannot be written.
        """
        try:
            await self._write(spent, candidates, None)
        except asyncio.CancelledError:
            turn, agent, visit = self._visit
            self._turn.play.put(Dropped(turn=turn, agent=agent, visit=visit, number=self._number))
            raise

    async def failed(self, error: MasError, spent: Spent) -> None:
        """It failed.

        Raises:
            JournalError: that cannot be written.
        """
        await self._write(spent, (), error)

    async def _write(self, spent: Spent, candidates: tuple[Candidate, ...], error: MasError | None) -> None:
        turn, agent, visit = self._visit
        await self._turn.play.write(
            Called(
                turn=turn,
                agent=agent,
                visit=visit,
                number=self._number,
                asked=self._asked,
                name=self._name,
                began=self._began,
                at=self._turn.play.clock_s(),
                spent=spent,
                candidates=candidates,
                error=None if error is None else failure_of(error),
            )
        )


def restored(committed: Committed, actions: Mapping[str, str], environment: Environment) -> Step:
    """The recorded step, after which the environment has the state that it had then, without having made it.

    Raises:
        ReplayError: the team acts otherwise now, or the environment does not take its state.
    """
    if committed.actions != actions:
        raise ReplayError(
            f"turn {committed.turn}: the team acts {dict(actions)!r}, in the record {committed.actions!r}; the record "
            "is another version's"
        )
    environment.restore(committed.state)
    if environment.state_key() != committed.key:
        raise ReplayError(
            f"turn {committed.turn}: after its recorded state was restored the environment's key is "
            f"{environment.state_key()!r}, in the record {committed.key!r}: its 'restore' is not exact, or it is of "
            "another version"
        )
    return committed.step
