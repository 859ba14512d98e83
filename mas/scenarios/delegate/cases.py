"""Generated cases: a question that several entries of an archive answer together, each by a sub-question of its own."""

import re
from functools import lru_cache
from random import Random
from typing import Literal

import msgspec

from mas.tools import Bm25

Style = Literal["letters", "words"]

NAMES, FACTS = "abcd", "pq"
SHOWN: dict[Style, int] = {"letters": 3, "words": 4}
"""How many documents a search shows."""
NOTHING: dict[Style, str] = {"letters": "!", "words": "nothing found"}
LARGEST = 4
"""In letters: digits of the archive are 0 to 4."""

CALLINGS = ("campaner", "lumenar", "pontier", "tincter")
TOWNS = ("Orlo", "Vash", "Melin")
AMOUNTS = ("wage", "rent", "debt")
_SIGNS = {"+": "plus", "-": "minus"}


class DelegateCase(msgspec.Struct, frozen=True):
    """One task.

    Attributes:
        documents: the archive, which the workers' search alone shows.
        needed: positions of the documents that answer, in the order of the question.
        parts: the sub-question that finds each of them.
    """

    style: Style
    question: str
    documents: tuple[str, ...]
    needed: tuple[int, ...]
    parts: tuple[str, ...]
    answer: str

    @property
    def archive(self) -> str:
        """All documents, as the workers' search and `solo` read them: one a line."""
        return "\n".join(self.documents)


def make(random: Random, style: Style, parts: int) -> DelegateCase:
    """A case; `parts` is how many entries its answer takes, in words."""
    return _lettered(random) if style == "letters" else _worded(random, parts)


def content_of(case: DelegateCase) -> str:
    """The question and the entries that answer it: two cases whose archives differ elsewhere are one."""
    return "|".join([case.question, *(case.documents[at] for at in case.needed)])


def found(documents: tuple[str, ...], part: str, style: Style) -> tuple[int, ...]:
    """Positions of the documents that a sub-question finds, the best first; in letters each of them is a word."""
    query = " ".join(part) if style == "letters" else part
    return tuple(at for at, _ in _index(documents, style).rank(query)[: SHOWN[style]])


@lru_cache(maxsize=64)
def _index(documents: tuple[str, ...], style: Style) -> Bm25:
    return Bm25([" ".join(document) for document in documents] if style == "letters" else documents)


def page(archive: str, part: str, style: Style) -> str:
    """What a search shows of an archive, in the archive's order: the best need not come first."""
    documents = tuple(archive.split("\n"))
    lines = [documents[at] for at in sorted(found(documents, part, style))]
    return ("" if style == "letters" else "\n").join(lines) or NOTHING[style]


def value(document: str) -> str:
    """The number that an entry tells: its last one."""
    numbers: list[str] = re.findall(r"[0-9]+", document)
    return numbers[-1]


def _lettered(random: Random) -> DelegateCase:
    """An entry is a name, a fact and a digit, `bp3`; the answer is a digit, modulo 10."""
    keys = [name + fact for name in NAMES for fact in FACTS]
    documents = tuple(f"{key}{random.randint(0, LARGEST)}" for key in keys)
    needed, sign = tuple(random.sample(range(len(keys)), 2)), random.choice(tuple(_SIGNS))
    first, second = (int(value(documents[at])) for at in needed)
    answer = str((first + second if sign == "+" else first - second) % 10)
    parts = tuple(keys[at] for at in needed)
    return DelegateCase("letters", sign.join(parts), documents, needed, parts, answer)


def _worded(random: Random, parts: int) -> DelegateCase:
    keys = [(amount, f"the {calling} of {town}") for calling in CALLINGS for town in TOWNS for amount in AMOUNTS]
    documents = tuple(f"{who[0].upper()}{who[1:]}: {amount} {random.randint(10, 99)} crowns." for amount, who in keys)
    needed = tuple(random.sample(range(len(keys)), parts))
    signs = [random.choice(tuple(_SIGNS)) for _ in needed[1:]]
    asked = tuple(f"the {keys[at][0]} of {keys[at][1]}" for at in needed)
    total = int(value(documents[needed[0]]))
    for sign, at in zip(signs, needed[1:], strict=True):
        total += int(f"{sign}{value(documents[at])}")
    rest = "".join(f", {_SIGNS[sign]} {part}" for sign, part in zip(signs, asked[1:], strict=True))
    return DelegateCase("words", f"How many crowns are {asked[0]}{rest}?", documents, needed, asked, str(total))
