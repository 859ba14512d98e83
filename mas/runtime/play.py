"""Playing a team turn from its first agent to its action.

How an agent's output is chosen at a decision point is handed in (`Decide`): the runtime asks for one candidate,
a sampler draws many and compares them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping

import msgspec

from mas.core.environment import Environment, Observation
from mas.core.errors import AgentFailed, Halted, JournalError, MasError, ReplayError, RewardError, RunError
from mas.core.messages import Failure, Payload
from mas.core.naming import agent_of, local_name
from mas.core.role import View
from mas.core.tracing import in_environment
from mas.graph.plan import TeamPlan
from mas.runtime.flow import Flow
from mas.runtime.policies import policy_of
from mas.runtime.timing import Heard, JoinTimers, heard, in_waves, needs_steps
from mas.runtime.turn_replay_log import TurnReplayLog


class DecisionPoint(msgspec.Struct, frozen=True, kw_only=True):
    """A decision point: one agent is about to speak.

    Attributes:
        agent: its name, `worker[0]` for an instance of a mapped one.
        flow: the team turn as the agent begins.
        environment: the world as it stands; shared, not to be changed.
        observations: what every agent of the team sees.
        turn: team turn within the episode, from 0.
    """

    agent: str
    flow: Flow
    environment: Environment
    observations: Mapping[str, Observation]
    turn: int

    @property
    def view(self) -> View:
        """What the agent may know."""
        return self.flow.view(self.agent, self.observations[agent_of(self.agent)])


Decide = Callable[[DecisionPoint], Awaitable[Payload]]
Undo = Callable[[DecisionPoint, Payload], Awaitable[object]]
"""Compensates what an agent said at a point."""
OnFlow = Callable[[Flow, bool], None]
"""Told the flow of a team turn whenever outputs have joined, and (True) after joins whose time is over were expired."""


def view_names(plan: TeamPlan) -> dict[str, str]:
    """Agent -> environment view."""
    return {agent: role.spec.view or local_name(agent) for agent, role in plan.roles.items()}


def silent_agents(observations: Mapping[str, Observation]) -> tuple[str, ...]:
    """The agents that do not speak in this team turn."""
    return tuple(agent for agent, seen in observations.items() if seen.is_silent)


def look(plan: TeamPlan, environment: Environment) -> dict[str, Observation]:
    """What every agent of the team sees now."""
    with in_environment():
        return {agent: environment.observe(view) for agent, view in view_names(plan).items()}


async def play_turn(
    flow: Flow,
    environment: Environment,
    observations: Mapping[str, Observation],
    turn: int,
    decide: Decide,
    *,
    in_step: bool = False,
    undo: Undo | None = None,
    on_flow: OnFlow | None = None,
    log: TurnReplayLog | None = None,
) -> Flow:
    """Carry a team turn from `flow` to its end; agents that `flow` finds at work already decide with the first.

    An agent begins as soon as it can: a slow one delays only those that wait for it. Where every join is `all`, the
    result does not depend on who was quick. When the turn is over, agents still at work are cancelled.

    Args:
        in_step: wait for all agents of a wave before the next begins, so that decision points, too, do not depend on
            who was quick.
        undo: compensates an agent's output, for teams that declare it; None: nothing is compensated.
        on_flow: watches joins; None: they are not watched.
        log: in what order things happened in an earlier life, which they have again, and where it is written what
            happens now; None: the turn outlives no process.

    Raises:
        AgentFailed: an agent failed, and its failures are not isolated. RunError: no agent is ready or at work, and yet
            the turn is not over. ReplayError: the log is another turn's. JournalError: it cannot be written.
    """
    playing = _TeamTurn(flow, environment, observations, turn, decide, in_step or needs_steps(flow.plan), log)
    try:
        while not playing.flow.finished:
            playing.join(await playing.next_outputs(playing.begin()))
            if on_flow is not None:
                on_flow(playing.flow, False)
            playing.expire()
            if on_flow is not None:
                on_flow(playing.flow, True)
        if log is not None:
            await log.catch_up(playing.tasks)
    except _Fatal as failed:
        await playing.stop()
        raise await playing.failed(failed, undo) from failed.__cause__
    finally:
        await playing.stop()
    return playing.flow


def team_action(flow: Flow) -> str:
    """The team's action as text; empty (a pass) where the turn was not committed."""
    action = flow.action()
    return action.content if action is not None else ""


