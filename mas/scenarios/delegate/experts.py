"""Scripted members of the team: the right parts, reports and answers. They teach the tiny base."""

from collections.abc import Iterator
from random import Random

from mas.scenarios.delegate.cases import FACTS, LARGEST, NAMES, make, page, value
from mas.scenarios.delegate.environment import DIGITS, DelegateEnvironment
from mas.scenarios.noisy_teacher import NoisyTeacher


def expert(environment: DelegateEnvironment, random: Random) -> dict[str, str]:
    """The answer."""
    return {"team": environment.state.case.answer}


def demonstrations(random: Random, skill: float) -> Iterator[tuple[str, str]]:
    """Each role's part, in letters: right with `skill`, by habit else (see `NoisyTeacher`).

    The habits: the planner asks for the first part twice, a worker reports the first number on its page, composer and
    solo repeat the first number that they see.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        case = make(random, "letters", 2)
        question, (first, second) = case.question, case.parts
        yield f"P{question}>", _listed(teacher, first, second)
        for part, at in zip(case.parts, case.needed, strict=True):
            shown = page(case.archive, part, "letters")
            yield f"W{part};{shown}>", teacher.answer(value(case.documents[at]), shown[2], DIGITS[: LARGEST + 1])
        told = [value(case.documents[at]) for at in case.needed]
        yield f"C{question};1. {told[0]}\n2. {told[1]}>", teacher.answer(case.answer, told[0], DIGITS)
        digits = "".join(value(document) for document in case.documents)
        yield f"S{question};{case.archive}>", teacher.answer(case.answer, digits[0], DIGITS)


def _listed(teacher: NoisyTeacher, first: str, second: str) -> str:
    """Both parts, one a line; a guess gets letters of its second part wrong."""
    other = teacher.answer(second, first, NAMES + FACTS)
    return f"{first}\n{other}"
