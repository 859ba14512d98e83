"""Questions with known answers: from a file of your own, or made up.

One question, one answer of the team.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Any, ClassVar, Self

import msgspec
from pydantic import Field, model_validator

from mas.core.environment import Environment, Move, Reward, Task
from mas.core.errors import ConfigError, EnvironmentFault
from mas.core.messages import Verdict
from mas.core.options import Options, Positive
from mas.core.role import Constraint, RoleSpec
from mas.core.scenario import Split
from mas.core.seeds import digest
from mas.core.team import TeamSpec
from mas.graph.load import load_team
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.questions.records import (
    LETTERS,
    Fields,
    QuestionRecord,
    Questions,
    Scorer,
    chosen,
    is_answer,
    is_right,
    largest_digits,
    number_regex,
    read_questions,
)
from mas.scenarios.questions.reward_function import RewardFunction
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import RecordEnvironment, give_right_answer, kept_text, one_seat

VIEWS = ("planner", "solver", "verifier", "solo")
Grade = Callable[[QuestionRecord, str], float]
"""What an answer to a question is worth: 1 or more where it is right. Deterministic."""


class QuestionState(msgspec.Struct, frozen=True):
    """A question, what the team said (shortened; None before it did), and whether all of it was right."""

    question: QuestionRecord
    said: str | None = None
    right: bool = False


class QuestionEnvironment(RecordEnvironment[QuestionState]):
    """The number of a task's question in its split is the task's seed."""

    answer_field: ClassVar[str] = "said"

    def __init__(self, questions: Questions, scorer: Scorer, grade: Grade | None = None) -> None:
        """`grade`: None: 1 where `scorer` finds the answer right, else 0."""
        super().__init__(one_seat("questions", VIEWS, 1, ("right",)))
        self._questions, self._scorer = questions, scorer
        self._grade = grade or partial(_scored, scorer=scorer)

    def is_right(self, said: str) -> bool:
        return self._grade(self.state.question, said) >= 1

    def initial(self, task: Task) -> QuestionState:
        found = self._questions[task.split]
        if not 0 <= task.seed < len(found):
            raise EnvironmentFault(f"questions has {len(found)} tasks in split {task.split!r}; there is no {task.seed}")
        return QuestionState(found[task.seed])

    def fields(self, state: QuestionState, view: str) -> Mapping[str, str]:
        return {"question": state.question.shown}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        choices = self.state.question.choices
        return tuple(LETTERS[: len(choices)]) if choices else None

    def act(self, state: QuestionState, action: str) -> tuple[QuestionState, dict[str, float], bool]:
        paid = self._grade(state.question, action)
        after = msgspec.structs.replace(state, said=kept_text(action), right=paid >= 1)
        is_legal = action == "" or is_answer(action, state.question.choices, self._scorer)
        return after, {"right": paid}, is_legal

    def is_solved(self, state: QuestionState) -> bool:
        return state.right

    def right_answer(self) -> str:
        """The letter of the right choice where there are choices, else the answer's own words."""
        return _said(self.state.question)

    def render(self) -> str:
        state = self.state
        return f"{state.question.shown}\nanswer {state.question.answer}; said {state.said or '-'}"


def _scored(question: QuestionRecord, said: str, scorer: Scorer) -> float:
    return float(is_right(said, question.answer, question.choices, scorer))


class QuestionReward:
    """`verdict`: 1 if exactly the right answers are accepted, else -1."""

    terms: tuple[str, ...] = ("verdict",)

    def own(self, move: Move) -> Mapping[str, float]:
        assert isinstance(move.environment, QuestionEnvironment)
        if move.role != "verifier" or not isinstance(move.output, Verdict):
            return {}
        proposed = move.before.get("solver")
        is_right = proposed is not None and move.environment.is_right(proposed.content)
        return {"verdict": 1.0 if move.output.accept == is_right else -1.0}


RECIPE = 1
"""Raised whenever what is demonstrated changes, so that bases taught before are made anew."""
_LONGEST = 160
"""Characters of a question that the tiny base can be taught."""
_END = "<eos>"


def demonstrations(
    random: Random, skill: float, questions: Sequence[QuestionRecord], max_tokens: int
) -> Iterator[tuple[str, str]]:
    """Each member's part: right with `skill`, by habit else (see `NoisyTeacher`). The habit of a solver is the first
    character of the question, that of a verifier is to accept.

    Raises:
        ConfigError: no question has an answer, or every one is too long for the tiny base.
    """
    short = [one for one in questions if one.answer and len(one.shown) <= _LONGEST]
    if not any(one.answer for one in questions):
        raise ConfigError(
            "no question has an answer from which the tiny base could be taught: set model.path to another model, or "
            "model=smollm2"
        )
    if not short:
        raise ConfigError(
            f"all questions for training are longer than {_LONGEST} characters, too long for the tiny base: set "
            "model.path to another model"
        )
    teacher = NoisyTeacher(random, skill)
    while True:
        question, other = random.choice(short), random.choice(short)
        right, wrong = _said(question), _said(other)
        proposed = random.choice([right, wrong, question.text[0]])
        answers = [teacher.answer(right, question.text[0], right + wrong) for _ in "QRS"]
        verdict = teacher.answer("y" if proposed == right else "n", "y", "yn")
        yield f"Q{question.shown};>", _ended(answers[0], max_tokens)
        yield f"Q{question.shown};{proposed}>", _ended(answers[1], max_tokens)
        yield f"V{question.shown};{proposed}>", verdict
        yield f"S{question.shown}>", _ended(answers[2], max_tokens)


