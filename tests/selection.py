"""Which tests a run takes: a pytest plugin, loaded by conftest.py.

The default run takes every test but what is marked for the nightly run, and of that one shard of 112:

- `@pytest.mark.matrix(names, cases, default=...)` is `parametrize` with an axis that a default run does not need whole:
  it takes the `default` cases and those of the shard. The others are not even collected. Only for an axis that the code
  under test does not read, or whose cases are many of one kind and cost seconds each: moments of a kill, attacks. With
  `shard=False` no default run takes a case that is no default: for those that take tens of seconds each.
- `@pytest.mark.nightly` on a test, class or file (`pytestmark`): only the shard that it is in takes it, a file as a
  whole. `nightly(of=16)` is for one of sixteen runs: what takes seconds, and shows soon enough that something broke.
  `nightly(shard=False)` is for what takes minutes: no default run takes it.

The shard follows from the commit, so that about 112 commits see everything; it is printed at the end of the run.
`--shard N` chooses another, `--all` takes everything (`make test-all`), and so does a test that is named with `::`.
A test without one of the two marks is in every run.
"""

import subprocess
from collections.abc import Callable, Collection, Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

SHARDS = 112


def shard_of(text: str) -> int:
    """0 to 111, the same on every machine: of a commit's hash, or of a test's id."""
    return int.from_bytes(sha256(text.encode()).digest()[:8]) % SHARDS


def commit(root: Path) -> str:
    """The checkout's commit; empty where there is none."""
    git = ["git", "-C", str(root), "rev-parse", "HEAD"]
    try:
        return subprocess.run(git, capture_output=True, text=True, check=False, timeout=10).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mas")
    group.addoption("--all", action="store_true", help="every case of every matrix and what is marked nightly")
    group.addoption(
        "--shard", type=int, choices=range(-1, SHARDS), help="of the nightly cases, -1: none; default: by the commit"
    )


def pytest_configure(config: pytest.Config) -> None:
    """Choose the shard once: xdist hands the options to its workers."""
    if any("::" in word for word in config.args):
        config.option.all = True
    if config.option.shard is None:
        config.option.shard = shard_of(commit(config.rootpath))


def takes(config: pytest.Config, key: str, of: int | None = None) -> bool:
    """Whether this run takes what one default run of so many takes; None: of as many as there are shards."""
    shard, of = config.option.shard, of or SHARDS
    return bool(config.option.all) or (shard >= 0 and shard_of(key) % of == shard % of)


def case_id(case: object) -> str:
    """What stands in a test's brackets for one case."""
    parts = case if isinstance(case, tuple) else (case,)
    return "-".join(getattr(part, "__name__", None) or str(part) for part in parts)


def chosen(
    config: pytest.Config,
    test: str,
    cases: Iterable[Any],
    default: Collection[Any],
    ids: Callable[[Any], str],
    *,
    shard: bool = True,
) -> list[Any]:
    """The cases that this run takes.

    Args:
        shard: whether a default run takes those of its shard, too.

    Raises:
        ValueError: there is no default case, or one that is no case.
    """
    cases = list(cases)
    if not default or any(case not in cases for case in default):
        raise ValueError(f"{test}: default={default!r} must be some of the cases")
    more = [case for case in cases if config.option.all or (shard and takes(config, f"{test}[{ids(case)}]"))]
    return [case for case in cases if case in default or case in more]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    for mark in metafunc.definition.iter_markers("matrix"):
        _parametrize(metafunc, *mark.args, **mark.kwargs)


def _parametrize(
    metafunc: pytest.Metafunc,
    names: str | Sequence[str],
    cases: Iterable[Any],
    *,
    default: Collection[Any],
    ids: Callable[[Any], str] = case_id,
    indirect: bool = False,
    shard: bool = True,
) -> None:
    taken = chosen(metafunc.config, metafunc.definition.nodeid, cases, default, ids, shard=shard)
    metafunc.parametrize(names, taken, ids=[ids(case) for case in taken], indirect=indirect)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.option.all:
        return
    left = {item for item in items if not _is_tonight(config, item)}
    if left:
        config.hook.pytest_deselected(items=[item for item in items if item in left])
        items[:] = [item for item in items if item not in left]


def _is_tonight(config: pytest.Config, item: pytest.Item) -> bool:
    """Whether no nightly mark keeps the test out of this run: its own decides, else that of its class or file."""
    closest = next(item.iter_markers_with_node("nightly"), None)
    if closest is None:
        return True
    node, mark = closest
    return bool(mark.kwargs.get("shard", True)) and takes(config, node.nodeid, mark.kwargs.get("of"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    shard = f"shard {config.option.shard} of {SHARDS}" if config.option.shard >= 0 else "no shard"
    taken = "all cases" if config.option.all else f"default cases and {shard} of the others; make test-all takes all"
    terminalreporter.write_line(f"this run: {taken}")
