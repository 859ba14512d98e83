"""Scripted members of the team. They teach the tiny base, and play as well as is possible."""

from collections.abc import Iterator
from random import Random

from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.tool_use.environment import ToolEnvironment
from mas.scenarios.tool_use.tasks import SHORTHAND, ToolRules, in_words, make, question, solution

_SIGNS = "".join(SHORTHAND.tools)
DIGITS = "0123456789"


def expert(environment: ToolEnvironment, random: Random) -> dict[str, str]:
    """The next call that is wanted, then the answer."""
    state, rules = environment.state, environment.rules
    wanted = solution(state.puzzle, rules)
    if state.done == len(wanted):
        return {"team": str(wanted[-1][1])}
    call = wanted[state.done][0]
    if rules.words:
        return {"team": in_words(call)}
    return {"team": SHORTHAND.shorten(call) if rules.compact else call.text()}


def demonstrations(random: Random, skill: float, *, rules: ToolRules) -> Iterator[tuple[str, str]]:
    """Every role's part after some of the wanted calls, in compact form: right with `skill`, by habit else.

    Habits: the planner looks up, the caller and solo call the first tool again with what the question has, the
    summariser answers 0.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        puzzle = make(random, rules)
        wanted = [(SHORTHAND.shorten(call), str(value)) for call, value in solution(puzzle, rules)]
        made = random.randint(0, len(wanted))
        asked = f"{question(puzzle, rules)};{''.join(call[0] + value for call, value in wanted[:made])}"
        if made < len(wanted):
            call = wanted[made][0]
            plan = call[0] if random.random() < 0.8 else random.choice(_SIGNS)
            habit = _habit(call, wanted[0][0], random)
            yield f"P{asked}>", teacher.answer(call[0], "t", _SIGNS + "=")
            yield f"C{asked};{plan}>", teacher.answer(call, habit, DIGITS)
            yield f"S{asked}>", teacher.answer(call, habit, DIGITS)
        else:
            value = wanted[-1][1]
            yield f"P{asked}>", teacher.answer("=", "t", _SIGNS + "=")
            yield f"A{asked}>", teacher.answer(value, "0", DIGITS)
            yield f"S{asked}>", teacher.answer(f"={value}.", wanted[0][0], DIGITS)


def _habit(call: str, first: str, random: Random) -> str:
    """The first call once more; where that is the right one, the same tool with its first argument twice."""
    return first if call != first else call[0] + call[1] * 2
