"""The base of all that is read from a client, and how JSON is read."""

import json

from pydantic import BaseModel, ConfigDict

MOST_NESTED = 2**18
"""Opening brackets of a JSON text: a second's work of Python if all of them are lists and objects."""


class Wire(BaseModel):
    """Frozen, no unknown field, no value taken for one of another type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


def read_json(text: str | bytes) -> object:
    """What a JSON text says.

    Raises:
        ValueError: it is no JSON, nests too deeply or too much, or holds half a character, which no tokenizer could
            read, or a number that JSON does not have (NaN, Infinity, 1e999), which no answer could repeat.
    """
    brackets = _brackets(text)
    if brackets > MOST_NESTED:
        raise ValueError(f"it has {brackets} opening brackets, at most {MOST_NESTED} are read")
    try:
        read: object = json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
    json.dumps(read, ensure_ascii=False, allow_nan=False).encode()
    return read


def _brackets(text: str | bytes) -> int:
    return text.count("[") + text.count("{") if isinstance(text, str) else text.count(b"[") + text.count(b"{")
