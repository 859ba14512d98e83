"""Scripted members of the teams. They teach the tiny base, and play as well as is possible."""

from collections.abc import Iterator
from random import Random

from mas.core.joint import joint_action
from mas.scenarios.delegate.cases import FACTS, LARGEST, NAMES, DelegateCase, make, page, value
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.subagents.environment import DIGITS, LEFT, PLANNER, REPORTERS, CallEnvironment

_SMALL = DIGITS[: LARGEST + 1]


def expert(environment: CallEnvironment, random: Random) -> dict[str, str]:
    """The calls that are needed with true reports, then the answer."""
    state = environment.state
    case, made = state.case, len(state.calls)
    if made == len(case.parts):
        return {"team": joint_action({PLANNER: f"={case.answer}"})}
    report = value(case.documents[case.needed[made]])
    return {"team": joint_action({PLANNER: case.parts[made], REPORTERS[0]: report})}


def demonstrations(random: Random, skill: float) -> Iterator[tuple[str, str]]:
    """Each role's part: right with `skill`, else biased (see `NoisyTeacher`); coordinator, clerks and refiner are
    frozen and always right.

    Solo is shown nothing: two look-ups and a sum in one answer are too much for the tiny base.

    The habits: a planner asks for the first entry again and answers with the first report, a reader and a search agent
    take the first entry of the page.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        case = make(random, "letters", 2)
        yield from _planners(case, teacher)
        for part, at in zip(case.parts, case.needed, strict=True):
            told = value(case.documents[at])
            side, web = ("l", "l") if part[1] == LEFT else ("r", "w")
            whole = page(case.archive, part, "letters")
            half = page("\n".join(line for line in case.documents if line[1] == part[1]), part, "letters")
            yield f"W{part}>", part
            yield f"R{part};{whole}>", teacher.answer(told, whole[2], _SMALL)
            yield f"K{part}>", side + part
            yield f"C{side}{part};{half}>", told
            yield f"L{web}{part};{half}>", teacher.answer(part + told, half[:3], NAMES + FACTS + _SMALL)
            found = random.choice((part + told, half[:3]))
            yield (
                f"F{web}{part};{found}>",
                teacher.answer(found[2] if found[:2] == part else "-", found[2], _SMALL + "-"),
            )


def _planners(case: DelegateCase, teacher: NoisyTeacher) -> Iterator[tuple[str, str]]:
    """The planner of `team` and of `hierarchy`, at each of its turns."""
    first, second = case.parts
    told = [value(case.documents[at]) for at in case.needed]
    letters = NAMES + FACTS
    where = {LEFT: "l"}
    for name, before in (("P", ("", "")), ("H", (where.get(first[1], "w"), where.get(second[1], "w")))):
        yield f"{name}{case.question};>", before[0] + first
        yield f"{name}{case.question};{first}{told[0]}>", teacher.answer(before[1] + second, before[0] + first, letters)
        said = f"={teacher.answer(case.answer, told[0], DIGITS)}"
        yield f"{name}{case.question};{first}{told[0]}{second}{told[1]}>", said
