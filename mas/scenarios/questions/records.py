"""From the rows of a file to questions in two disjoint splits; whatever is wrong is said with its line."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import msgspec

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.scenario import Split
from mas.core.seeds import derive_seed
from mas.scenarios.questions.scoring import LETTERS, Scorer, chosen, is_answer, normal
from mas.scenarios.rows import DataRow, read_rows, shown

_SPLITS: Mapping[str, Split] = {
    "train": "train",
    "eval": "eval",
    "test": "eval",
    "validation": "eval",
}


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
        """What tells it from others: of two that differ in nothing else, one cannot be held out."""
        return "\n".join(normal(part) for part in (self.text, *self.choices))


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
        split = _split(row, fields.split, question, eval_share)
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
            raise ConfigError(f"{path}: no question is in split {split!r}; {_remedy(fields.split)}")
    return {split: tuple(found) for split, found in splits.items()}, rows


def in_eval(question: QuestionRecord, share: float) -> bool:
    """Whether its content puts a question into the evaluation, of which that is so with this share."""
    return derive_seed("questions", question.content) < share * 2**63


def _remedy(split: str | None) -> str:
    return "change eval_share, or add more" if split is None else f"let field {split!r} say so of some"


def _question(row: DataRow, fields: Fields, scorer: Scorer) -> QuestionRecord:
    text = _value(row, fields.question)
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
    value = _value(row, field)
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
    value = _value(row, field)
    if isinstance(value, int | float) and not isinstance(value, bool):
        if not choices:
            return str(value)
        if value in range(len(choices)):
            return choices[int(value)]
    elif isinstance(value, str) and value.strip():
        number = chosen(value, choices)
        return value.strip() if number is None else choices[number]
    wanted = f"a choice, its letter, or a number below {len(choices)}" if choices else "a number or a text"
    raise ConfigError(f"{row.where}: field {field!r} is {shown(value)}; {wanted} was expected")


def _split(row: DataRow, field: str | None, question: QuestionRecord, eval_share: float) -> Split:
    name = row.split if field is None else _value(row, field)
    if name is None and field is None:
        return "eval" if in_eval(question, eval_share) else "train"
    if not isinstance(name, str) or name not in _SPLITS:
        source = "its split" if field is None else f"field {field!r}"
        raise ConfigError(f"{row.where}: {source} is {shown(name)}. {did_you_mean(str(name), _SPLITS)}")
    return _SPLITS[name]


def _value(row: DataRow, field: str) -> Any:
    if field not in row.values:
        raise ConfigError(f"{row.where} has no field {field!r}. {did_you_mean(field, map(str, row.values))}")
    return row.values[field]
