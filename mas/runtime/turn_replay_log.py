"""The record of one team turn: calls and the order of its tokens. `PlayRecord` writes the events of a play."""

import asyncio
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence

import msgspec

from mas.bus.plays import Plays
from mas.bus.wire import pack
from mas.core.environment import Environment, Observation, Step
from mas.core.errors import JournalError, Malformed, MasError, ReplayError
from mas.core.messages import Payload
from mas.runtime.payloads import Candidate
from mas.runtime.policies import BudgetAccount, Charge, Spent
from mas.runtime.replay_events import (
    CallEvent,
    Committed,
    DroppedEvent,
    Event,
    GaveUp,
    Round,
    TurnBegan,
    failure_of,
    fingerprint,
)

_NOTHING = Spent()


Visit = tuple[int, str, int]
"""Turn, agent, and how often it has spoken before."""


class PlayRecord:
    """Writes the events of one play, and knows how long it was played.

    Args:
        play: its id.
        played_s: how long it was played in earlier lives, at least.

    Attributes:
        is_undone: its turn failed, and what was said is compensated.
        is_over: its end is written.
    """

    def __init__(self, plays: Plays, play: str, played_s: float) -> None:
        self.id = play
        self.played_s = played_s
        self.is_over = False
        self.is_undone = False
        self._plays = plays
        self._now = asyncio.get_running_loop().time
        self._live_since: float | None = None

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


class Call(msgspec.Struct, kw_only=True):
    """One question to an agent, or to its stand-in, that is made now.

    Attributes:
        id: of its message, the same in every life.
        visit, number: the agent's visit that asks, and the number of the call in it, from 1.
        name, asked: who is asked, and the fingerprint of the question.
        began: when it was asked, in seconds that the play had been played.
    """

    id: str
    visit: Visit
    number: int
    name: str
    asked: str
    began: float = 0.0


Make = Callable[[str, Charge], Awaitable[tuple[Candidate, ...]]]
"""Makes a call: given the `message_id` and the `charge` of `AgentClient.request` and `spend`."""


