"""What is wrong with a configuration, in sentences: which key, which value, what is possible, what was meant."""

import re
from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from mas.config.options import Config
from mas.core.naming import did_you_mean

_LONGEST = 80
BRIDGES = ("jaxmarl", "open_spiel", "pettingzoo", "reasoning_gym", "textarena", "textworld")
"""What ids of environments of other libraries begin with."""


def describe(detail: ErrorDetails) -> str:
    """One problem that the option models found, as one sentence or two."""
    place, value = detail["loc"], detail["input"]
    if detail["type"] == "extra_forbidden":
        return unknown_key(place, value)
    if detail["type"] == "value_error":
        return f"{_dotted(place)}: {detail['msg'].removeprefix('Value error, ')}."
    if detail["type"] == "missing":
        return f"{_dotted(place)} must be set."
    key = f"{_dotted(place) or 'the configuration'}={_shown(value)}"
    if detail["type"] == "literal_error":
        names = re.findall(r"'([^']*)'", detail["ctx"]["expected"])
        return f"{key} is not possible. {did_you_mean(str(value), names)}"
    if detail["type"] == "model_type":
        fields = ", ".join(_model_at(place).model_fields)
        return f"{key} is not possible: {_dotted(place)} is a section; set one of its keys: {fields}."
    message = detail["msg"].removeprefix("Input ").removeprefix("String ")
    hint = " (put it in quotes if a text is meant)" if detail["type"] == "string_type" and value is not None else ""
    return f"{key} is not possible: it {message[:1].lower()}{message[1:]}{hint}."


def is_bridged(name: str) -> bool:
    """Whether a name begins as the id of a bridge does, `open_spiel:...`; other names with a colon are code."""
    return name.partition(":")[0] in BRIDGES


def bridged_id(name: str) -> str:
    """The sentence where an environment of another library, as `open_spiel:tic_tac_toe`, is named as a scenario."""
    return (
        f"{name!r} is the id of a bridge, an environment of another library, and not a scenario by itself. Train in "
        f"it: mas train scenario=bridge scenario.options.id={name}. Play it: mas play {name}. See docs/bridges.md"
    )


def unknown_key(place: Sequence[int | str], value: object) -> str:
    """The sentence for a key that does not exist."""
    model, name = _model_at(place[:-1]), str(place[-1])
    while place and place[0] not in Config.model_fields and len(place) > 1:
        place, model = place[:1], Config
        name = str(place[0])
    meant = [key for key in _keys(Config) if key.rpartition(".")[2] == name]
    near = get_close_matches(name, model.model_fields, n=1, cutoff=0.5)
    elsewhere = f" The key {name!r} exists as {' and '.join(map(repr, meant))}." if meant and not near else ""
    return f"no key {_dotted(place)!r} (value {_shown(value)}).{elsewhere} {did_you_mean(name, model.model_fields)}"


def _model_at(place: Sequence[int | str]) -> type[BaseModel]:
    """The option model of a section; of one entry of a mapping, such as `peers.NAME`, the model of its entries."""
    model: type[BaseModel] = Config
    entries: Any = None
    for part in place:
        field = None if entries is not None else model.model_fields.get(str(part))
        found = entries if field is None else field.annotation
        entries = get_args(found)[1] if get_origin(found) is dict else None
        if section := _section(found):
            model = section
        elif entries is None:
            break
    return model


def _section(annotation: Any) -> type[BaseModel] | None:
    """The option model of a key that holds one, or may hold one; None: it never does."""
    if get_origin(annotation) in (dict, tuple):
        return None
    possible = [one for one in (annotation, *get_args(annotation)) if isinstance(one, type)]
    return next((one for one in possible if issubclass(one, BaseModel)), None)


def _keys(model: type[BaseModel], prefix: str = "") -> Iterator[str]:
    for name, field in model.model_fields.items():
        if section := _section(field.annotation):
            yield from _keys(section, f"{prefix}{name}.")
        else:
            yield prefix + name


def _dotted(place: Sequence[int | str]) -> str:
    return ".".join(str(part) for part in place)


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."
