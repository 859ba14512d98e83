"""A decision point of a team turn, and the callbacks of a team turn."""

from collections.abc import Awaitable, Callable, Mapping

import msgspec

from mas.core.environment import Environment, Observation
from mas.core.messages import Payload
from mas.core.naming import agent_of, local_name
from mas.core.role import View
from mas.core.tracing import in_environment
from mas.graph.plan import TeamPlan
from mas.runtime.flow import Flow


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
