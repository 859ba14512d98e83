"""Packages as one character, for the tiny base, and in words, for real models.

As a character: the number whose binary digits say which things the team gets, so that 7 is all three and 0 nothing.
"""

import re

from mas.scenarios.negotiation.deals import NAMES, Package, Style

ACCEPT = {"letters": "y", "words": "ACCEPT"}
_OFFER = re.compile(r"OFFER(?::| )\s*(.{1,200})")
_PART = re.compile(r"([0-9]{1,2}) ([a-z]{1,20}?)s?")


def code(package: Package) -> str:
    """The character of a package in which there is one thing of each kind."""
    return str(int("".join(map(str, package)), 2))


def decode(text: str, kinds: int) -> Package | None:
    """The package that a character means, None for another text."""
    if len(text) != 1 or not "0" <= text < str(2**kinds):
        return None
    return tuple(map(int, f"{int(text):0{kinds}b}"))


def phrase(package: Package) -> str:
    """A package as `1 book, 2 hats`."""
    parts = [_count(number, name) for number, name in zip(package, NAMES, strict=False) if number]
    return ", ".join(parts) or "nothing"


def spell(style: Style, package: Package) -> str:
    """The action that asks for a package."""
    return code(package) if style == "letters" else f"OFFER {phrase(package)}"


def read_offer(text: str, counts: tuple[int, ...]) -> Package | None:
    """The package of `OFFER 1 book, 2 hats`, what is not named being 0; None: it is none, or there is not so much."""
    match = _OFFER.fullmatch(text)
    if match is None:
        return None
    names, said = NAMES[: len(counts)], match[1].strip().rstrip(".")
    found: dict[str, int] = {}
    for part in [] if said == "nothing" else re.split(r", and |, | and ", said):
        read = _PART.fullmatch(part)
        if read is None or read[2] not in names or read[2] in found:
            return None
        found[read[2]] = int(read[1])
    package = tuple(found.get(name, 0) for name in names)
    return package if all(number <= most for number, most in zip(package, counts, strict=True)) else None


def prices(values: tuple[int, ...]) -> str:
    """What one thing of each kind is worth: `a book 3, a hat 0`."""
    return ", ".join(f"a {name} {value}" for name, value in zip(NAMES, values, strict=False))


def _count(number: int, name: str) -> str:
    return f"{number} {name}" if number == 1 else f"{number} {name}s"
