"""What functions in words are made of: steps, each with its sentence, what it does, and Python that does it.

The sentence is what the team reads, `apply` is the hidden reference, and the code is what the expert writes. No text is
ever evaluated out here: a task is the names of its steps and their parameters.
"""

from collections.abc import Callable
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple

VOWELS = "aeiouAEIOU"


class CodeStep(NamedTuple):
    """One step of x -> x. `{k}` in `text` and `code` is its parameter, from `low` to `high`; `ends`: it makes a number
    of x and can only be the last."""

    text: str
    apply: Callable[[Any, int], Any]
    code: str
    low: int = 0
    high: int = 0
    ends: bool = False


def _digit_sum(x: int, k: int) -> int:
    return sum(int(digit) for digit in str(abs(x)))


NUMBER: dict[str, CodeStep] = {
    "add": CodeStep("Add {k}.", lambda x, k: x + k, "x = x + {k}", 1, 20),
    "subtract": CodeStep("Subtract {k}.", lambda x, k: x - k, "x = x - {k}", 1, 20),
    "multiply": CodeStep("Multiply by {k}.", lambda x, k: x * k, "x = x * {k}", 2, 9),
    "remainder": CodeStep(
        "Take the remainder of a division by {k}, from 0 up.", lambda x, k: x % k, "x = x % {k}", 5, 12
    ),
    "absolute": CodeStep("If it is negative, drop the sign.", lambda x, k: abs(x), "x = abs(x)"),
    "most": CodeStep("If it is more than {k}, take {k} instead.", lambda x, k: min(x, k), "x = min(x, {k})", 15, 40),
    "collatz": CodeStep(
        "If it is even, take half of it; if it is odd, three times it plus 1.",
        lambda x, k: 3 * x + 1 if x % 2 else x // 2,
        "x = 3 * x + 1 if x % 2 else x // 2",
    ),
    "digits": CodeStep(
        "Take the sum of its decimal digits; a sign does not count.",
        _digit_sum,
        "x = sum(int(digit) for digit in str(abs(x)))",
    ),
}
TEXT: dict[str, CodeStep] = {
    "reverse": CodeStep("Reverse it.", lambda x, k: x[::-1], "x = x[::-1]"),
    "upper": CodeStep("Make all letters upper case.", lambda x, k: x.upper(), "x = x.upper()"),
    "swap": CodeStep(
        "Turn lower case into upper case, and upper into lower.", lambda x, k: x.swapcase(), "x = x.swapcase()"
    ),
    "vowels": CodeStep(
        "Remove the vowels a, e, i, o and u in both cases.",
        lambda x, k: "".join(letter for letter in x if letter not in VOWELS),
        f'x = "".join(letter for letter in x if letter not in "{VOWELS}")',
    ),
    "twice": CodeStep(
        "Write every character twice in a row.",
        lambda x, k: "".join(letter * 2 for letter in x),
        'x = "".join(letter * 2 for letter in x)',
    ),
    "dashes": CodeStep(
        "Replace each space by a dash (-).", lambda x, k: x.replace(" ", "-"), 'x = x.replace(" ", "-")'
    ),
    "first": CodeStep("Keep the first {k} characters.", lambda x, k: x[:k], "x = x[:{k}]", 4, 8),
    "rotate": CodeStep(
        "Put the first {k} characters at the end.", lambda x, k: x[k:] + x[:k], "x = x[{k}:] + x[:{k}]", 1, 3
    ),
    "length": CodeStep("Take the number of characters.", lambda x, k: len(x), "x = len(x)", ends=True),
    "count": CodeStep(
        "Take the number of letters e in lower case.", lambda x, k: x.count("e"), 'x = x.count("e")', ends=True
    ),
}
LIST: dict[str, CodeStep] = {
    "reverse": CodeStep("Reverse the order.", lambda x, k: x[::-1], "x = x[::-1]"),
    "sort": CodeStep("Sort from small to large.", lambda x, k: sorted(x), "x = sorted(x)"),
    "above": CodeStep(
        "Remove all numbers that are not more than {k}.",
        lambda x, k: [n for n in x if n > k],
        "x = [n for n in x if n > {k}]",
        -5,
        5,
    ),
    "add": CodeStep("Add {k} to each number.", lambda x, k: [n + k for n in x], "x = [n + {k} for n in x]", 1, 9),
    "multiply": CodeStep(
        "Multiply each number by {k}.", lambda x, k: [n * k for n in x], "x = [n * {k} for n in x]", 2, 5
    ),
    "unique": CodeStep(
        "Of equal numbers keep the first alone.", lambda x, k: list(dict.fromkeys(x)), "x = list(dict.fromkeys(x))"
    ),
    "drop": CodeStep("Drop the first {k} numbers.", lambda x, k: x[k:], "x = x[{k}:]", 1, 2),
    "running": CodeStep(
        "Replace each number by the sum of it and all before it.",
        lambda x, k: list(accumulate(x)),
        "x = [sum(x[: at + 1]) for at in range(len(x))]",
    ),
    "sum": CodeStep("Take the sum, 0 of nothing.", lambda x, k: sum(x), "x = sum(x)", ends=True),
    "maximum": CodeStep(
        "Take the largest number, 0 of nothing.", lambda x, k: max(x, default=0), "x = max(x, default=0)", ends=True
    ),
    "even": CodeStep(
        "Take the number of even numbers.",
        lambda x, k: sum(n % 2 == 0 for n in x),
        "x = sum(n % 2 == 0 for n in x)",
        ends=True,
    ),
}
KINDS: dict[str, dict[str, CodeStep]] = {"number": NUMBER, "text": TEXT, "list": LIST}
NAMED = {"number": "a whole number", "text": "a text", "list": "a list of whole numbers"}
"""What x is, in words, by kind."""

_WORDS = ("tree", "Stone", "river", "Apple", "eel", "Moon", "kite", "open", "Idea", "bee")


def draw_input(kind: str, random: Random) -> Any:
    """An input of a golden test."""
    if kind == "number":
        return random.randint(-60, 60)
    if kind == "text":
        return " ".join(random.choice(_WORDS) for _ in range(random.randint(1, 3)))
    return [random.randint(-9, 9) for _ in range(random.randint(3, 7))]


EDGES: dict[str, tuple[Any, ...]] = {"number": (0, -7), "text": ("", "e"), "list": ([], [4])}
"""Inputs that every function of a kind is tested with."""


def is_input(kind: str, value: object) -> bool:
    """Whether a test may ask for it: of the right type, and small."""
    if kind == "number":
        return type(value) is int and abs(value) <= 999
    if kind == "text":
        return isinstance(value, str) and len(value) <= 30 and all(one in _TYPED for one in value)
    return isinstance(value, list) and len(value) <= 10 and all(type(one) is int and abs(one) <= 999 for one in value)


_TYPED = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 ")


def applied(kind: str, steps: tuple[tuple[str, int], ...], value: Any) -> Any:
    """What the steps make of a value, one after another."""
    for name, k in steps:
        value = KINDS[kind][name].apply(value, k)
    return value


def draw_steps(kind: str, count: int, random: Random) -> tuple[tuple[str, int], ...]:
    """So many different steps; one that makes a number of x is the last."""
    known = KINDS[kind]
    names = random.sample([name for name, step in known.items() if not step.ends], count)
    enders = [name for name, step in known.items() if step.ends]
    if enders and random.random() < 0.5:
        names[-1] = random.choice(enders)
    return tuple((name, random.randint(known[name].low, known[name].high)) for name in names)
