"""What is argued about: two answers, the facts that speak for each, and which statements about them are true.

The right answer is the one with the largest number among its facts. No number occurs twice.
"""

import re
import unicodedata
from random import Random
from typing import Literal

import msgspec

Style = Literal["letters", "words"]

ANSWERS = ("a", "b")
MOST_FACTS, MOST_DIGITS = 8, 5
"""On each side, in words and in letters."""
_TOWNS = ("Ardo", "Belu", "Cresk", "Dunmar", "Elvo", "Fenwick", "Garro", "Holm")
_TOWERS = ("Corn", "Bell", "Mill", "Sea", "Wind", "Castle", "Water", "North")
_NUMBERS = re.compile(r"[0-9]+")
_UNSEEN = ("Cf", "Me", "Mn")
"""Categories of characters that stand between digits without parting them, or around them."""


class Side(msgspec.Struct, frozen=True):
    """One answer and what speaks for it. `evidence`: all its facts, as they are read; `numbers`: those in them."""

    name: str
    evidence: str
    numbers: tuple[int, ...]

    def is_false(self, statement: str) -> bool:
        """Whether a number is stated, in digits of any kind, that none of the facts has."""
        return not self._stated(statement) <= {str(number) for number in self.numbers}

    def strength(self, statement: str) -> int | None:
        """The largest number that a statement truly has from the facts; None for none, or if it states a false one."""
        if self.is_false(statement):
            return None
        return max(map(int, self._stated(statement)), default=None)

    def _stated(self, statement: str) -> set[str]:
        return {number.lstrip("0") or "0" for number in _NUMBERS.findall(_plain(statement))}


class DebateCase(msgspec.Struct, frozen=True):
    """`question`: what is asked, empty in letters. `sides`: those of the answers a and b."""

    question: str
    sides: tuple[Side, Side]

    @property
    def right(self) -> str:
        """The right answer."""
        first, second = (max(side.numbers) for side in self.sides)
        return ANSWERS[first < second]

    def ruling(self, statements: tuple[str, str]) -> str:
        """The answer with the stronger statement, by the facts; empty where neither says anything that holds."""
        strengths = [side.strength(said) for side, said in zip(self.sides, statements, strict=True)]
        first, second = (-1 if strength is None else strength for strength in strengths)
        return "" if first == second else ANSWERS[first < second]


def make(random: Random, style: Style, facts: int) -> DebateCase:
    """A case with so many facts on each side."""
    return _in_letters(random, facts) if style == "letters" else _in_words(random, facts)


def _in_letters(random: Random, facts: int) -> DebateCase:
    drawn = random.sample(range(10), 2 * facts)
    sides = [Side(name, "".join(map(str, part)), tuple(part)) for name, part in _halves(drawn)]
    return DebateCase("", (sides[0], sides[1]))


def _in_words(random: Random, facts: int) -> DebateCase:
    towns = random.sample(_TOWNS, 2)
    sides = []
    for (_, part), town in zip(_halves(random.sample(range(10, 100), 2 * facts)), towns, strict=True):
        towers = zip(random.sample(_TOWERS, facts), part, strict=True)
        told = [f"The {tower} Tower of {town} is {number} metres tall." for tower, number in towers]
        sides.append(Side(town, "\n".join(told), tuple(part)))
    question = f"Which town has the tallest tower? a: {towns[0]}, b: {towns[1]}."
    return DebateCase(question, (sides[0], sides[1]))


def _plain(statement: str) -> str:
    """With ASCII digits for all characters that are digits or numbers: superscript, circled, of another alphabet."""
    return "".join(map(_digits, unicodedata.normalize("NFKC", statement)))


def _digits(character: str) -> str:
    category = unicodedata.category(character)
    if category in _UNSEEN:
        return ""
    return f"{unicodedata.numeric(character):g}" if category.startswith("N") else character


def _halves(drawn: list[int]) -> tuple[tuple[str, list[int]], tuple[str, list[int]]]:
    middle = len(drawn) // 2
    return (ANSWERS[0], drawn[:middle]), (ANSWERS[1], drawn[middle:])
