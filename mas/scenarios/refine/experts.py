"""Scripted members of the team: the right answer and a right verdict. They teach the tiny base."""

from collections.abc import Iterator
from random import Random

from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.refine.environment import RefineEnvironment
from mas.scenarios.refine.questions import DIGITS, make

VERDICTS = "yn"


def expert(environment: RefineEnvironment, random: Random) -> dict[str, str]:
    """The answer."""
    return {"team": environment.state.question.answer}


def demonstrations(random: Random, skill: float, *, operands: int) -> Iterator[tuple[str, str]]:
    """Each member's task in turn, in digits: right with `skill`, by habit else (see `NoisyTeacher`).

    The habits: whoever answers first says the first number, the verifier is content, whoever has an answer before it
    repeats it. Half of the answers that are criticised are right.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        question = make(random, "digit", operands)
        text, right, first = question.text, question.answer, question.text.lstrip("(")[0]
        said = random.choice((right, random.choice(DIGITS)))
        second = random.choice((said, random.choice(DIGITS)))
        yield f"G{text}>", teacher.answer(right, first, DIGITS)
        yield f"V{text};{said}>", teacher.answer("y" if said == right else "n", "y", VERDICTS)
        yield f"R{text};{said}{random.choice(VERDICTS)}>", teacher.answer(right, said, DIGITS)
        yield f"S{text};>", teacher.answer(right, first, DIGITS)
        yield f"S{text};{said}>", teacher.answer(right, said, DIGITS)
        yield f"S{text};{said}{second}>", teacher.answer(right, second, DIGITS)
