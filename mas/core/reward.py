"""The contract of rewards: named terms, kept apart until the advantage."""

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

import msgspec

from mas.core.environment import Environment
from mas.core.errors import RewardError
from mas.core.messages import Payload

LARGEST = 1e30
"""The largest absolute value of a term that is paid: sums, weights and squares of such terms stay finite."""


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One output to be judged.

    Attributes:
        agent: who spoke: its name, `worker[1]` for the second instance of a mapped one, as in `DecisionPoint`.
            `mas.core.naming.agent_of` gives the agent. Its role tells less: several agents may have one role.
        environment: the world as it stood when the agent spoke. Not to be changed.
        output: what the agent said, possibly a `Failure`.
        before: the last output of every agent in this team turn before the move, by its name without a number; a
            mapped agent has none before its last instance has spoken, then a list.
        after: the same when the team turn ended; empty where it was not played out.
    """

    agent: str
    role: str
    environment: Environment
    output: Payload
    before: Mapping[str, Payload]
    after: Mapping[str, Payload]


@runtime_checkable
class Reward(Protocol):
    """A role's own terms; the team's terms are what the environment pays to the team's seat."""

    @property
    def terms(self) -> tuple[str, ...]:
        """Names of all own terms."""

    def own(self, move: Move) -> Mapping[str, float]:
        """Named terms of this move, a subset of `terms`; empty where the role has none. Pure."""


def is_bounded(value: float, largest: float = LARGEST) -> bool:
    """Whether |value| <= largest, which no NaN and no infinity is."""
    return abs(value) <= largest


def check_finite(terms: Mapping[str, float], source: str, largest: float = LARGEST) -> None:
    """Refuse rewards that compare with nothing or whose squares overflow, where they enter a record.

    Args:
        source: who paid them, as the error names it.

    Raises:
        RewardError: one of them is NaN, infinite, or larger than `largest` in absolute value.
    """
    for name, value in terms.items():
        if not is_bounded(value, largest):
            raise RewardError(
                f"{source} paid {name}={value}: a reward must be a finite number between {-largest:g} and "
                f"{largest:g}. Correct what computes {name}, or bound it"
            )
