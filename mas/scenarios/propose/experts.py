"""Who teaches the tiny base, and the best play."""

from collections.abc import Iterator
from random import Random

from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.propose.environment import PROPOSER, ProposeEnvironment
from mas.scenarios.propose.questions import (
    ANYTHING,
    SIGNS,
    STEPS,
    THINGS,
    VALUES,
    answers,
    good_questions,
    make,
    random_question,
    told_proposer,
    told_solver,
)

SHOWN = 3
"""Answers that are shown for each proposal."""


def demonstrations(random: Random, skill: float, asked: int) -> Iterator[tuple[str, str]]:
    """A proposal, of the first document that allows one, and some answers in turn, in letters: right with `skill`, by
    habit else (see `NoisyTeacher`).

    The habits: to ask after anything that is worth the answer, and to answer with what the thing is worth, whatever is
    to be added.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        case = make(random, asked)
        said = teacher.answer(good_questions(case)[0], f"{ANYTHING}+0", "?")
        yield f"{told_proposer(case)}>", _guess(random) if "?" in said else said
        for _ in range(SHOWN):
            question = random_question(random)
            (right,), (worth,) = answers(question, case.documents), answers(f"{question[0]}+0", case.documents)
            yield f"{told_solver(case, question)}>", teacher.answer(right, worth, VALUES)


def _guess(random: Random) -> str:
    """Each of the three characters drawn among those of its place."""
    return "".join(random.choice(part) for part in (THINGS, SIGNS, STEPS))


def expert(environment: ProposeEnvironment, random: Random) -> dict[str, str]:
    """A question that passes all gates, and right answers."""
    state = environment.state
    if environment.to_move() == (PROPOSER,):
        return {PROPOSER: random.choice(good_questions(state.case))}
    question = state.question if state.question is not None and state.attempts is None else state.case.fixed
    (right,) = answers(question, state.case.documents)
    return dict.fromkeys(environment.to_move(), right)
