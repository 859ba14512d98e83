"""From the rows of a file to questions in two disjoint splits; whatever is wrong is said with its line."""

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from itertools import product
from string import ascii_uppercase
from typing import Any, Literal, NamedTuple

import msgspec

from mas.core.errors import ConfigError
from mas.core.scenario import Split
from mas.core.seeds import derive_seed
from mas.scenarios.rows import DataRow, field_of, read_rows, shown, split_of

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
    return picked(said, choices) == chosen(answer, choices)


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
    return _lettered(text, choices)


def picked(said: str, choices: Sequence[str]) -> int | None:
    """The choice that an answer means.

    Solvers are shown letters, so a letter names its choice even where it is also the text of another one: of the blood
    types `A) B` and `B) A`, the answer A means the first.
    """
    number = _lettered(said, choices)
    return chosen(said, choices) if number is None else number


def _lettered(text: str, choices: Sequence[str]) -> int | None:
    letter = _LETTER.fullmatch(text.strip())
    number = LETTERS.index(letter[1].upper()) if letter else len(choices)
    return number if number < len(choices) else None


class QuestionRecord(msgspec.Struct, frozen=True):
    """A question with its answer. `choices`: what it can be, empty where it can be anything."""

    text: str
    answer: str
    choices: tuple[str, ...] = ()

    @property
    def shown(self) -> str:
        """The question as solvers read it, with one line per choice."""
        named = [f"{letter}) {choice}" for letter, choice in zip(LETTERS, self.choices, strict=False)]
        return "\n".join([self.text, *named])

    @property
    def content(self) -> str:
        """What tells it from others, whatever the order of its choices: of two that differ in nothing else, one cannot
        be held out."""
        return "\n".join([normal(self.text), *sorted(map(normal, self.choices))])


Questions = Mapping[Split, tuple[QuestionRecord, ...]]


class Fields(NamedTuple):
    """Names of fields. `choices` None: answers are free; `split` None: rows do not say their split. `needs_answer`:
    whether every row must have the field of the answer, which else is empty where it is no text and no number; a
    function judges then, which reads the row.
    """

    question: str
    answer: str
    choices: str | None = None
    split: str | None = None
    needs_answer: bool = True


def read_questions(
    path: str, fields: Fields, scorer: Scorer, eval_share: float
) -> tuple[Questions, Mapping[QuestionRecord, Mapping[str, Any]]]:
    """The questions of a file, and the row of each; of questions that are equal the first one's.

    Raises:
        ConfigError: it cannot be read, a row does not have what the fields and the scorer want, a question is in both
            splits, a split is empty, or rows that a function reads differ and have one question.
    """
    splits: dict[Split, list[QuestionRecord]] = {"train": [], "eval": []}
    rows: dict[QuestionRecord, Mapping[str, Any]] = {}
    places: dict[QuestionRecord, str] = {}
    first: dict[str, tuple[Split, str]] = {}
    for row in read_rows(path):
        question = _question(row, fields, scorer)
        split = split_of(row, fields.split) or ("eval" if in_eval(question, eval_share) else "train")
        other, where = first.setdefault(question.content, (split, row.where))
        if other != split:
            raise ConfigError(
                f"{row.where}: this question is in split {split!r}, and in {other!r} at {where}: what is evaluated "
                "must not be trained on; remove one"
            )
        splits[split].append(question)
        if rows.setdefault(question, row.values) != row.values and not fields.needs_answer:
            raise ConfigError(
                f"{row.where}: this question is at {places[question]}, too, with other fields, and a reward function "
                "would be given one row for both; remove one, or let the questions differ"
            )
        places.setdefault(question, row.where)
    for split, found in splits.items():
        if not found:
            named = fields.split
            remedy = "change eval_share, or add more" if named is None else f"let field {named!r} say so of some"
            raise ConfigError(f"{path}: no question is in split {split!r}; {remedy}")
    return {split: tuple(found) for split, found in splits.items()}, rows


def in_eval(question: QuestionRecord, share: float) -> bool:
    """Whether its content puts a question into the evaluation, of which that is so with this share."""
    return derive_seed("questions", question.content) < share * 2**63


def _question(row: DataRow, fields: Fields, scorer: Scorer) -> QuestionRecord:
    text = field_of(row, fields.question)
    if not isinstance(text, str) or not text.strip():
        raise ConfigError(
            f"{row.where}: field {fields.question!r} is {shown(text)}; a question is a text that is not empty"
        )
    if not fields.needs_answer:
        value = row.values.get(fields.answer)
        has_answer = isinstance(value, str | int | float) and not isinstance(value, bool)
        return QuestionRecord(text.strip(), str(value).strip() if has_answer else "")
    choices = () if fields.choices is None else _choices(row, fields.choices)
    answer = _answer(row, fields.answer, choices)
    if not is_answer(answer, choices, scorer):
        wanted = f"one of the choices {list(choices)}, its letter or its number from 0" if choices else "a number"
        raise ConfigError(f"{row.where}: field {fields.answer!r} is {shown(answer)}; {wanted} was expected")
    return QuestionRecord(text.strip(), answer, choices)


def _choices(row: DataRow, field: str) -> tuple[str, ...]:
    value = field_of(row, field)
    if not _is_list_of_texts(value) or not 2 <= len(value) <= len(LETTERS):
        raise ConfigError(
            f"{row.where}: field {field!r} is {shown(value)}; a list of 2 to {len(LETTERS)} texts was expected"
        )
    if len({normal(choice) for choice in value}) < len(value):
        raise ConfigError(f"{row.where}: field {field!r} is {shown(value)}, which has a choice twice")
    return tuple(value)


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str) and all(isinstance(one, str) for one in value)


def _answer(row: DataRow, field: str, choices: Sequence[str]) -> str:
    value = field_of(row, field)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not choices:
            return str(value)
        if value in range(len(choices)):
            return choices[int(value)]
    elif isinstance(value, str) and value.strip():
        number, letter = chosen(value, choices), _lettered(value, choices)
        if letter is not None and number != letter:
            raise ConfigError(
                f"{row.where}: field {field!r} is {shown(value)}, the words of one choice and the letter of another, "
                f"{choices[letter]!r}; write the number of the right one, from 0"
            )
        return value.strip() if number is None else choices[number]
    wanted = f"a choice, its letter, or a number below {len(choices)}" if choices else "a number or a text"
    raise ConfigError(f"{row.where}: field {field!r} is {shown(value)}; {wanted} was expected")


DIGITS = "0123456789"


@lru_cache(maxsize=8)
def largest_digits(eval_share: float) -> Questions:
    """All four-digit questions, split by content."""
    every = [QuestionRecord("".join(four), max(four)) for four in product(DIGITS, repeat=4)]
    return {
        "train": tuple(one for one in every if not in_eval(one, eval_share)),
        "eval": tuple(one for one in every if in_eval(one, eval_share)),
    }
