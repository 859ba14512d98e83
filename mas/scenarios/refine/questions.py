"""Generated arithmetic, evaluated while it is made: no text is ever computed."""

import operator
from collections.abc import Callable
from random import Random
from typing import Literal

import msgspec

Style = Literal["digit", "number", "extreme", "words"]

DIGITS = "0123456789"
SUBJECTS = ("max", "min")
"""What a question of style `extreme` begins with."""
ASKED = ("largest", "smallest")
"""What a question of style `words` asks for."""
_OPERATIONS: dict[str, Callable[[int, int], int]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}
_USED: dict[str, tuple[str, int, int]] = {"digit": ("+-", 9, 3), "number": ("+-*", 99, 99)}
"""Per style: operations, the largest first number, and the largest of those that follow."""


class RefineQuestion(msgspec.Struct, frozen=True):
    """`text` is the expression, `answer` what it comes to (style `digit`: the last digit, as modulo 10).

    `numbers`: in style `words` those that are asked about, and `asked` for which of them; empty elsewhere.
    """

    text: str
    answer: str
    numbers: tuple[str, ...] = ()
    asked: str = ""


def direction(said: str, right: str) -> str:
    """What to change in a wrong answer: `+` it is too low, `-` too high, `?` it is no number."""
    if not said.removeprefix("-").isdecimal():
        return "?"
    return "+" if int(said) < int(right) else "-"


def make(random: Random, style: Style, operands: int) -> RefineQuestion:
    """An expression with so many numbers, computed from the left: ((3+4)-5); in `extreme` so many digits:
    max4821; in `words` so many numbers: the largest of 48, 21, 90."""
    if style == "extreme":
        return _extreme(random, operands)
    if style == "words":
        return _in_words(random, operands)
    operations, first, most = _USED[style]
    value = random.randint(0, first)
    text = str(value)
    for number in range(operands - 1):
        sign, right = random.choice(operations), random.randint(0, most)
        text = f"({text}){sign}{right}" if number else f"{text}{sign}{right}"
        value = _OPERATIONS[sign](value, right)
    return RefineQuestion(text, str(value % 10 if style == "digit" else value))


def digits_of(question: RefineQuestion) -> str:
    """The digits of which an `extreme` question asks for one."""
    return question.text[len(SUBJECTS[0]) :]


def _extreme(random: Random, operands: int) -> RefineQuestion:
    subject = random.choice(SUBJECTS)
    digits = "".join(random.choice(DIGITS) for _ in range(operands))
    return RefineQuestion(subject + digits, max(digits) if subject == "max" else min(digits))


def _in_words(random: Random, operands: int) -> RefineQuestion:
    asked = random.choice(ASKED)
    numbers = [str(number) for number in random.sample(range(10, 100), operands)]
    answer = max(numbers) if asked == "largest" else min(numbers)
    return RefineQuestion(f"the {asked} of {', '.join(numbers)}", answer, tuple(numbers), asked)
