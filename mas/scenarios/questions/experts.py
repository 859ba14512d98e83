"""Who knows the answers, and who half knows them."""

from collections.abc import Iterator, Sequence
from random import Random

from mas.core.errors import ConfigError
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.questions.environment import QuestionEnvironment
from mas.scenarios.questions.records import QuestionRecord
from mas.scenarios.questions.scoring import LETTERS, chosen

RECIPE = 1
"""Raised whenever what is demonstrated changes, so that bases taught before are made anew."""
_LONGEST = 160
"""Characters of a question that the tiny base can be taught."""
_END = "<eos>"


def expert(environment: QuestionEnvironment, random: Random) -> dict[str, str]:
    """The answer, which no view shows."""
    return {"team": environment.state.question.answer}


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
