"""Playing: a team turn from its first agent to its action, and an episode from its first turn to its last.

How an agent's output is chosen at a decision point is handed in (`Decide`): the runtime asks for one candidate,
a sampler draws many and compares them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from mas.core.environment import Environment, Observation
from mas.core.errors import RunError
from mas.core.messages import Payload
from mas.core.naming import agent_of, local_name
from mas.core.role import View
from mas.core.together import together
from mas.graph.plan import Plan
from mas.runtime.flow import Flow
from mas.runtime.timers import JoinTimers


class Point(msgspec.Struct, frozen=True, kw_only=True):
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
        return View(
            observation=self.observations[agent_of(self.agent)],
            messages=self.flow.messages(self.agent),
            own=self.flow.own(self.agent),
        )


Decide = Callable[[Point], Awaitable[Payload]]


def view_names(plan: Plan) -> dict[str, str]:
    """Agent -> environment view."""
    return {agent: role.spec.view or local_name(agent) for agent, role in plan.roles.items()}


def look(plan: Plan, environment: Environment) -> dict[str, Observation]:
    """What every agent of the team sees now."""
    return {agent: environment.observe(view) for agent, view in view_names(plan).items()}


async def play_turn(
    flow: Flow, environment: Environment, observations: Mapping[str, Observation], turn: int, decide: Decide
) -> Flow:
    """Carry a team turn from `flow` to its end.

    Agents that are ready together decide together, each on its own branch of the flow; outputs join in declared
    order. Agents that `flow` finds at work already (the other branches of a fan-out) decide with them. Where a join
    has a time limit, outputs join as they come, and who is still at work when the turn is over is stopped.

    Raises:
        RunError: nobody is ready or at work, and yet the turn is not over.
    """
    if flow.plan.timeouts:
        return await _play_timed(flow, environment, observations, turn, decide)
    while not flow.finished:
        for agent in flow.ready():
            flow = flow.begin(agent)
        agents = flow.running()
        if not agents:
            raise RunError(f"team {flow.plan.spec.name!r} stands still in turn {turn}: nobody can act")
        points = [
            Point(agent=agent, flow=flow, environment=environment, observations=observations, turn=turn)
            for agent in agents
        ]
        payloads = await together((decide(point) for point in points), "decide")
        for agent, payload in zip(agents, payloads, strict=True):
            flow = flow.complete(agent, payload)
    return flow


async def _play_timed(
    flow: Flow, environment: Environment, observations: Mapping[str, Observation], turn: int, decide: Decide
) -> Flow:
    timers = JoinTimers()
    tasks: dict[str, asyncio.Task[Payload]] = {}
    now_s = asyncio.get_running_loop().time
    try:
        while not flow.finished:
            for agent in flow.ready():
                flow = flow.begin(agent)
            for agent in flow.running():
                if agent not in tasks:
                    point = Point(agent=agent, flow=flow, environment=environment, observations=observations, turn=turn)
                    tasks[agent] = asyncio.create_task(_decided(decide, point), name=f"decide {agent}")
            left_s = timers.watch(flow, now_s())
            await asyncio.wait(tasks.values(), timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
            for agent in [agent for agent in flow.running() if tasks[agent].done()]:
                flow = flow.complete(agent, tasks.pop(agent).result())
            flow = timers.expired(flow, now_s())
    finally:
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
    return flow


async def _decided(decide: Decide, point: Point) -> Payload:
    return await decide(point)


def team_action(flow: Flow) -> str:
    """The team's action as text; empty (a pass) where the turn was not committed."""
    action = flow.action()
    return action.content if action is not None else ""
