"""How large and how tangled `mas` is, beside what it is to become: `make house`.

Every number is counted from the tree as it is, nothing is kept. The exit code is 0 whatever the numbers are.

* Lines: of Python in each package, and those of code: without blank lines, comments and docstrings.
* A training step: see `walk.py`. `relay`, `at_grpo`, a tiny base.
* Climbs of `config`: parameters and fields annotated `Config` in the packages at or below `training` and `scenarios`,
  except `config`. Below the place where a configuration is resolved nothing should receive all of it.
* Options: leaves of `algorithm.*`, fields whose type holds no further options; those whose class is in `mas/config`,
  and those that can be set beside any algorithm: the others are parts of an algorithm (`mas.config.owned`).
* Circles: sets of modules that import each other, directly or through others; imports within functions count. Those
  that only type checkers see (TYPE_CHECKING) are in a second row, folders that import each other in a third.
* Names of classes that several modules of `mas` define; functions of more than 60 lines, from `def` to their end; files
  of more than 300 lines.
"""

import argparse
import ast
import inspect
import io
import json
import sys
import tokenize
import tomllib
import typing
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import grimp
import networkx
from walk import training_step

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "mas"
GOALS = {
    "lines of mas": 55_000,
    "a training step: files": 45,
    "a training step: deepest stack of mas": 16,
    "climbs of config: annotations": 0,
    "options of algorithm.* in mas/config": 0,
    "circles of imports": 0,
    "circles of imports: with type checking": 0,
    "class names defined more than once": 0,
    "functions of more than 60 lines": 0,
}
LONG_FUNCTION, LONG_FILE = 60, 300


@dataclass(frozen=True)
class Source:
    """One file. `name`: of the file in its package, as `bus/memory.py`."""

    name: str
    text: str
    tree: ast.Module = field(repr=False)

    @property
    def package(self) -> str:
        return self.name.partition("/")[0] if "/" in self.name else "(top)"

    @property
    def lines(self) -> int:
        return len(self.text.splitlines())

    @property
    def code_lines(self) -> int:
        """Without blank lines, comments and docstrings."""
        docs = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
        silent = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
        code: set[int] = set()
        for token in tokenize.generate_tokens(io.StringIO(self.text).readline):
            if token.type not in silent:
                code |= set(range(token.start[0], token.end[0] + 1))
        for node in ast.walk(self.tree):
            if isinstance(node, docs) and ast.get_docstring(node, clean=False) is not None:
                code -= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
        return len(code)


@cache
def sources(package: Path) -> tuple[Source, ...]:
    found = [(path, path.read_text(encoding="utf-8")) for path in sorted(package.rglob("*.py"))]
    return tuple(Source(path.relative_to(package).as_posix(), text, ast.parse(text)) for path, text in found)


def lines_of(files: Sequence[Source]) -> dict[str, dict[str, int]]:
    """Package -> its files, lines, and lines of code; the longest first."""
    counted: dict[str, dict[str, int]] = defaultdict(lambda: {"files": 0, "lines": 0, "code": 0})
    for file in files:
        row = counted[file.package]
        row["files"] += 1
        row["lines"] += file.lines
        row["code"] += file.code_lines
    return dict(sorted(counted.items(), key=lambda item: -item[1]["lines"]))


def lower_packages(pyproject: Path) -> set[str]:
    """Packages at or below `training` and `scenarios` in the layers, except `config`: none is to see a `Config`."""
    contracts = tomllib.loads(pyproject.read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers: list[set[str]] = [{name.strip() for name in row.split("|")} for row in contracts[0]["layers"]]
    first = next(index for index, names in enumerate(layers) if "training" in names)
    return set().union(*layers[first:]) - {"config", "conf"}


def climbs(files: Sequence[Source]) -> list[str]:
    """`file:line` of every parameter and every field that is annotated `Config`, where that is mas's."""
    return [
        f"{file.name}:{annotation.lineno}"
        for file in files
        if _is_imported(file.tree)
        for annotation in _annotations(file.tree)
        if any(isinstance(part, ast.Name) and part.id == "Config" for part in ast.walk(annotation))
    ]


def _is_imported(tree: ast.Module) -> bool:
    imports = (node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom))
    return any((node.module or "").startswith("mas.") and "Config" in [a.name for a in node.names] for node in imports)


