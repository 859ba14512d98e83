"""The command `mas check`: the contract suites of `mas.testing` on scenarios, roles, algorithms and teams."""

import ast
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from difflib import get_close_matches
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, NamedTuple

import msgspec
import typer
from rich.console import Console
from rich.text import Text

from mas.algorithms.base import Algorithm
from mas.algorithms.registry import SHIPPED
from mas.algorithms.registry import installed as installed_algorithms
from mas.core.errors import ConfigError, MissingPackage
from mas.core.printable import printable
from mas.core.user_code import is_code, load_module
from mas.observe.files import check_json_file, write_json_file
from mas.observe.trust_option import Trust
from mas.roles.build import BUILT_IN
from mas.runs.overrides import JsonFile
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


def check(
    parts: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="PART",
            help="FILE.py, FILE.py:NAME, package.module:NAME, TEAM.yaml, a directory or a name that mas knows; "
            "default: this directory. scenario=NAME and scenario.options.KEY=VALUE: where teams and algorithms play",
        ),
    ] = None,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", help="print only what fails")] = False,
    json: JsonFile = None,
    trust: Trust = False,
) -> None:
    """Run the contract suites on scenarios, roles, algorithms and teams of your own. Exit code 1 if one fails.

    A Python file is imported, and so its code runs. Classes that a team's file names need `--trust`, as elsewhere.
    """
    check_json_file(json)
    overrides = [word for word in parts or [] if "=" in word]
    found = find_parts([word for word in parts or [] if "=" not in word] or ["."])
    _check_suites()
    from mas.commands.check_parts import checked

    console, results = Console(quiet=json == Path("-")), list[CheckedProperty]()
    for part in found:
        if not quiet:
            console.print(Text.assemble((printable(part.name), "bold"), f"  {part.kind}"), soft_wrap=True)
        with nullcontext() if quiet else console.status("checking"):  # at a terminal alone: a suite takes seconds
            for one in checked(part, overrides):
                results.append(one)
                if one.status != "ok" or not quiet:
                    console.print(_line(one, has_part=quiet), soft_wrap=not console.is_terminal)
    failed = [one for one in results if one.status == "failed"]
    if not quiet:
        count = f"{len(results)} properties of {len(found)} part{'s' * (len(found) > 1)}"
        console.print(Text(f"{count}, {len(failed)} failed", style="bold red" if failed else "bold green"))
    if json is not None:
        write_json_file(json, results)
    if failed:
        raise typer.Exit(1)


def _line(one: CheckedProperty, *, has_part: bool) -> Text:
    style = {"ok": "green", "failed": "bold red", "note": "yellow"}[one.status]
    where = f"{one.part}: " if has_part else ""
    why = f": {one.why}" if one.why else ""
    return Text.assemble((f"  {one.status:<7}", style), printable(f"{where}{one.name}{why}"))


def _check_suites() -> None:
    """Refuse to go on without what the suites are written with.

    Raises:
        MissingPackage: pytest or hypothesis is not installed.
    """
    for name in ("pytest", "hypothesis"):
        if find_spec(name) is None:
            raise MissingPackage(f"mas check needs {name}: pip install 'mas[test]'")


def find_parts(words: Sequence[str]) -> list[Part]:
    """What words name.

    Raises:
        ConfigError: one names nothing that can be checked.
    """
    return list(dict.fromkeys(part for word in words for part in _named(word)))


def _named(word: str) -> list[Part]:
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
    kinds: Mapping[Kind, Sequence[str]] = {
        "scenario": scenario_names(),
        "algorithm": [*SHIPPED, *installed_algorithms()],
        "role": list(BUILT_IN),
    }
    if found := [Part(kind, word) for kind, names in kinds.items() if word in names]:
        return found
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
