"""What a language model as an editor answers, as operations and texts. Its text is read as JSON, never evaluated."""

import json
import re
from typing import Any

from mas.training.experience.library import one_line
from mas.training.experience.operations import Operation, Refusal

MOST_CHARACTERS = 32_768
"""Of an answer; a longer one is not read at all."""
MOST_ENTRIES = 64
"""Of a list in an answer; further ones are refused."""

_FENCE = re.compile(r"```(?:json)?[ \t]*\n(.*?)\n?[ \t]*```", re.DOTALL)
_KEYS = frozenset({"operation", "id", "content"})


def read_operations(text: str) -> tuple[tuple[Operation, ...], tuple[Refusal, ...]]:
    """The operations of an answer, and what of it is none.

    The answer is a JSON list, alone or in a block fenced by three backticks, of objects such as
    `{"operation": "UPDATE", "id": "G0", "content": "..."}`; ADD has no id, DELETE needs no content.
    """
    entries, refused = _entries(text)
    operations: list[Operation] = []
    for entry in entries:
        read = _operation(entry)
        if isinstance(read, Operation):
            operations.append(read)
        else:
            refused.append(Refusal(_shown(entry), read))
    return tuple(operations), tuple(refused)


def read_experiences(text: str, most: int) -> tuple[tuple[str, ...], tuple[Refusal, ...]]:
    """The texts of an answer that is a JSON list of texts, the first `most` of them."""
    entries, refused = _entries(text)
    texts: list[str] = []
    for entry in entries:
        if not isinstance(entry, str) or not one_line(entry):
            refused.append(Refusal(_shown(entry), "it is no text"))
        elif len(texts) == most:
            refused.append(Refusal(_shown(entry), f"only {most} experiences were asked for"))
        else:
            texts.append(one_line(entry))
    return tuple(texts), tuple(refused)


def _entries(text: str) -> tuple[list[Any], list[Refusal]]:
    """The list that an answer is; empty, with the reason, where it is none."""
    if len(text) > MOST_CHARACTERS:
        return [], [Refusal(_shown(text), f"the answer has {len(text)} characters, at most {MOST_CHARACTERS} are read")]
    fenced = _FENCE.findall(text)
    if len(fenced) > 1:
        return [], [Refusal(_shown(text), f"the answer has {len(fenced)} fenced blocks, one was asked for")]
    try:
        read = json.loads(fenced[0] if fenced else text, object_pairs_hook=_object, parse_constant=_no_number)
        json.dumps(read, ensure_ascii=False).encode()  # half a character could not be put into a prompt
    except (ValueError, RecursionError) as error:
        return [], [Refusal(_shown(text), f"the answer is no JSON: {error}")]
    if not isinstance(read, list):
        return [], [Refusal(_shown(text), "the answer is no JSON list")]
    rest = read[MOST_ENTRIES:]
    return read[:MOST_ENTRIES], [Refusal(_shown(one), f"only {MOST_ENTRIES} entries are read") for one in rest]


def _operation(entry: object) -> Operation | str:
    """The operation that an entry is, or why it is none."""
    if not isinstance(entry, dict):
        return "it is no JSON object"
    if unknown := sorted(entry.keys() - _KEYS):
        return f"it has the key {unknown[0]!r}; possible: {sorted(_KEYS)}"
    kind, target, text = entry.get("operation"), entry.get("id"), entry.get("content")
    if kind not in ("ADD", "UPDATE", "DELETE"):
        return f"its operation is {kind!r}; possible: 'ADD', 'UPDATE', 'DELETE'"
    if not isinstance(text, str | None) or not isinstance(target, str | None):
        return "its id or its content is no text"
    if kind == "ADD":
        return Operation("ADD", None, text or "") if target is None else "an ADD has no id"
    return Operation(kind, target, "" if kind == "DELETE" else text or "")


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(pairs)
    if len(read) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return read


def _no_number(name: str) -> float:
    raise ValueError(f"{name} is no number in JSON")


def _shown(entry: object) -> str:
    return one_line(entry if isinstance(entry, str) else str(entry))[:120]
