"""Playing the episodes of a team: turn after turn, with an environment that listens on the bus like an agent.

What is played can be stopped: `RequestGate` lets it come to a good place (drain), or ends it now (cancel).
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType

from mas.core.concurrency import together
from mas.core.environment import Caller, Environment, Observation, Step
from mas.core.errors import Halted, RunError
from mas.core.messages import Payload
from mas.core.records import Attempt
from mas.graph.plan import TeamPlan
from mas.runtime.agent_client import AgentClient
from mas.runtime.agents import EnvironmentAgent, callers
from mas.runtime.flow import Flow
from mas.runtime.flow_state import NO_PAST
from mas.runtime.payloads import ObserveReply, ObserveRequest, StepReply, StepRequest
from mas.runtime.placement import ENVIRONMENT
from mas.runtime.play import Decide, play_turn, seat_actions, silent_agents, view_names
from mas.runtime.policies import Accounts
from mas.runtime.replay_events import Setting
from mas.runtime.replay_log import PlayReplayLog, ReplayLog
from mas.runtime.spans import TeamSpans
from mas.runtime.turn_replay_log import restored

_LEAVE_S = 5.0
"""How long `cancel` waits for tasks that ignore their cancellation."""


class RequestGate:
    """Counts what runs, refuses what comes too late, and ends what does not end by itself."""

    def __init__(self) -> None:
        self.is_draining = False
        self._open: set[asyncio.Timeout] = set()
        self._left = asyncio.Event()

    @asynccontextmanager
    async def passing(self, what: str) -> AsyncIterator[None]:
        """Something that runs; `cancel` ends it.

        Raises:
            Halted: it was cancelled.
        """
        limit = asyncio.timeout(None)
        try:
            async with limit:
                self._open.add(limit)
                yield
        except TimeoutError:
            if not limit.expired():
                raise
            raise Halted(f"{what} was cancelled") from None
        finally:
            self._open.discard(limit)
            if not self._open:
                self._left.set()

    def check(self, what: str) -> None:
        """Refuse to begin.

        Raises:
            Halted: it is too late.
        """
        if self.is_draining:
            raise Halted(f"{what} does not begin: the team is stopping")

    async def drain(self, timeout_s: float | None) -> None:
        """Let nothing new begin, and wait for what runs; cancel what is not over after `timeout_s` (None: wait)."""
        self.is_draining = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._empty()
        except TimeoutError:
            await self.cancel()

    async def cancel(self) -> None:
        """Let nothing new begin, end what runs, and wait until it has ended, five seconds at most."""
        self.is_draining = True
        now = asyncio.get_running_loop().time()
        for limit in self._open:
            if limit.when() is None:
                limit.reschedule(now)
        try:
            async with asyncio.timeout(_LEAVE_S):
                await self._empty()
        except TimeoutError:
            return  # what is left will end when its task does

    async def _empty(self) -> None:
        while self._open:
            self._left.clear()
            await self._left.wait()


OnTurn = Callable[[int, Flow, Step], None]
TeamTurn = Callable[..., Awaitable[Flow]]
"""`play_turn` with all that is the same in each turn of an episode."""
OpponentPolicy = Callable[[Environment, int], Awaitable[str]]
"""The action of its seat as text, in an environment that is not to be changed, in the team turn of this number."""
OpponentPolicies = Mapping[str, OpponentPolicy]
"""Seat -> its policy, of the seats that the team leaves to others."""
NO_OPPONENTS: OpponentPolicies = MappingProxyType({})


class EpisodeRunner:
    """Plays episodes through a client. `TeamRuntime` is one, with its agents on the bus.

    Args:
        client: requests to agents and the environment; accounts: their budgets; gate: whether they may begin.
        spans: of what happens; None: it is not traced. log: where it is written; None: nowhere.
    """

    def __init__(
        self,
        plan: TeamPlan,
        *,
        client: AgentClient,
        accounts: Accounts,
        gate: RequestGate,
        spans: TeamSpans | None,
        log: ReplayLog | None,
    ) -> None:
        self.world = EnvironmentAgent()
        self.plan = plan
        self.log = log
        self._client = client
        self._accounts = accounts
        self._gate = gate
        self._spans = spans
        self._views = view_names(plan)

    async def play(
        self,
        episode: str,
        environment: Environment,
        decide: Decide,
        on_turn: OnTurn,
        *,
        on_attempt: Callable[[Attempt], None] | None = None,
        in_step: bool = False,
        settings: Mapping[str, Setting] = MappingProxyType({}),
        turns: int | None = None,
        opponents: OpponentPolicies = NO_OPPONENTS,
    ) -> None:
        """Play an environment that was reset to its end; it takes part through the bus like an agent.

        With a log an episode that was begun before is replayed from the record, as far as it goes: no agent is asked,
        and the environment takes the states that it had without a step. `decide` and `on_turn` are called as then.

        Args:
            on_turn: called with every team turn after it was committed.
            on_attempt: called with every attempt to ask an agent that did not answer at the first one, and with every
                compensation.
            in_step: see `play_turn`.
            settings: what else the play depends on, such as a seed; it resumes only with the same. For the log.
            turns: most team turns, at least 1, after which the play ends wherever it is; None: to its end.
            opponents: policies of seats that the team leaves to others; not with a log, which would not have their
                moves.

        Raises:
            AgentFailed: an agent failed, and its failures are not isolated. Halted: the team was drained or cancelled.
            RunError: a seat other than the team's has to move. JournalError: the log has another play of this name, or
            cannot be written. ReplayError: this play does something else than the recorded one.
        """
        if opponents and self.log is not None:
            raise RunError("opponents move where no log can write it down: play without a log, or with all seats")
        self._gate.check(f"episode {episode!r}")
        async with self._gate.passing(f"episode {episode!r}"):
            self.world.episodes[episode] = environment
            if on_attempt is not None:
                self._client.notes[episode] = on_attempt
            try:
                undo = partial(self._client.undo, episode=episode)
                team_turn = partial(play_turn, decide=decide, in_step=in_step, undo=undo)
                loop = partial(self._play, episode, environment, team_turn, on_turn, turns, opponents)
                if self.log is None:
                    played = loop(None)
                else:
                    every = {**settings, "in_step": in_step} | ({} if turns is None else {"turns": turns})
                    played = self._record(self.log, episode, environment, loop, every)
                await (played if self._spans is None else self._spans.episode(episode, played))
            finally:
                del self.world.episodes[episode]
                self._client.notes.pop(episode, None)
                self._accounts.end(episode)

    async def _record(
        self,
        log: ReplayLog,
        episode: str,
        environment: Environment,
        loop: Callable[[PlayReplayLog], Awaitable[None]],
        settings: Mapping[str, Setting],
    ) -> None:
        """Play with a log."""
        is_timed = bool(self.plan.timeouts) or self._accounts.is_timed
        async with log.play(self.plan, episode, environment, settings, ticks=is_timed) as play:
            self._client.logs[episode] = play
            try:
                await loop(play)
                await play.end()
            finally:
                del self._client.logs[episode]

    async def _play(
        self,
        episode: str,
        environment: Environment,
        team_turn: TeamTurn,
        on_turn: OnTurn,
        turns: int | None,
        opponents: OpponentPolicies,
        play: PlayReplayLog | None,
    ) -> None:
        turn, plan, past = 0, self.plan, NO_PAST
        while turn != turns and (seats := environment.to_move()):
            own = tuple(seat for seat in seats if seat not in opponents)
            if not set(own) <= plan.starting.keys():
                raise RunError(f"team {plan.spec.name!r} plays {', '.join(plan.starting)}, to move: {seats}")
            self._gate.check(f"turn {turn} of episode {episode!r}")
            self._accounts.begin_turn(episode)
            observations = await self._observe(episode, turn)
            theirs = await opponent_actions(opponents, seats, environment, turn)
            begin = Flow.start(plan, own, silent_agents(observations), past)
            log = None if play is None else play.of_turn(turn)
            if log is not None:
                await log.begin(observations)
            on_flow = None if self._spans is None else self._spans.joins(episode)
            flow = await team_turn(begin, environment, observations, turn, on_flow=on_flow, log=log)
            actions = seat_actions(flow, own) | theirs
            if log is not None and log.committed is not None:
                step = restored(log.committed, actions, environment)
            else:
                step = await self._act(episode, turn, actions, callers(environment, flow, actions))
                if log is not None:
                    await log.commit(actions, step, environment)
            on_turn(turn, flow, step)
            turn, past = turn + 1, flow.remembered(observations)

    async def _observe(self, episode: str, turn: int) -> Mapping[str, Observation]:
        """What every agent sees, asked over the bus."""
        views = tuple(dict.fromkeys(self._views.values()))
        payload = ObserveRequest.model_construct(episode=episode, views=views)
        seen = await self._ask_world(payload, episode, turn)
        if not isinstance(seen, ObserveReply):
            raise RunError(f"the environment answered {seen.kind!r} to 'look'")
        return {agent: seen.observations[view] for agent, view in self._views.items()}

    async def _act(self, episode: str, turn: int, actions: dict[str, str], found: dict[str, Caller]) -> Step:
        """Act in the episode's environment over the bus."""
        payload = StepRequest.model_construct(episode=episode, actions=actions, callers=found)
        answer = await self._ask_world(payload, episode, turn)
        if not isinstance(answer, StepReply):
            raise RunError(f"the environment answered {answer.kind!r} to 'act'")
        return answer.step

    async def _ask_world(self, payload: Payload, episode: str, turn: int) -> Payload:
        answer = self._client.request(ENVIRONMENT, payload, episode, turn)
        return await (answer if self._spans is None else self._spans.world(payload.kind, episode, turn, answer))


async def opponent_actions(
    opponents: OpponentPolicies, moving: Iterable[str], environment: Environment, turn: int
) -> dict[str, str]:
    """What opponents do in a step, seat by seat; they see it as it begins, as all do who move at once."""
    seats = [seat for seat in moving if seat in opponents]
    said = await together([opponents[seat](environment, turn) for seat in seats], "opponent") if seats else []
    return dict(zip(seats, said, strict=True))
