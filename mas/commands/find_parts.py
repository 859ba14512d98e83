"""What `mas check` checks: scenarios, roles, algorithms and teams, and how words on the command line name them."""

import ast
from collections.abc import Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from mas.algorithms.base import Algorithm
from mas.algorithms.registry import GROUP, SHIPPED
from mas.core.errors import ConfigError
from mas.core.plugins import offered_names
from mas.core.user_code import is_code, load_module
from mas.roles.build import BUILT_IN
from mas.scenarios import user_class
from mas.scenarios.catalogue import scenario_names

Kind = Literal["scenario", "role", "algorithm", "team"]
Status = Literal["ok", "failed", "note"]
_TEAM_FILES = (".yaml", ".yml")
_EXAMPLE = "path/file.py:NAME"


class Part(NamedTuple):
    """What is checked: `name` as commands call it."""

    kind: Kind
    name: str


class CheckedProperty(msgspec.Struct, frozen=True, kw_only=True):
    """One property of a part. `status`: `ok`, `failed`, or `note`, for one that some parts rightly do not have; `why`:
    what was found, empty where it holds."""

    part: str
    kind: Kind
    name: str
    status: Status
    why: str = ""


def find_parts(words: Sequence[str]) -> list[Part]:
    """What words name.

    Raises:
        ConfigError: one names nothing that can be checked.
    """
    return list(dict.fromkeys(part for word in words for part in _named(word)))


def _named(word: str) -> list[Part]:
    kinds: Mapping[Kind, Sequence[str]] = {
        "scenario": scenario_names(),
        "algorithm": [*SHIPPED, *offered_names(GROUP)],
        "role": list(BUILT_IN),
    }
    if known := [Part(kind, word) for kind, names in kinds.items() if word in names]:
        return known  # before a folder of that name, in which a scenario of one's own is often kept
    if Path(word).is_dir():
        found = [part for path in sorted(Path(word).iterdir()) for part in _in_folder(path)]
        if not found:
            raise ConfigError(
                f"{word}: no scenario, role, algorithm or team stands in this directory. `mas new scenario NAME` "
                "writes one to begin with; FILE.py or TEAM.yaml names one elsewhere"
            )
        return found
    if word.endswith(_TEAM_FILES):
        if not Path(word).is_file():
            raise ConfigError(f"there is no file {word}; a relative path starts at {Path.cwd()}")
        return [Part("team", word)]
    if is_code(word):
        return _in_code(word)
    near = get_close_matches(word, [name for names in kinds.values() for name in names], n=3)
    hint = f" Did you mean {' or '.join(map(repr, near))}?" if near else ""
    raise ConfigError(
        f"{word!r} is no file, directory, scenario, algorithm or role.{hint} What stands in a file is written "
        f"{_EXAMPLE} or TEAM.yaml; `mas scenarios` and `mas algorithms` list the names"
    )


def _in_folder(path: Path) -> list[Part]:
    """The parts of a file; of one that looks like none of ours nothing is imported."""
    name = str(path)
    if path.suffix in _TEAM_FILES:
        text = path.read_text(encoding="utf-8", errors="replace")
        return [Part("team", name)] if "\nroles:" in f"\n{text}" else []
    is_test = path.name.startswith("test_") or path.name == "conftest.py"
    if path.suffix != ".py" or is_test or not _may_have_parts(path):
        return []
    return _in_code(name, is_asked=False)


def _may_have_parts(path: Path) -> bool:
    """Whether a file imports mas, or has a class with the methods of a scenario; the file is not imported for that."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return False
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "mas":
            return True
        if isinstance(node, ast.ClassDef):
            methods = {one.name for one in node.body if isinstance(one, ast.FunctionDef)}
            if {"reset", "observe", "step"} <= methods or {"reset", "get_reward"} <= methods:
                return True
    return False


def _in_code(word: str, *, is_asked: bool = True) -> list[Part]:
    """The parts of a file or module, or the one that is named.

    Raises:
        ConfigError: it cannot be imported, or has none and `is_asked`.
    """
    place, _, attribute = (word, "", "") if word.endswith(".py") else word.rpartition(":")
    module = load_module(f"part {word!r}", place, _EXAMPLE)
    found = {
        name: kind
        for name, value in vars(module).items()
        if not name.startswith("_") and (kind := _kind_of(value, module.__name__)) is not None
    }
    if attribute:
        found = {name: kind for name, kind in found.items() if name == attribute}
    if not found and is_asked:
        raise ConfigError(
            f"{word}: no scenario (a class with {', '.join(user_class.NEEDED)}), role (derived from "
            "mas.roles.PromptedRole) or algorithm (mas.algorithms.Algorithm) is there under "
            f"{'this name' if attribute else 'a public name'}"
        )
    return [Part(kind, f"{place}:{name}") for name, kind in found.items()]


def _kind_of(value: object, module: str) -> Kind | None:
    """What an object is; classes that a file only imports are none of its parts."""
    if isinstance(value, Algorithm):
        return "algorithm"
    if not isinstance(value, type) or value.__module__ != module:
        return None
    if all(hasattr(value, name) for name in ("prompt", "chat", "parse")):
        return "role"
    is_scenario = all(callable(getattr(value, name, None)) for name in user_class.NEEDED)
    return "scenario" if is_scenario or user_class.is_tool_class(value) else None
