"""`questions`: one question, one answer of the team."""

from collections.abc import Callable, Mapping
from functools import partial
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.core.errors import EnvironmentFault
from mas.scenarios.questions.records import QuestionRecord, Questions
from mas.scenarios.questions.scoring import LETTERS, Scorer, chosen, is_answer, is_right
from mas.scenarios.world import RecordEnvironment, kept_text

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

    state_type: ClassVar[type[msgspec.Struct]] = QuestionState

    def __init__(self, questions: Questions, scorer: Scorer, grade: Grade | None = None) -> None:
        """`grade`: None: 1 where `scorer` finds the answer right, else 0."""
        super().__init__(EnvironmentSpec(name="questions", seats=("team",), views=VIEWS, max_turns=1, terms=("right",)))
        self._questions = questions
        self._scorer = scorer
        self._grade = grade or partial(_scored, scorer=scorer)

    def is_right(self, said: str) -> bool:
        """Whether this would answer the question."""
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

    def is_over(self, state: QuestionState) -> bool:
        return state.said is not None

    def is_solved(self, state: QuestionState) -> bool:
        return state.right

    def right_answer(self) -> str:
        """The letter of the right choice where there are choices, else the answer's own words."""
        question = self.state.question
        at = chosen(question.answer, question.choices)
        return question.answer if at is None else LETTERS[at]

    def render(self) -> str:
        state = self.state
        return f"{state.question.shown}\nanswer {state.question.answer}; said {state.said or '-'}"


def _scored(question: QuestionRecord, said: str, scorer: Scorer) -> float:
    return float(is_right(said, question.answer, question.choices, scorer))
