"""What a play was worth: to the team, and to a person by the own terms of the role that the person plays."""

from collections.abc import Mapping

from mas.core.environment import Environment, Move, Reward
from mas.core.messages import Payload
from mas.core.naming import agent_of
from mas.runtime.flow import Flow
from mas.runtime.play import DecisionPoint


class OwnTerms:
    """The own terms of what people say in a play.

    Args:
        people: agent -> the role that its reward is paid for.

    Attributes:
        paid: agent -> summed own terms so far, of those that were paid any.
    """

    def __init__(self, reward: Reward, people: Mapping[str, str]) -> None:
        self._reward, self._people = reward, dict(people)
        self._said: list[tuple[DecisionPoint, Environment, Payload]] = []
        self.paid: dict[str, dict[str, float]] = {}

    def heard(self, point: DecisionPoint, payload: Payload) -> None:
        """Somebody has spoken; of a person it is judged when the turn is over."""
        if agent_of(point.agent) in self._people:
            self._said.append((point, point.environment.clone(), payload))

    def on_turn(self, flow: Flow) -> None:
        """The turn is over, and the environment has moved on."""
        for point, environment, payload in self._said:
            agent = agent_of(point.agent)
            move = Move(
                agent=point.agent,
                role=self._people[agent],
                environment=environment,
                output=payload,
                before=point.flow.outputs,
                after=flow.outputs,
            )
            for name, value in self._reward.own(move).items():
                paid = self.paid.setdefault(agent, {})
                paid[name] = paid.get(name, 0.0) + value
        self._said.clear()


def scored(terms: Mapping[str, float]) -> str:
    """A sum and its parts: `1.5 (right +1, calls +0.5)`."""
    parts = ", ".join(f"{name} {value:+g}" for name, value in terms.items())
    return f"{sum(terms.values()):g}" + (f" ({parts})" if parts else "")


def measured(values: Mapping[str, float]) -> str:
    """Named numbers in a line, in order of their names."""
    return ", ".join(f"{name} {values[name]:g}" for name in sorted(values))
