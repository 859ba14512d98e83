"""Contract suites without pytest's runner: every test of a suite as one property that holds or does not.

for finding in properties(MySuite()):
    print(finding.name, finding.why or "ok")
"""

import ast
import itertools
import linecache
import sysconfig
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import msgspec

from mas.core.errors import MasError

_NOT_THE_USERS = (Path(__file__).parents[1], *map(Path, (sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"))))
_LONGEST = 160
"""Characters of a value in a reason."""


class PropertyFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One property of one part. `why`: what is wrong; None: it holds."""

    name: str
    why: str | None = None


def properties(suite: object) -> Iterator[PropertyFinding]:
    """What each test of a suite finds, in the order in which they are written, those of base classes first."""
    names = dict.fromkeys(name for kind in reversed(type(suite).__mro__) for name in vars(kind))
    for name in names:
        if name.startswith("test_"):
            yield held(name.removeprefix("test_").replace("_", " "), partial(_run, getattr(suite, name)))


def held(name: str, check: Callable[[], object]) -> PropertyFinding:
    """Whether a check raises nothing."""
    try:
        check()
    except Exception as error:  # noqa: BLE001 - a user's code may raise anything
        return PropertyFinding(name=name, why=_reason(error))
    return PropertyFinding(name=name)


def _run(test: Callable[..., object]) -> None:
    """Call a test, with every combination of what it is parametrised with."""
    marks = [mark for mark in getattr(test, "pytestmark", ()) if mark.name == "parametrize"]
    names = [[word.strip() for word in mark.args[0].split(",")] for mark in marks]
    for values in itertools.product(*(mark.args[1] for mark in marks)):
        given: dict[str, Any] = {}
        for group, value in zip(names, values, strict=True):
            given |= dict(zip(group, value if len(group) > 1 else (value,), strict=True))
        test(**given)


def _reason(error: Exception) -> str:
    """One line: an error's text, or the assertion that failed with what its names stand for."""
    if isinstance(error, AssertionError):
        return str(error).strip() or _last_assertion(error.__traceback__) or "an assertion failed"
    if isinstance(error, MasError):
        return " ".join(str(error).split())
    return " ".join(f"{type(error).__name__}: {error}{_place(error.__traceback__)}".split())


def _place(traceback: TracebackType | None) -> str:
    """The last line on the way to an error that is neither of mas nor of an installed package: a user's."""
    place = ""
    while traceback is not None:
        code, file = traceback.tb_frame.f_code, Path(traceback.tb_frame.f_code.co_filename)
        if file.is_file() and not any(file.is_relative_to(folder) for folder in _NOT_THE_USERS):
            place = f" ({file.name}, line {traceback.tb_lineno}, in {code.co_name})"
        traceback = traceback.tb_next
    return place


def _last_assertion(traceback: TracebackType | None) -> str:
    """The last `assert` on the way to an error, and the values of its names."""
    found = ""
    while traceback is not None:
        line = linecache.getline(traceback.tb_frame.f_code.co_filename, traceback.tb_lineno).strip()
        if line.startswith("assert "):
            found = f"not true: {line.removeprefix('assert ')}{_values(line, traceback.tb_frame)}"
        traceback = traceback.tb_next
    return found


def _values(line: str, frame: FrameType) -> str:
    try:
        tree = ast.parse(line)
    except SyntaxError:  # an assertion of several lines
        return ""
    names = dict.fromkeys(node.id for node in ast.walk(tree) if isinstance(node, ast.Name))
    known = [f"{name} = {_short(frame.f_locals[name])}" for name in names if name in frame.f_locals and name != "self"]
    return f" ({', '.join(known)})" if known else ""


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
