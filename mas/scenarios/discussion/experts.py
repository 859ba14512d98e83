"""Scripted members: the right answer, a right word on it, the score that is due. They teach the tiny base."""

from collections.abc import Iterator
from random import Random

from mas.core.joint import joint_action
from mas.scenarios.discussion.environment import DiscussionEnvironment
from mas.scenarios.discussion.questions import DIGITS, make
from mas.scenarios.discussion.scoring import SCORES, true_score
from mas.scenarios.noisy_teacher import NoisyTeacher

VERDICTS = "yn"


def expert(environment: DiscussionEnvironment, random: Random) -> dict[str, str]:
    """The answer, and the judgement of it that is true."""
    approval = "y" if environment.style == "digits" else "right"
    said = {"solver": environment.state.question.answer, "evaluator": approval, "scorer": str(true_score(True, True))}
    return {"team": joint_action(said)}


def demonstrations(random: Random, skill: float, *, steps: int) -> Iterator[tuple[str, str]]:
    """Each member's task in turn, in digits: right with `skill`, by habit else (see `NoisyTeacher`).

    The habits: who solves says the first number, or what was said before; the evaluator is content; the scorer believes
    the evaluator. Half of the solutions that are judged are right, and so is half of what is said about them.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        question = make(random, "digits", steps)
        text, right, first = question.text, question.answer, question.text[0]
        said, verdict = random.choice((right, random.choice(DIGITS))), random.choice(VERDICTS)
        due = str(true_score(said == right, verdict == "y"))
        believed = "3" if verdict == "y" else "1"
        yield f"A{text};>", teacher.answer(right, first, DIGITS)
        yield f"E{text};{said}>", teacher.answer("y" if said == right else "n", "y", VERDICTS)
        yield f"T{text};{said}{verdict}>", teacher.answer(due, believed, "".join(SCORES))
        yield f"A{text};{said}{verdict}{random.choice(SCORES)}>", teacher.answer(right, said, DIGITS)
        yield f"S{text}>", teacher.answer(right, first, DIGITS)
