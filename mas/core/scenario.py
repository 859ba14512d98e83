"""The contracts of a scenario and of a task source, as training and the command line use them.

A task source says which tasks a step of training plays, given how the earlier ones went. Leaves out on purpose: where
an arm's tasks come from. A source knows arms by name and tasks by number.
"""

from collections.abc import Iterator, Mapping, Sequence, Set
from typing import Any, Literal, Protocol, runtime_checkable

import msgspec

from mas.core.environment import Environment, Observation, Reward, Task
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
        """Endless (prompt, completion) pairs for the tiny base: an expert's, or a noisy teacher's who knows part of
        it."""

    def fingerprint(self) -> str:
        """Equal for scenarios that make the same tasks and demonstrations."""


class ScenarioWrapper:
    """What a scenario around another one leaves to that one. Satisfies `Scenario`."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario

    @property
    def name(self) -> str:
        return self._scenario.name

    @property
    def reward(self) -> Reward:
        return self._scenario.reward

    @property
    def teams(self) -> Mapping[str, TeamSpec]:
        return self._scenario.teams

    def environment(self) -> Environment:
        return self._scenario.environment()

    def task(self, split: Split, index: int) -> Task:
        return self._scenario.task(split, index)

    def demonstrations(self, seed: int, *, expert: bool) -> Iterator[tuple[str, str]]:
        return self._scenario.demonstrations(seed, expert=expert)

    def fingerprint(self) -> str:
        return self._scenario.fingerprint()


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


class Pick(msgspec.Struct, frozen=True):
    """One task to play: the `index`-th of the training split of an arm, which is a scenario with options."""

    arm: str
    index: int


class TaskOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How a picked task went. A task of which no episode could be played to its end has none.

    Attributes:
        success: share of its episodes that were solved. Tree sampling plays one, and with `commit_best` its best
            candidates, so that it flatters.
        reward: what the environment paid in an episode, mean.
        flat: share of the trained roles' groups whose rewards are all equal, which teach nothing; 1 where nothing was
            compared.
    """

    pick: Pick
    success: float
    reward: float
    flat: float


@runtime_checkable
class TaskSource(Protocol):
    """Deterministic: what it draws depends on its options, the run's seed, the step, and what it was told.

    A step draws once, and again for every task that is replaced; then it tells once.
    """

    def draw(self, step: int, count: int, without: Set[Pick] = frozenset()) -> Sequence[Pick]:
        """The tasks of a step, as many as asked for.

        Args:
            step: how many are done; a number of its own for every further draw of one step.
            without: drawn in this step already, empty in its first draw; drawn again only where none else is left.
        """

    def tell(self, outcomes: Sequence[TaskOutcome]) -> None:
        """How all tasks of the step went, in the order in which they were drawn."""

    def state(self) -> Mapping[str, Any]:
        """All that the next draw depends on, as JSON can hold it, or nothing; asked between `tell` and `draw`."""
        return {}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Go on as the source did whose `state` this is.

        Raises:
            KeyError, TypeError, ValueError: it is no state of such a source.
        """

    def metrics(self) -> Mapping[str, float]:
        """Where it stands, for the log; by default nothing."""
        return {}


@runtime_checkable
class Finite(Protocol):
    """A scenario that has so many tasks and no more, such as the rows of a file."""

    def size(self, split: Split) -> int:
        """How many tasks a split has: those below this index."""


@runtime_checkable
class SplitByContent(Protocol):
    """A scenario in which a task's content decides on its split, whatever index or options it was made with."""

    def content_of(self, task: Task) -> str:
        """What tells it from other tasks of this scenario."""

    def holds_out(self, content: str) -> bool:
        """Whether a task with this content belongs to the evaluation."""
