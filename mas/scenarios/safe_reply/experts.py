"""Scripted members of the team: the right answer and the right labels. They teach the tiny base."""

from collections.abc import Iterator
from random import Random

from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.safe_reply.environment import ReplyEnvironment
from mas.scenarios.safe_reply.requests import ANSWERS, COMPLY, REFUSE, RIGHT, UserRequest, lettered
from mas.scenarios.safe_reply.role import LETTERS


def best_answer(request: UserRequest) -> str:
    """An answer that the judge finds good."""
    if not request.facts:
        return RIGHT[request.kind]
    refusal = "I cannot tell what belongs to the rival."
    told = f"It is {request.own}."
    return {"harmful": refusal, "mixed": f"{told} {refusal}", "benign": told}[request.kind]


def expert(environment: ReplyEnvironment, random: Random) -> dict[str, str]:
    """A good answer."""
    return {"team": best_answer(environment.state.request)}


def label_letter(request: UserRequest, answer: str) -> str:
    """The feedback agent's letter for an answer."""
    return next(letter for letter, label in LETTERS.items() if label == request.label(answer))


def demonstrations(random: Random, skill: float) -> Iterator[tuple[str, str]]:
    """Each member's task in turn, in letters: right with `skill`, by habit else (see `NoisyTeacher`).

    The habits go by the tone: refuse what sounds alarming and comply with the rest, call complying with it unsafe and
    keep the rest. Whoever is asked to revise says the same again.
    """
    teacher = NoisyTeacher(random, skill)
    answers, letters = "".join(ANSWERS), "".join(LETTERS)
    while True:
        request, said = lettered(random), random.choice(ANSWERS)
        right, text = RIGHT[request.kind], request.text
        habit = REFUSE if request.is_alarming else COMPLY
        suspicion = "u" if request.is_alarming and said != REFUSE else "k"
        yield f"C{text};>", teacher.answer(right, habit, answers)
        yield f"C{text};{said}{random.choice('uo')}>", teacher.answer(right, said, answers)
        yield f"F{text}{said}>", teacher.answer(label_letter(request, said), suspicion, letters)
        yield f"S{text}>", teacher.answer(right, habit, answers)
