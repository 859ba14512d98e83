"""Playing: a team turn from its first agent to its action, and an episode from its first turn to its last.

How an agent's output is chosen at a decision point is handed in (`Decide`): the runtime asks for one candidate,
a sampler draws many and compares them.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping

import msgspec

from mas.core.environment import Environment, Observation, Step
from mas.core.messages import Payload
from mas.core.role import View
from mas.graph.plan import Plan
from mas.runtime.flow import Flow


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """A decision point: one agent is about to speak.

    Attributes:
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
            observation=self.observations[self.agent],
            messages=self.flow.messages(self.agent),
            own=self.flow.own(self.agent),
        )


Decide = Callable[[Point], Awaitable[Payload]]
Act = Callable[[Mapping[str, str]], Awaitable[Step]]


def view_names(plan: Plan) -> dict[str, str]:
    """Agent -> environment view."""
    return {agent: role.spec.view or agent for agent, role in plan.roles.items()}


def look(plan: Plan, environment: Environment) -> dict[str, Observation]:
    """What every agent of the team sees now."""
    return {agent: environment.observe(view) for agent, view in view_names(plan).items()}


async def play_turn(
    flow: Flow, environment: Environment, observations: Mapping[str, Observation], turn: int, decide: Decide
) -> Flow:
    """Carry a team turn from `flow` to its end. Agents that are ready together decide together."""
    while not flow.finished:
        ready = flow.ready()
        if len(ready) == 1:
            flow = flow.begin(ready[0])
            point = Point(agent=ready[0], flow=flow, environment=environment, observations=observations, turn=turn)
            flow = flow.complete(ready[0], await decide(point))
        else:
            flow = await _decide_together(flow, ready, environment, observations, turn, decide)
    return flow


async def _decide_together(
    flow: Flow,
    ready: tuple[str, ...],
    environment: Environment,
    observations: Mapping[str, Observation],
    turn: int,
    decide: Decide,
) -> Flow:
    """A fan-out: each agent's own branch of the flow is what it decides on; outputs join in declared order."""
    begun = flow
    for agent in ready:
        begun = begun.begin(agent)
    async with asyncio.TaskGroup() as group:
        tasks = {
            agent: group.create_task(
                _await(
                    decide(
                        Point(agent=agent, flow=begun, environment=environment, observations=observations, turn=turn)
                    )
                ),
                name=f"decide-{agent}",
            )
            for agent in ready
        }
    for agent, task in tasks.items():
        begun = begun.complete(agent, task.result())
    return begun


async def _await(payload: Awaitable[Payload]) -> Payload:
    return await payload


def team_action(flow: Flow) -> str:
    """The team's action as text; empty (a pass) where the turn was not committed."""
    action = flow.action()
    return action.content if action is not None else ""
