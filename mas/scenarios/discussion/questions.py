"""Generated questions with one number for an answer, computed while they are made: no text is ever evaluated."""

from collections.abc import Callable
from random import Random
from typing import Literal

import msgspec

Style = Literal["digits", "words"]

DIGITS = "0123456789"
_MOST = 4
"""The largest number that follows the first one, in digits."""
_NAMES = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn")
_THINGS = ("apples", "books", "coins", "stamps", "shells", "cards")
_MORE = ("finds {n} more", "buys {n} more", "is given {n} more")
_FEWER = ("gives {n} of them away", "loses {n} of them", "sells {n} of them")


class DiscussionQuestion(msgspec.Struct, frozen=True):
    """`answer` is a number in decimal digits; in style digits the last digit of the result, as modulo 10."""

    text: str
    answer: str

    def is_right(self, said: str | None) -> bool:
        """Whether this is the answer; a number may have zeros in front."""
        return bool(said) and is_number(str(said)) and int(str(said)) == int(self.answer)


def is_number(text: str) -> bool:
    """Up to 12 ASCII digits and nothing else."""
    return 0 < len(text) <= 12 and text.isascii() and text.isdigit()


def make(random: Random, style: Style, steps: int) -> DiscussionQuestion:
    """A question with so many numbers after the first one."""
    return _in_digits(random, steps) if style == "digits" else _in_words(random, steps)


def _in_digits(random: Random, steps: int) -> DiscussionQuestion:
    value = random.randrange(10)
    text = str(value)
    for _ in range(steps):
        number, sign = random.randint(0, _MOST), random.choice((1, -1))
        value, text = value + sign * number, f"{text}{'+' if sign > 0 else '-'}{number}"
    return DiscussionQuestion(text, str(value % 10))


def _in_words(random: Random, steps: int) -> DiscussionQuestion:
    """A story; nobody ever has fewer than none."""
    name, things, value = random.choice(_NAMES), random.choice(_THINGS), random.randint(10, 60)
    told = [f"{name} has {value} {things}."]
    changes: tuple[Callable[[Random, int], tuple[int, str]], ...] = (_more, _fewer, _doubled)
    for _ in range(steps):
        value, event = random.choice(changes)(random, value)
        told.append(f"{name} {event}.")
    return DiscussionQuestion(" ".join([*told, f"How many {things} has {name} now?"]), str(value))


def _more(random: Random, value: int) -> tuple[int, str]:
    number = random.randint(2, 40)
    return value + number, random.choice(_MORE).format(n=number)


def _fewer(random: Random, value: int) -> tuple[int, str]:
    number = random.randint(0, value)
    return value - number, random.choice(_FEWER).format(n=number)


def _doubled(random: Random, value: int) -> tuple[int, str]:
    return 2 * value, "wins a bet and then has twice as many"