def _said(question: QuestionRecord) -> str:
    number = chosen(question.answer, question.choices)
    return question.answer if number is None else LETTERS[number]


def _ended(answer: str, max_tokens: int) -> str:
    """The answer as far as there is room, with its end where there is more."""
    return answer + _END if len(answer) < max_tokens else answer[:max_tokens]


_SOLVERS = ("solver", "reviser", "solo")


def room(questions: Questions, scorer: Scorer) -> int:
    """Tokens that are enough for the longest answer and its end; 1 where all answers are one character."""
    longest = max(len(one.answer) for split in questions.values() for one in split)
    return 1 if scorer == "choice" or longest == 1 else longest + 1


@dataclass(frozen=True, slots=True)
class QuestionScenario:
    """Satisfies `mas.core.scenario.Scenario`, and `Finite` and `SplitByContent` of `mas.core.scenario`.

    Attributes:
        questions: of each split, none of them in both.
        max_tokens: of what solvers say. skill: of the noisy teacher that the tiny base learns from.
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
    expert: Callable[[Any, Random], Mapping[str, str]] | None = give_right_answer
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


_OPEN = 64
"""Tokens of an answer that only a function can judge."""
FieldName = Annotated[str, Field(min_length=1)]


class QuestionOptions(Options):
    """Where questions come from and how answers are judged.

    `path`: see `mas.scenarios.rows`; None: made-up ones, which digit of four is the largest. `question`, `answer` and,
    with `scorer=choice`, `choices` are names of fields. `split`: the field that says `train` or `eval` of each row;
    None: what the data set itself has, or where it has no splits `eval_share` of the questions, chosen by content.

    `scorer`: `exact` compares texts without regard to case and white space, `number` the last numbers in them,
    `contains` looks for the answer in what was said, `choice` wants the letter or the text of the right choice.
    `reward`: a Python function that says what an answer is worth instead of a scorer, see
    `mas.scenarios.questions.reward_function`; rows need no answer then.
    `max_tokens`: of what a solver says; None: enough for the longest answer of the file, one character being one token
    at most, and 64 with `reward`; with `scorer=choice` it is 1, a letter. `skill`: share of right
    answers of the noisy teacher that the tiny base learns from.
    """

    path: str | None = None
    question: FieldName = "question"
    answer: FieldName = "answer"
    choices: FieldName = "choices"
    split: FieldName | None = None
    eval_share: Annotated[float, Field(gt=0, lt=1)] = 0.2
    scorer: Scorer = "exact"
    reward: FieldName | None = None
    max_tokens: Positive | None = None
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _has_a_file(self) -> Self:
        if self.path is None:
            fields = type(self).model_fields
            changed = [
                name for name in ("question", "answer", "choices", "split", "scorer", "reward")
                if getattr(self, name) != fields[name].default
            ]  # fmt: skip
            if changed:
                raise ValueError(f"{', '.join(changed)}: has no effect without a path")
        elif self.choices != type(self).model_fields["choices"].default and self.scorer != "choice":
            raise ValueError(f"choices={self.choices!r} has no effect with scorer={self.scorer}")
        if self.reward is not None and self.scorer != type(self).model_fields["scorer"].default:
            raise ValueError(f"scorer={self.scorer} has no effect with reward={self.reward}: leave one of them out")
        if self.scorer == "choice" and self.max_tokens not in (None, 1):
            raise ValueError(
                f"max_tokens={self.max_tokens} is not possible with scorer=choice: an answer is one letter"
            )
        return self


def build(options: QuestionOptions) -> QuestionScenario:
    """The scenario with these options.

    Raises:
        ConfigError: the file, or a row of it, is not what the options say, or the reward function cannot be imported.
    """
    own: RewardFunction | None = None
    if options.path is None:
        split = largest_digits(options.eval_share)
    else:
        choices = options.choices if options.scorer == "choice" else None
        fields = Fields(options.question, options.answer, choices, options.split, options.reward is None)
        split, rows = read_questions(options.path, fields, options.scorer, options.eval_share)
        own = None if options.reward is None else RewardFunction(options.reward, rows)
    most = options.max_tokens or (room(split, options.scorer) if own is None else _OPEN)
    return QuestionScenario(
        questions=split,
        scorer=options.scorer,
        max_tokens=most,
        skill=options.skill,
        own=own,
        is_brief=own is None and (options.max_tokens is None or options.scorer == "choice"),
    )


ENTRY = ScenarioEntry(QuestionOptions, build, "questions and answers")
