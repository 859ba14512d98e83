"""Scripted members of the team: a right program and a right test. They teach the tiny base, in the compact language."""

from collections.abc import Iterator
from random import Random

from mas.core.joint import joint_action
from mas.scenarios.code_team.compact import DIGITS, INPUTS, Compact, program_of, reference, run
from mas.scenarios.code_team.environment import MEMBERS, CodeEnvironment
from mas.scenarios.noisy_teacher import NoisyTeacher


def expert(environment: CodeEnvironment, random: Random) -> dict[str, str]:
    """A program that passes all golden tests, and a right test."""
    program, test = environment.language.solution(environment.state.function, random)
    return {"team": joint_action(dict(zip(MEMBERS, (program, test), strict=True)))}


def demonstrations(random: Random, skill: float, *, steps: int) -> Iterator[tuple[str, str]]:
    """Each member's task in its first turn and after a test that failed: right with `skill`, by habit else.

    The habit of a first turn is to read the first operation alone, so that program and test share the mistake; of a
    later turn, to say the same again.
    """
    language, teacher = Compact(steps), NoisyTeacher(random, skill)
    while True:
        function = language.make(random)
        given = random.choice(INPUTS)
        right = program_of(function.steps), f"{given}{reference(function, int(given))}"
        first = program_of(function.steps[:1])
        habit = first, f"{given}{run(first, int(given))}"
        yield from _turn(teacher, f"{function.spec};", right, habit)
        said = _failed(random, right, habit)
        yield from _turn(teacher, f"{function.spec};{''.join(said)}", right, said)


def _turn(
    teacher: NoisyTeacher, seen: str, right: tuple[str, str], habit: tuple[str, str]
) -> Iterator[tuple[str, str]]:
    yield f"C{seen}>", teacher.answer(right[0], habit[0], DIGITS)
    yield f"T{seen}>", teacher.answer(right[1], habit[1], DIGITS)
    yield f"S{seen}>", teacher.answer("".join(right), "".join(habit), DIGITS)


def _failed(random: Random, right: tuple[str, str], habit: tuple[str, str]) -> tuple[str, str]:
    """A program and a test that do not agree, one of them right half of the time."""
    while True:
        program, test = random.choice((right[0], habit[0], _any_program(random))), random.choice((right[1], habit[1]))
        if random.random() < 0.3:
            test = test[0] + random.choice(DIGITS)
        if run(program, int(test[0])) != int(test[1]):
            return program, test


def _any_program(random: Random) -> str:
    return random.choice("+-*") + random.choice(DIGITS)