def _annotations(tree: ast.Module) -> Iterator[ast.expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            given = (*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg)
            yield from (one.annotation for one in given if one is not None and one.annotation is not None)
        elif isinstance(node, ast.ClassDef):
            yield from (part.annotation for part in node.body if isinstance(part, ast.AnnAssign))


def class_names(files: Sequence[Source]) -> dict[str, list[str]]:
    """Names of classes at the top of more than one module -> those modules' files."""
    found: dict[str, list[str]] = defaultdict(list)
    for file in files:
        for node in file.tree.body:
            if isinstance(node, ast.ClassDef):
                found[node.name].append(file.name)
    return {name: where for name, where in sorted(found.items()) if len(where) > 1}


def long_functions(files: Sequence[Source]) -> dict[str, int]:
    """`file:line function` -> its lines, of those that are too long; the longest first."""
    found = {
        f"{file.name}:{node.lineno} {node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for file in files
        for node in ast.walk(file.tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    return dict(sorted(((k, n) for k, n in found.items() if n > LONG_FUNCTION), key=lambda item: -item[1]))


def long_files(files: Sequence[Source]) -> dict[str, int]:
    return dict(sorted(((f.name, f.lines) for f in files if f.lines > LONG_FILE), key=lambda item: -item[1]))


def circles(package: str, *, type_checking: bool = False, folders: bool = False) -> list[list[str]]:
    """Modules, or folders of them, that reach each other by imports; `package` can be imported."""
    graph = grimp.build_graph(package, exclude_type_checking_imports=not type_checking, cache_dir=None)
    arrows = [(module, other) for module in graph.modules for other in graph.find_modules_directly_imported_by(module)]
    if folders:
        place = {m: m if graph.find_children(m) else m.rpartition(".")[0] for m in graph.modules}
        arrows = [(place[module], place[other]) for module, other in arrows]
    found = networkx.strongly_connected_components(networkx.DiGraph(arrows))
    return sorted(sorted(names) for names in found if len(names) > 1)


def options_of(model: type[Any], key: str) -> dict[str, str]:
    """Each leaf of a model of options by its dotted key -> the module of the class that has it."""
    found: dict[str, str] = {}
    for name, about in model.model_fields.items():
        inner = list(_models_in(about.annotation))
        if not inner:
            home = next(c for c in reversed(model.__mro__) if name in inspect.get_annotations(c))
            found[f"{key}.{name}"] = home.__module__
        for one in inner:
            found |= options_of(one, f"{key}.{name}")
    return found


def _models_in(annotation: Any) -> Iterator[type[Any]]:
    if isinstance(annotation, type) and hasattr(annotation, "model_fields"):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _models_in(argument)


def is_open(key: str) -> bool:
    """Whether a key of `algorithm.*` can be set beside any algorithm."""
    from mas.config.owned import is_owned

    return not is_owned(key.removeprefix("algorithm."))


def count() -> dict[str, Any]:
    """All of it, as JSON holds it."""
    from mas.algorithms.parts.options import AlgorithmOptions

    files, lower = sources(PACKAGE), lower_packages(ROOT / "pyproject.toml")
    options, walk = options_of(AlgorithmOptions, "algorithm"), training_step()
    return {
        "packages": lines_of(files),
        "step": {"files": sorted(walk.files), "functions": len(walk.functions), "deepest": walk.deepest},
        "climbs": climbs([file for file in files if file.package in lower]),
        "options": options,
        "circles": circles("mas"),
        "circles_with_type_checking": circles("mas", type_checking=True),
        "circles_of_folders": circles("mas", folders=True),
        "class_names": class_names(files),
        "long_functions": long_functions(files),
        "long_files": long_files(files),
    }


def table(found: dict[str, Any]) -> list[tuple[str, int]]:
    """What is counted, by name."""
    packages, step, climbing = found["packages"].values(), found["step"], found["climbs"]
    return [
        ("files of mas", sum(row["files"] for row in packages)),
        ("lines of mas", sum(row["lines"] for row in packages)),
        ("lines of mas: code", sum(row["code"] for row in packages)),
        ("a training step: files", len(step["files"])),
        ("a training step: functions", step["functions"]),
        ("a training step: deepest stack of mas", len(step["deepest"])),
        ("climbs of config: annotations", len(climbing)),
        ("climbs of config: files", len({place.partition(":")[0] for place in climbing})),
        ("options of algorithm.*", len(found["options"])),
        ("options of algorithm.* in mas/config", sum(m.startswith("mas.config.") for m in found["options"].values())),
        ("options of algorithm.* beside any algorithm", sum(is_open(key) for key in found["options"])),
        ("circles of imports", len(found["circles"])),
        ("circles of imports: with type checking", len(found["circles_with_type_checking"])),
        ("circles of folders", len(found["circles_of_folders"])),
        ("circles of folders: folders", sum(map(len, found["circles_of_folders"]))),
        ("class names defined more than once", len(found["class_names"])),
        ("functions of more than 60 lines", len(found["long_functions"])),
        ("files of more than 300 lines", len(found["long_files"])),
    ]


def main() -> None:
    """Print the tables."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", type=Path, help="write all of it here, with the names and places of what is counted")
    options = parser.parse_args()
    found = count()
    print(f"{'package':14}{'files':>7}{'lines':>9}{'code':>9}")
    for name, row in found["packages"].items():
        print(f"{name:14}{row['files']:7,}{row['lines']:9,}{row['code']:9,}")
    print(f"\n{'counted':40}{'now':>9}{'goal':>9}")
    for name, number in table(found):
        goal = f"{GOALS[name]:,}" if name in GOALS else ""
        print(f"{name:40}{number:9,}{goal:>9}")
    if options.json is not None:
        options.json.parent.mkdir(parents=True, exist_ok=True)
        options.json.write_text(json.dumps(found | {"table": dict(table(found)), "goals": GOALS}, indent=1) + "\n")


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    main()
