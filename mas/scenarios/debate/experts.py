"""Scripted members: debaters who say the best that is true, a judge who believes the larger number."""

from collections.abc import Iterator
from random import Random

from mas.core.joint import joint_action
from mas.scenarios.debate.case import ANSWERS, Side, make
from mas.scenarios.debate.environment import DEBATERS, DebateEnvironment
from mas.scenarios.noisy_teacher import NoisyTeacher

DIGITS = "0123456789"


def best_statement(side: Side) -> str:
    """The strongest statement that is true."""
    return str(max(side.numbers))


def expert(environment: DebateEnvironment, random: Random) -> dict[str, str]:
    """Both debaters honest, and the answer that follows from what they say."""
    case = environment.state.case
    said = {debater: best_statement(side) for debater, side in zip(DEBATERS, case.sides, strict=True)}
    return {"team": joint_action(said if environment.judge == "rule" else said | {"judge": case.right})}


def demonstrations(random: Random, skill: float, *, facts: int) -> Iterator[tuple[str, str]]:
    """Each member's task in turn, in letters: right with `skill`, by habit else (see `NoisyTeacher`).

    The habits: a debater says 9 whatever is true; who decides says a. Of two equal numbers neither is the larger.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        case = make(random, "letters", facts)
        for side in case.sides:
            yield f"D{side.evidence}>", teacher.answer(best_statement(side), "9", DIGITS)
        first, second = random.choices(DIGITS, k=2)
        larger = random.choice(ANSWERS) if first == second else ANSWERS[first < second]
        yield f"J{first};{second}>", teacher.answer(larger, "a", "".join(ANSWERS))
        evidence = ";".join(side.evidence for side in case.sides)
        yield f"S{evidence}>", teacher.answer(case.right, "a", "".join(ANSWERS))
