"""What every test takes, as a record: a pytest plugin, loaded by conftest.py.

`--durations-file=FILE` writes JSON at the end of the run: the run's totals, every file's cases and seconds, and every
test function of half a second or more. CPU seconds count subprocesses that were waited for; unlike wall time they say
the same on a busy machine. It works under pytest-xdist, too, where workers measure and the controller writes.

`tests/durations.json` holds the longest that files took, seconds of the clock, in records of whole runs, `default` and
`all`. It only decides an order: under xdist the longest files begin first, so that no worker is left alone with a long
one at the end.
"""

import json
import resource
import time
from collections import Counter
from collections.abc import Generator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from selection import commit

RECORD = Path(__file__).with_name("durations.json")
LISTED_S = 0.5
"""Seconds, of the CPU or of the clock, from which on a test function has a line of its own."""


def cpu_s() -> float:
    """CPU seconds of this process and of its children that ended."""
    used = [resource.getrusage(whose) for whose in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


@dataclass
class Spent:
    """What some tests took. `cases`: tests that ran; seconds hold setup and teardown, too."""

    cases: int = 0
    cpu_s: float = 0.0
    wall_s: float = 0.0

    def add(self, report: pytest.TestReport) -> None:
        self.cases += report.when == "setup"
        self.cpu_s += getattr(report, "cpu_s", 0.0)
        self.wall_s += report.duration


class Meter:
    """Measures where tests run: in this process, or in a worker of xdist."""

    def __init__(self) -> None:
        self._mark = cpu_s()

    def pytest_runtest_logstart(self) -> None:
        self._mark = cpu_s()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        report = yield
        now = cpu_s()
        report.cpu_s = now - self._mark  # xdist carries attributes of a report to its controller
        self._mark = now
        return report

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if (output := getattr(session.config, "workeroutput", None)) is not None:
            output["cpu_s"] = cpu_s()


class Recorder:
    """Collects every report and writes the record."""

    def __init__(self, config: pytest.Config, path: Path) -> None:
        self._config, self._path = config, path
        self._began, self._cpu_s = time.monotonic(), 0.0
        self._outcomes: Counter[str] = Counter()
        self._files: dict[str, Spent] = {}
        self._functions: dict[str, Spent] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        for spent, name in (
            (self._files, report.nodeid.partition("::")[0]),
            (self._functions, report.nodeid.partition("[")[0]),
        ):
            spent.setdefault(name, Spent()).add(report)
        if report.when == "call" or not report.passed:
            self._outcomes[report.outcome if report.when == "call" or report.skipped else "error"] += 1

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: Any) -> None:
        self._cpu_s += getattr(node, "workeroutput", {}).get("cpu_s", 0.0)

    def pytest_sessionfinish(self, exitstatus: int) -> None:
        option = self._config.option
        record = {
            "commit": commit(self._config.rootpath),
            "finished": datetime.now(UTC).isoformat(timespec="seconds"),
            "exit_status": int(exitstatus),
            "cases": "all" if option.all else "default",
            "shard": None if option.all else option.shard,
            "outcomes": dict(sorted(self._outcomes.items())),
            "wall_s": round(time.monotonic() - self._began, 1),
            "cpu_s": round(self._cpu_s or cpu_s(), 1),
            "files": _rounded(self._files, at_least_s=0),
            "functions": _rounded(self._functions, at_least_s=LISTED_S),
        }
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def _rounded(spent: dict[str, Spent], at_least_s: float) -> dict[str, dict[str, float]]:
    """The longest first."""
    longest = sorted(spent.items(), key=lambda item: -item[1].cpu_s)
    return {
        name: {key: round(value, 2) for key, value in asdict(one).items()}
        for name, one in longest
        if max(one.cpu_s, one.wall_s) >= at_least_s
    }


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("mas")
    group.addoption("--durations-file", metavar="FILE", help="write what every test took there, as JSON")


def pytest_configure(config: pytest.Config) -> None:
    config.pluginmanager.register(Meter(), "durations-meter")
    if config.option.durations_file and not hasattr(config, "workerinput"):
        path = Path(config.option.durations_file).absolute()
        config.pluginmanager.register(Recorder(config, path), "durations-recorder")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Under xdist, the longest files first; within a file as written."""
    if hasattr(config, "workerinput") and RECORD.is_file():
        wall_s = json.loads(RECORD.read_text(encoding="utf-8"))["all" if config.option.all else "default"]
        items.sort(key=lambda item: -wall_s.get(item.nodeid.partition("::")[0], 0.0))
