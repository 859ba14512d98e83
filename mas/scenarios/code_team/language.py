"""What a task is, and what the environment asks of a language in which functions are specified, written and tested.

Functions of a digit modulo 10, in a language of two characters: an operation and a constant.

A specification is two or more operations after each other, all of them + and -, or all of them *: `+3-1`. A program is
one, `+2`; a test is an input from 1 to 3 and the output, `13`. What is read here is taken apart and never evaluated.
"""

import re
from collections.abc import Iterable
from functools import cache
from itertools import product
from random import Random

import msgspec

HOLDS = "holds"
"""The outcome of a test with which the program agrees."""


class Function(msgspec.Struct, frozen=True, kw_only=True):
    """A function that is to be written: steps, one after another.

    Attributes:
        kind: what it takes, as the language names it.
        steps: name and parameter of each step: the hidden reference.
        spec: what the team is told.
        golden: inputs of the hidden tests, as JSON.
    """

    kind: str
    steps: tuple[tuple[str, int], ...]
    spec: str
    golden: tuple[str, ...]


class CodeAnswer(msgspec.Struct, frozen=True):
    """A program and a test that were said; empty where there is none."""

    program: str = ""
    test: str = ""


def share_of(passed: Iterable[bool]) -> float:
    """The share that is true; 0 of nothing."""
    results = list(passed)
    return sum(results) / len(results) if results else 0.0


DIGITS, SIGNS, INPUTS = "0123456789", "+-*", "123"
LARGEST = 5
"""The largest number of a specification."""
_PROGRAM = re.compile(r"[+*-][0-9]")
_TEST = re.compile(r"[1-3][0-9]")
_BOTH = re.compile(r"([+*-][0-9])([1-3][0-9])")
ANOTHER = "another digit"


class Compact:
    """`steps` is the number of operations of a specification. Stateless; equal questions have equal answers."""

    def __init__(self, steps: int) -> None:
        self.steps = steps

    def make(self, random: Random) -> Function:
        """Three of four are sums: products are fewer, and easier to be right about by accident."""
        if random.random() < 0.75:
            steps = tuple((random.choice("+-"), random.randint(1, LARGEST)) for _ in range(self.steps))
        else:
            steps = tuple(("*", random.randint(2, LARGEST)) for _ in range(self.steps))
        spec = "".join(f"{sign}{number}" for sign, number in steps)
        return Function(kind="digit", steps=steps, spec=spec, golden=tuple(DIGITS))

    def heard(self, coder: str, tester: str) -> CodeAnswer | None:
        """What the two said, either text empty where its agent said nothing; None: it is not legal."""
        readable = (not coder or _PROGRAM.fullmatch(coder)) and (not tester or _TEST.fullmatch(tester))
        return CodeAnswer(coder, tester) if readable else None

    def alone(self, text: str) -> CodeAnswer | None:
        """What one agent said that writes both; None: it is not legal."""
        match = _BOTH.fullmatch(text)
        return CodeAnswer(match[1], match[2]) if match else None

    def actions(self) -> tuple[str, ...]:
        return _actions()

    def share(self, function: Function, program: str) -> float:
        return share_of(run(program, given) == reference(function, given) for given in map(int, function.golden))

    def is_right(self, function: Function, test: str) -> bool:
        return _TEST.fullmatch(test) is not None and reference(function, int(test[0])) == int(test[1])

    def outcome(self, function: Function, program: str, test: str) -> str:
        """What a program does in a test: `HOLDS`, or what went wrong."""
        return HOLDS if run(program, int(test[0])) == int(test[1]) else ANOTHER

    def solution(self, function: Function, random: Random) -> tuple[str, str]:
        given = random.choice(INPUTS)
        return program_of(function.steps), f"{given}{reference(function, int(given))}"


def run(program: str, given: int) -> int:
    """What a program makes of a digit."""
    return _operate(program[0], given, int(program[1]))


def reference(function: Function, given: int) -> int:
    """What the function makes of a digit."""
    for sign, number in function.steps:
        given = _operate(sign, given, number)
    return given


def program_of(steps: tuple[tuple[str, int], ...]) -> str:
    """One operation that does what the steps do one after another: `*` and their product, or `+` and their sum."""
    sign, number = ("*", 1) if steps[0][0] == "*" else ("+", 0)
    for each, amount in steps:
        number = _operate(each, number, amount)
    return f"{sign}{number}"


def _operate(sign: str, left: int, right: int) -> int:
    value = left + right if sign == "+" else left - right if sign == "-" else left * right
    return value % 10


@cache
def _actions() -> tuple[str, ...]:
    return tuple("".join(characters) for characters in product(SIGNS, DIGITS, INPUTS, DIGITS))
