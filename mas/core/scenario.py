"""The contract of a scenario, as training and the command line use it."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Literal, Protocol, runtime_checkable

import msgspec

from mas.core.environment import Environment, Observation, Task
from mas.core.reward import Reward
from mas.core.team import TeamSpec

Split = Literal["train", "eval"]


@runtime_checkable
class Scenario(Protocol):
    """Where a team works: an environment, tasks in disjoint splits, teams, rewards, baselines."""

    @property
    def name(self) -> str:
        """How configurations call it."""

    @property
    def reward(self) -> Reward:
        """The roles' own terms."""

    @property
    def teams(self) -> Mapping[str, TeamSpec]:
        """At least `team` and `solo` (one agent that sees all that the team sees together)."""

    def environment(self) -> Environment:
        """A fresh environment, not yet reset."""

    def task(self, split: Split, index: int) -> Task:
        """The index-th task of a split; the two splits share no task."""

    def demonstrations(self, seed: int, *, expert: bool) -> Iterator[tuple[str, str]]:
        """Endless (prompt, completion) pairs for the tiny base: an expert's, or a novice's who knows part of it."""

    def fingerprint(self) -> str:
        """Equal for scenarios that make the same tasks and demonstrations."""


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """One of all decisions that a game can come to: an information state, which is all that the seat was told.

    Attributes:
        key: its name among them; legal: the actions to choose from, as text.
        observation: what the seat's view shows there.
    """

    key: str
    seat: str
    observation: Observation
    legal: tuple[str, ...]


@runtime_checkable
class Solvable(Protocol):
    """A scenario beside `Scenario` in which a policy can be measured exactly, as a game small enough to be walked
    through."""

    def decisions(self) -> Sequence[Decision]:
        """All decisions of all seats; empty: with these options there are too many."""

    def solve(self, policy: Mapping[str, Mapping[str, float]]) -> Mapping[str, float]:
        """Named measures of a policy, which says for every decision's key how likely each legal action is."""


@runtime_checkable
class Mixable(Solvable, Protocol):
    """A scenario beside `Scenario` whose game can be played out exactly, and in which policies can be mixed."""

    def outcomes(self, policy: Mapping[str, Mapping[str, float]]) -> Sequence[tuple[tuple[float, ...], float]]:
        """What each seat gets and how likely that is, over all ends of the game, if all seats play a policy."""

    def mixed(
        self, seat: str, policies: Sequence[Mapping[str, Mapping[str, float]]], shares: Sequence[float]
    ) -> Mapping[str, Mapping[str, float]]:
        """The one policy of a seat that nobody can tell from drawing, once per game, one of several by their shares."""
