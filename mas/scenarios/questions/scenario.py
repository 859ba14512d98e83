"""A scenario whose tasks are so many questions and no more."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError
from mas.core.reward import Reward
from mas.core.scenario import Split
from mas.core.seeds import digest
from mas.core.team import Constraint, RoleSpec, TeamSpec
from mas.graph.load import load_team
from mas.scenarios.questions.environment import QuestionEnvironment
from mas.scenarios.questions.experts import RECIPE, demonstrations, expert
from mas.scenarios.questions.records import Questions
from mas.scenarios.questions.reward import QuestionReward
from mas.scenarios.questions.reward_function import RewardFunction
from mas.scenarios.questions.scoring import LETTERS, Scorer, number_regex

_SOLVERS = ("solver", "reviser", "solo")


def room(questions: Questions, scorer: Scorer) -> int:
    """Tokens that are enough for the longest answer and its end; 1 where all answers are one character."""
    longest = max(len(one.answer) for split in questions.values() for one in split)
    return 1 if scorer == "choice" or longest == 1 else longest + 1


@dataclass(frozen=True, slots=True)
class QuestionScenario:
    """Satisfies `mas.core.scenario.Scenario`, and `Finite` and `SplitByContent` of `mas.core.tasks`.

    Attributes:
        questions: of each split, none of them in both.
        max_tokens: of what solvers say. skill: of the novice that the tiny base learns from.
        own: the user's reward function instead of the scorer.
        is_brief: whether `max_tokens` leaves room for the answer alone; then models that chat are held to its form.
    """

    questions: Questions
    scorer: Scorer
    max_tokens: int
    skill: float
    own: RewardFunction | None = None
    is_brief: bool = True
    name: str = "questions"
    reward: Reward = field(default_factory=QuestionReward)
    expert: Callable[[Any, Random], Mapping[str, str]] | None = expert
    teams: Mapping[str, TeamSpec] = field(init=False)
    _held_out: frozenset[str] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        files = sorted(Path(__file__).parent.glob("*.yaml"))
        object.__setattr__(self, "teams", {path.stem: self._fitting(load_team(path)) for path in files})
        object.__setattr__(self, "_held_out", frozenset(one.content for one in self.questions["eval"]))

    def environment(self) -> Environment:
        return QuestionEnvironment(self.questions, self.scorer, self.own)

    def size(self, split: Split) -> int:
        return len(self.questions[split])

    def task(self, split: Split, index: int) -> Task:
        """The index-th question of a split.

        Raises:
            ConfigError: it has not so many.
        """
        if not 0 <= index < self.size(split):
            raise ConfigError(
                f"scenario 'questions' has {self.size(split)} questions in split {split!r}, numbered from 0: there is "
                f"no number {index}"
            )
        return Task(id=f"{split}-{index}", seed=index, split=split)

    def content_of(self, task: Task) -> str:
        return self.questions[task.split][task.seed].content

    def holds_out(self, content: str) -> bool:
        return content in self._held_out

    def demonstrations(self, seed: int, *, expert: bool) -> Iterator[tuple[str, str]]:
        return demonstrations(Random(seed), 1.0 if expert else self.skill, self.questions["train"], self.max_tokens)

    def fingerprint(self) -> str:
        every = [str(one) for split in self.questions.values() for one in split]
        own = () if self.own is None else (self.own.key,)
        return digest(
            self.name, RECIPE, self.scorer, self.max_tokens, str(self.skill), len(self.questions["train"]), *every, *own
        )

    def _fitting(self, team: TeamSpec) -> TeamSpec:
        """The team with room for answers as long as these, and with the letters of choices."""
        roles = {name: self._fitted(role) if name in _SOLVERS else role for name, role in team.roles.items()}
        return team.model_copy(update={"roles": roles})

    def _fitted(self, role: RoleSpec) -> RoleSpec:
        """A solver for these questions. One without a compact template is for models that chat: it begins an answer
        that is brief as its team's file says, in the form that the scorer wants, and any other one freely."""
        every = [one for split in self.questions.values() for one in split]
        choices = tuple(LETTERS[: max(len(one.choices) for one in every)])
        if role.template is not None:
            return role.model_copy(update={"max_tokens": self.max_tokens, "choices": choices})
        if not self.is_brief:
            return role.model_copy(update={"max_tokens": self.max_tokens, "prefill": ""})
        constraint = role.constraint
        if choices:
            constraint = Constraint(one_of=choices)
        elif self.scorer == "number":
            constraint = Constraint(regex=number_regex(one.answer for one in every))
        most = self.max_tokens + 2  # a space before the answer, and the end behind it
        return role.model_copy(update={"max_tokens": most, "constraint": constraint})
