"""Whether an answer is the right one."""

import re
import unicodedata
from collections.abc import Iterable, Sequence
from decimal import Decimal
from string import ascii_uppercase
from typing import Literal

Scorer = Literal["exact", "number", "contains", "choice"]

LETTERS = ascii_uppercase
"""Names of choices, and so the most that a question can have."""
_NUMBER = re.compile(r"(?:(?<![\w)])-)?(?:(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)(?:\.[0-9]+)?|\.[0-9]+)")
"""Commas divide thousands; a minus behind a number or a word is none of the number's."""
_LETTER = re.compile(r"\(?([A-Za-z])\)?[.:)]?")


def is_right(said: str, answer: str, choices: Sequence[str], scorer: Scorer) -> bool:
    """Whether what was said is the answer; nothing said never is."""
    if not said.strip():
        return False
    if scorer == "exact":
        return _without_full_stop(said) == _without_full_stop(answer)
    if scorer == "contains":
        return normal(answer) in normal(said)
    if scorer == "number":
        number = last_number(said)
        return number is not None and number == last_number(answer)
    return chosen(said, choices) == chosen(answer, choices)


def is_answer(said: str, choices: Sequence[str], scorer: Scorer) -> bool:
    """Whether something has the form of an answer."""
    if scorer == "number":
        return last_number(said) is not None
    if scorer == "choice":
        return chosen(said, choices) is not None
    return bool(said.strip())


def normal(text: str) -> str:
    """A text without regard to case, to white space, and to characters that only look different."""
    return " ".join(unicodedata.normalize("NFKC", text).casefold().split())


def _without_full_stop(text: str) -> str:
    """Its normal form without the full stop that ends it."""
    return normal(text).removesuffix(".").rstrip()


def last_number(text: str) -> Decimal | None:
    """The last number in a text, as `1,250.50` or `-3`; None where there is none."""
    found = _NUMBER.findall(text)
    return Decimal(found[-1].replace(",", "")) if found else None


def number_regex(answers: Iterable[str]) -> str:
    """What matches a number that is no longer than the longest of the last numbers in these texts: digits, with a minus
    or decimals where one of them has these."""
    numbers = [number for answer in answers if (number := last_number(answer)) is not None]
    whole, _, rest = zip(*(f"{abs(number):f}".partition(".") for number in numbers), strict=True)
    minus = "-?" if any(number < 0 for number in numbers) else ""
    places = max(map(len, rest))
    decimals = rf"(\.[0-9]{{1,{places}}})?" if places else ""
    return rf"{minus}[0-9]{{1,{max(map(len, whole))}}}{decimals}"


def chosen(text: str, choices: Sequence[str]) -> int | None:
    """Which of the choices a text names: by its own words, else by its letter, as `B`, `b)` or `(B)`."""
    wanted = normal(text)
    for number, choice in enumerate(choices):
        if normal(choice) == wanted:
            return number
    letter = _LETTER.fullmatch(text.strip())
    number = LETTERS.index(letter[1].upper()) if letter else len(choices)
    return number if number < len(choices) else None