class TurnReplayLog:
    """One team turn of a play. `committed`: the step that ended it, None while it is played."""

    def __init__(self, play: PlayRecord, turn: int) -> None:
        self.play, self.turn = play, turn
        self.committed: Committed | None = None
        self._began: TurnBegan | None = None
        self._rounds: deque[Round] = deque()
        self._calls: dict[tuple[Visit, int], CallEvent] = {}
        self._dropped: set[tuple[Visit, int]] = set()
        self._lost: defaultdict[Visit, list[CallEvent]] = defaultdict(list)
        self._made: dict[Visit, int] = {}
        self._said: dict[tuple[Visit, int], asyncio.Event] = {}
        self._before: dict[tuple[Visit, int], asyncio.Event] = {}
        self._live = asyncio.Event()
        self._at = 0.0

    def load(self, event: Event) -> None:
        """Add an event of an earlier life."""
        if isinstance(event, TurnBegan):
            self._began = event
        elif isinstance(event, Round):
            self._rounds.append(event)
        elif isinstance(event, Committed):
            self.committed = event
        elif isinstance(event, CallEvent):
            self._calls[(event.turn, event.agent, event.visit), event.number] = event
        elif isinstance(event, DroppedEvent):
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
        """Seconds that the play had been played at this place of the record, or has been now."""
        return self.play.clock_s() if self._live.is_set() else self._at

    def peek(self) -> Round | None:
        """The next round of the record; None: there is none any more, and from now on the turn is live."""
        if self._rounds:
            return self._rounds[0]
        if not self._live.is_set() and self.committed is None:
            self._live.set()
            self.play.go_live()
        return None

    def next_round(self) -> Round | None:
        """As `peek`, where several agents are at work or a join waits.

        Raises:
            ReplayError: the recorded turn was over here.
        """
        recorded = self.peek()
        if recorded is None and self.committed is not None:
            raise ReplayError(
                f"turn {self.turn} of play {self.play.id!r} continues after its recorded end: the record "
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
        """The turn fails with this agent; on resume it is asked again.

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

    def call(self, agent: str, visit: int, name: str, asked: str) -> Call:
        """The next call of an agent's visit. `name`: the agent, or its fallback; `asked`: the request's fingerprint."""
        key = (self.turn, agent, visit)
        number = self._made[key] = self._made.get(key, 0) + 1
        message_id = f"{self.play.id}/{self.turn}/{agent}/{visit}/{number}"
        return Call(id=message_id, visit=key, number=number, name=name, asked=asked)

    async def outcome(
        self, call: Call, make: Make, accounts: Sequence[BudgetAccount] = (), most: Spent = _NOTHING
    ) -> tuple[Candidate, ...]:
        """What is recorded of a call, or what comes of it now, which is then recorded.

        Args:
            accounts: what was spent is taken from them.
            most: what the call reserves there when it is made.

        Raises:
            ReplayError: something else was asked. JournalError: the outcome cannot be written.
        """
        known = await self._known(call, accounts, most)
        if known is not None:
            return known.outcome()
        charge = Charge()
        try:
            candidates = await make(call.id, charge)
        except (JournalError, ReplayError):  # no outcome of the call
            raise
        except MasError as error:
            await self.play.write(self._event(call, charge.spent, error=failure_of(error)))
            raise
        try:
            await self.play.write(self._event(call, charge.spent, candidates))
        except asyncio.CancelledError:
            turn, agent, visit = call.visit
            self.play.put(DroppedEvent(turn=turn, agent=agent, visit=visit, number=call.number))
            raise
        return candidates

    def _event(
        self, call: Call, spent: Spent, candidates: tuple[Candidate, ...] = (), error: tuple[str, str] | None = None
    ) -> CallEvent:
        turn, agent, visit = call.visit
        return CallEvent(
            turn=turn,
            agent=agent,
            visit=visit,
            number=call.number,
            asked=call.asked,
            name=call.name,
            began=call.began,
            at=self.play.clock_s(),
            spent=spent,
            candidates=candidates,
            error=error,
        )

    async def _known(self, call: Call, accounts: Sequence[BudgetAccount], most: Spent) -> CallEvent | None:
        """What is recorded of a call, None where it is to be made now; what was spent is taken from the accounts."""
        known = await self._recorded((call.visit, call.number), accounts, most)
        for earlier in (*self._lost.pop(call.visit, []), *(() if known is None else (known,))):
            for account in accounts:
                account.take(earlier.spent, ago_s=self.play.clock_s() - earlier.began)
        call.began = self.play.clock_s()
        if known is not None and (known.asked, known.name) != (call.asked, call.name):
            turn, agent, _ = call.visit
            raise ReplayError(
                f"agent {agent!r} is asked something else in turn {turn} of play {self.play.id!r} than when it was "
                "recorded: another seed, temperature or version, or `decide` is not deterministic"
            )
        return known

    async def _recorded(
        self, key: tuple[Visit, int], accounts: Sequence[BudgetAccount], most: Spent
    ) -> CallEvent | None:
        """What came of a call, as soon as it is its turn; None: nothing is known of it, and it is to be made now.

        What is not known was reserved nevertheless, and what was dropped was paid; if it is cancelled here, as it was
        then, that stays spent.

        Raises:
            ReplayError: the record continues without it.
        """
        known = self._calls.get(key)
        if known is None:
            agent = key[0][1]
            is_passed = self.committed is not None and not self._rounds
            if is_passed or any(agent in recorded.spoke for recorded in self._rounds):
                raise ReplayError(
                    f"agent {agent!r} is asked in turn {self.turn} of play {self.play.id!r} what it was not asked when "
                    "it was recorded: `decide` is not deterministic, or of another version"
                )
            await self._held(accounts, most)
            return None
        if key in self._dropped:
            await self._held(accounts, known.spent)
            return known
        if key in self._before:
            await self._before[key].wait()
        self._said[key].set()
        return known

    async def _held(self, accounts: Sequence[BudgetAccount], spent: Spent) -> None:
        """Wait until the record is played to its end."""
        for account in accounts:
            account.take(spent)
        await self._live.wait()
        for account in accounts:
            account.give_back(spent, Spent())


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
