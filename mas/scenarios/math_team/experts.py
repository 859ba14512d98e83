"""Scripted members of the team. They teach the tiny base, and play as well as is possible."""

from collections.abc import Iterator
from random import Random

from mas.scenarios.math_team.environment import MathEnvironment
from mas.scenarios.math_team.problems import MathRules, Milestone, make
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.tools import CALCULATOR, ToolCall

DIGITS = "0123456789"


def expert(environment: MathEnvironment, random: Random) -> dict[str, str]:
    """The next milestone (its call, or in JSON its value, which the expert knows), then the answer."""
    state = environment.state
    milestones = state.problem.milestones
    if state.reached < len(milestones):
        return {"team": _call(milestones[state.reached], random)}
    return {"team": f"={state.problem.answer}." if environment.rules.compact else state.problem.answer}


def _call(milestone: Milestone, random: Random) -> str:
    if milestone.calls:
        return random.choice(milestone.calls)
    return ToolCall(CALCULATOR.name, {"expression": milestone.value}).text()


def demonstrations(random: Random, skill: float, *, rules: MathRules) -> Iterator[tuple[str, str]]:
    """Every role's part after some of the calls, in compact form: right with `skill`, else biased (see `NoisyTeacher`).

    Habits: the solver answers with the last digit it reads, and insists when rejected; the verifier accepts.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        problem = make(random, rules)
        made = random.randint(0, len(problem.milestones))
        asked = f"{problem.text};{''.join(one.value for one in problem.milestones[:made])}"
        is_last = made == len(problem.milestones)
        right = f"={problem.answer}." if is_last else problem.milestones[made].calls[0]
        last = [character for character in asked if character in DIGITS][-1]
        habit = f"={last}." if not is_last else f"{last}+{last}"
        wrong = random.choice((habit, _slip(right, random)))
        shown = right if random.random() < 0.5 else wrong
        yield f"S{asked};>", teacher.answer(right, habit, DIGITS)
        yield f"S{asked};{wrong}n>", teacher.answer(right, wrong, DIGITS)
        yield f"V{asked};{shown}>", teacher.answer("y" if shown == right else "n", "y", "yn")
        yield f"O{asked}>", teacher.answer(right, habit, DIGITS)


def _slip(right: str, random: Random) -> str:
    """The right proposal with another digit somewhere."""
    places = [place for place, character in enumerate(right) if character in DIGITS]
    place = random.choice(places)
    other = random.choice([digit for digit in DIGITS if digit != right[place]])
    return right[:place] + other + right[place + 1 :]