def seat_actions(flow: Flow, seats: Iterable[str]) -> dict[str, str]:
    """Of each of these seats, which the team plays, its action as text; empty (a pass) where it made none."""
    actions = {seat: flow.seat_action(seat) for seat in seats}
    return {seat: action.content if action is not None else "" for seat, action in actions.items()}


class _Fatal(Exception):
    """An agent's failure that ends the turn; its cause is the error."""

    def __init__(self, agent: str) -> None:
        super().__init__(agent)
        self.agent = agent


class _TeamTurn:
    """A team turn while it is played.

    With `in_step`, as in training, all outputs of a wave travel together: none is out of order.

    Attributes:
        tasks: agents at work, unless one is at work alone.
        last_idle_flow: the flow when no agent was at work last; said, begun: what happened since then.
        is_out_of_order: since then some agent has spoken before another that began with it or earlier.
        is_timing_dependent: since then timing has decided a join.
        late: joins whose time was over at the last output.
        spoken: all points and what was said there, in order, for teams with policies.
    """

    def __init__(
        self,
        flow: Flow,
        environment: Environment,
        observations: Mapping[str, Observation],
        turn: int,
        decide: Decide,
        in_step: bool,
        log: TurnReplayLog | None,
    ) -> None:
        self.flow = self.last_idle_flow = flow
        self._environment, self._observations, self._turn = environment, observations, turn
        self._decide, self._in_step = decide, in_step
        self.tasks: dict[str, asyncio.Task[Payload]] = {}
        self.said: dict[str, list[Payload]] = {}
        self.begun: dict[tuple[str, int], Heard] = {}
        self.is_out_of_order = self.is_timing_dependent = False
        self.late: tuple[str, ...] = ()
        self.spoken: list[tuple[DecisionPoint, Payload]] = []
        self._timers = JoinTimers() if flow.plan.timeouts else None
        self._log = log
        self._now_s = asyncio.get_running_loop().time if log is None else log.now

    def begin(self) -> list[DecisionPoint]:
        """Begin all agents that can; the points of those that were not asked yet, in declared order."""
        flow = self.flow
        for agent in flow.ready():
            flow = flow.begin(agent)
        self.flow = flow
        agents = flow.running()
        if not agents:
            raise RunError(f"team {flow.plan.spec.name!r} cannot go on in turn {self._turn}: no agent can act")
        return [
            DecisionPoint(
                agent=agent,
                flow=flow,
                environment=self._environment,
                observations=self._observations,
                turn=self._turn,
            )
            for agent in agents
            if agent not in self.tasks
        ]

    async def next_outputs(self, points: list[DecisionPoint]) -> list[tuple[str, Payload]]:
        """What is said next, in declared order where it comes at once.

        The one place that waits; nothing, where a join's time limit was over first.
        """
        if len(points) == 1 and not self.tasks and not self.is_out_of_order and not self.flow.plan.timeouts:
            if self._log is not None:
                self._log.peek()
            return [(points[0].agent, await self._speak(points[0]))]
        for point in points:
            self.begun[point.agent, point.flow.visits(point.agent)] = heard(point.flow, point.agent)
            self.tasks[point.agent] = asyncio.create_task(self._speak(point), name=f"decide {point.agent}")
        done = await self._wait()
        outputs = [(agent, self.tasks[agent].result()) for agent in done]
        for agent in done:
            del self.tasks[agent]
        return outputs

    async def _wait(self) -> list[str]:
        """The agents that have spoken now, or spoke next when the turn was recorded."""
        limits, timers = self.flow.plan.timeouts, self._timers
        left_s = timers.watch(self.flow.waiting_joins(), limits, self._now_s()) if timers else None
        recorded = None if self._log is None else self._log.next_round()
        if self._log is not None and timers:  # a wait that was recorded may be over only now
            left_s = timers.watch(self.flow.waiting_joins(), limits, self._now_s())
        if self._log is not None and recorded is not None:
            if recorded.spoke:
                await asyncio.wait([self._task(agent) for agent in recorded.spoke])
            self._log.take()
            self.late = recorded.expired
            return list(recorded.spoke)
        until = asyncio.FIRST_EXCEPTION if self._in_step and not timers else asyncio.FIRST_COMPLETED
        await asyncio.wait(self.tasks.values(), timeout=left_s, return_when=until)
        done = [agent for agent in self.flow.running() if self.tasks[agent].done()]
        self.late = timers.over(self._now_s()) if timers else ()
        if self._log is not None and (done or self.late) and all(self._is_settled(agent) for agent in done):
            await self._log.write(done, self.late)
        return done

    def _task(self, agent: str) -> "asyncio.Task[Payload]":
        if agent not in self.tasks:
            raise ReplayError(
                f"agent {agent!r} speaks next in the record of turn {self._turn}, at work are {list(self.tasks)}: the "
                "record is another team's, or of another version"
            )
        return self.tasks[agent]

    def _is_settled(self, agent: str) -> bool:
        """Whether the outcome is final; on resume, an agent that ended the turn is asked again."""
        error = self.tasks[agent].exception()
        return error is None or (isinstance(error, _Fatal) and self._is_undone(agent))

    def _is_undone(self, agent: str) -> bool:
        return policy_of(self.flow.plan.spec.policies, agent).on_failure == "compensate"

    def join(self, outputs: list[tuple[str, Payload]]) -> None:
        """Let outputs travel, in the order of waves unless timing has decided."""
        if not outputs:
            return
        was_uneven = self.is_out_of_order
        for agent, payload in outputs:
            self.flow = self.flow.complete(agent, payload)
        if not self.tasks and not was_uneven:
            self._mark_idle()
            return
        self.is_out_of_order = True
        for agent, payload in outputs:
            self.said.setdefault(agent, []).append(payload)
        is_even = self.is_timing_dependent
        if was_uneven and not self.is_timing_dependent:
            replayed = in_waves(self.last_idle_flow, self.said, self.begun)
            if replayed is None:
                self.is_timing_dependent = is_even = True
            else:
                self.flow, is_even = replayed
        if is_even and not self.tasks:
            self._mark_idle()

    def expire(self) -> None:
        """Let joins whose time is over wait no longer: timing has decided."""
        flow = self.flow
        for join in self.late:
            flow = flow.expire(join)
        if flow is self.flow:
            return
        self.flow, self.is_timing_dependent = flow, True
        if not self.tasks:
            self._mark_idle()

    async def stop(self) -> None:
        """Cancel the agents that are still at work, and wait until all have ended."""
        tasks = list(self.tasks.values())
        self.tasks.clear()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.gather(*tasks, return_exceptions=True)

    async def failed(self, fatal: _Fatal, undo: Undo | None) -> AgentFailed:
        """The one error of the turn; where the team says so, what was said is compensated first, the last first."""
        cause, policies = fatal.__cause__, self.flow.plan.spec.policies
        text = f"agent {fatal.agent!r} failed in turn {self._turn}: {type(cause).__name__}: {cause}"
        if self._log is not None:
            await self._log.failed(fatal.agent, self.flow.visits(fatal.agent), is_undone=self._is_undone(fatal.agent))
        if undo is None or not self._is_undone(fatal.agent):
            return AgentFailed(text)
        undone = []
        for point, payload in reversed(self.spoken):
            if policy_of(policies, point.agent).compensation is None:
                continue
            try:
                await undo(point, payload)
                undone.append(point.agent)
            except MasError as error:
                text += f". Not compensated: {point.agent!r}: {type(error).__name__}: {error}"
        return AgentFailed(f"{text}. Compensated: {undone}")

    async def _speak(self, point: DecisionPoint) -> Payload:
        """What the agent says; its failure, where failures of this agent are isolated."""
        policies = point.flow.plan.spec.policies
        try:
            payload = await self._decide(point)
        except (Halted, JournalError, ReplayError, RewardError):  # not the agent's failures
            raise
        except MasError as error:
            if policy_of(policies, point.agent).on_failure != "isolate":
                raise _Fatal(point.agent) from error
            payload = isolated(point, error)
        if policies:
            self.spoken.append((point, payload))
        return payload

    def _mark_idle(self) -> None:
        self.last_idle_flow, self.is_out_of_order, self.is_timing_dependent = self.flow, False, False
        self.said.clear()
        self.begun.clear()


def isolated(point: DecisionPoint, error: MasError) -> Failure:
    """An agent's failure as its output, on the route that its role takes for what does not parse."""
    role = point.flow.plan.roles[agent_of(point.agent)]
    route = getattr(role, "failure_route", role.spec.failure_route)  # a role's type may have a route of its own
    return Failure(text="", cause=f"{type(error).__name__}: {error}", chosen_route=route)
