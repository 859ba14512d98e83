"""`mas cluster status`: a run that trains, has ended, was killed or cannot be seen, and one clear line for mistakes."""

import io
import json
import re
import time
from collections.abc import Callable, Iterator
from itertools import takewhile
from pathlib import Path
from typing import Any

import msgspec
import pytest
from rich.console import Console

from mas.cluster.records import ProcessStatus
from mas.config.load import load_config
from mas.core.host import ProcessId, this_process
from mas.observe.files import write_json_file
from mas.observe.run_directory import RunDirectory
from mas.runs.cluster_status import ClusterRunStatus, run_status, watch_status
from mas.training.cluster_status import BatchStatus, ClusterStatus

Mas = Callable[..., Any]
WORKER = ProcessStatus(
    name="rollout-0", kind="rollout", pid=77, node="b7", state="alive", restarts=2, calls=5, rss_bytes=3 << 30
)
BATCH = BatchStatus(step=8, groups=16, is_sampled=False, versions={"planner": 6}, ages={"planner": 1})


@pytest.fixture
def run(tmp_path: Path) -> Path:
    path = tmp_path / "run"
    config = load_config(["scenario=relay", "train.staleness=1", f"run_dir='{path}'"])
    with RunDirectory.open(path, config.model_dump(mode="json"), resume=False):
        pass
    return path


def write(run: Path, process: ProcessId | None = None, ended: str = "", age_s: float = 0.0, **changed: Any) -> None:
    fields: dict[str, Any] = {
        "process": this_process() if process is None else process,
        "written_s": time.time() - age_s,
        "ended": ended,
        "step": 7,
        "steps": 9,
        "phase": "sampling",
        "kind": "ray",
        "staleness": 1,
        "versions": {"planner": 7},
        "held": ["planner@6", "planner@7"],
        "batches": [BATCH],
        "groups_dropped": 4,
        "members": [WORKER],
    }
    write_json_file(run / "cluster.json", ClusterStatus(**fields | changed))


def gone() -> ProcessId:
    """A process whose number another one has by now."""
    here = this_process()
    return msgspec.structs.replace(here, started=(here.started or 0) + 1)


def elsewhere() -> ProcessId:
    return msgspec.structs.replace(this_process(), machine="another", host="node-3")


def cells(out: str, title: str) -> list[list[str]]:
    """Of every row of a table, the head first."""
    table = out.partition(title)[2].partition("\n")[2]
    lines = takewhile(lambda line: not line[:1].isupper(), table.splitlines())
    return [re.split(" {2,}", line.strip()) for line in lines]


def test_a_run_that_trains_shows_processes_batches_and_versions(mas: Mas, run: Path, tmp_path: Path) -> None:
    write(run)
    file = tmp_path / "status.json"
    ran = mas("cluster", "status", str(run), "--json", str(file))
    assert ran.code == 0, ran.err
    assert "step 7 of 9 done, sampling; written " in ran.out
    assert f"process {this_process().pid} on {this_process().host} trains\n" in ran.out
    assert "adapters now: planner@7; held: planner@6 planner@7" in ran.out
    assert "staleness k = 1; batches in flight: 1; groups dropped as too old and played again: 4" in ran.out
    assert cells(ran.out, "Batches in flight") == [
        ["step", "groups", "is", "sampled with", "updates behind"],
        ["8", "16", "in sampling", "planner@6", "1"],
    ]
    assert cells(ran.out, "Processes (cluster=ray)") == [
        ["process", "kind", "pid", "node", "state", "restarts", "calls", "memory"],
        ["rollout-0", "rollout", "77", "b7", "alive", "2", "5", "3.0 GiB"],
    ]
    stored = json.loads(file.read_text())
    assert (stored["state"], stored["cluster"]["members"][0]["calls"]) == ("running", 5)
    assert 0 <= stored["age_s"] < 60


@pytest.mark.parametrize(
    ("given", "state", "said", "code"),
    [
        ({"age_s": 100}, "running", "trains, and has written nothing for 2 min", 0),
        ({"ended": "9 steps done", "process": gone()}, "ended", "has ended: 9 steps done", 0),
        ({"process": gone()}, "gone", "it was killed. The same command resumes the run", 1),
        ({"process": elsewhere()}, "unseen", "on node-3 cannot be seen from this machine or container\n", 0),
        ({"process": elsewhere(), "age_s": 100}, "unseen", "and may have ended\n", 0),
    ],
)
def test_what_has_become_of_the_process_is_said(
    mas: Mas, run: Path, given: dict[str, Any], state: str, said: str, code: int
) -> None:
    write(run, **given)
    ran = mas("cluster", "status", str(run))
    assert said in ran.out
    assert ran.code == code
    assert ("as they were last seen" in ran.out) == (state != "running")
    assert run_status(run).state == state


def test_a_file_from_somebody_else_does_not_write_to_the_terminal(mas: Mas, run: Path) -> None:
    evil = msgspec.structs.replace(WORKER, name="\x1b[2J[red]a", node="[link=x]b")
    write(run, ended="\x1b]0;title\x07", kind="[bold]", members=[evil], held=["\x1b[31m"])
    ran = mas("cluster", "status", str(run))
    assert "\x1b" not in ran.out
    assert r"\x1b[2J[red]a" in ran.out
    assert "[link=x]b" in ran.out
    assert "(cluster=[bold])" in ran.out


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (None, "has no cluster.json: a training writes it while it has further processes, such as cluster.workers=N"),
        (b"{", "is no status of a cluster"),
        (b'{"process": 1}', "is no status of a cluster"),
    ],
)
def test_a_run_without_a_status_is_one_line(mas: Mas, run: Path, content: bytes | None, said: str) -> None:
    if content is not None:
        (run / "cluster.json").write_bytes(content)
    ran = mas("cluster", "status", str(run))
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err


def test_what_is_no_run_is_one_line(mas: Mas, tmp_path: Path) -> None:
    ran = mas("cluster", "status", str(tmp_path / "nothing"))
    assert ran.code == 2
    assert "holds no run" in ran.err


def following(found: list[str], run: Path) -> Iterator[ClusterRunStatus]:
    for ended in found:
        write(run, ended=ended)
        yield run_status(run)


def test_watching_ends_with_the_run(run: Path) -> None:
    out, waits = io.StringIO(), list[None]()
    statuses = following(["", "", "9 steps done", "never read"], run)
    last = watch_status(
        next(statuses), lambda: next(statuses), Console(file=out, width=200), wait=lambda: waits.append(None)
    )
    assert (last.state, len(waits)) == ("ended", 2)
    assert [out.getvalue().count(text) for text in (" trains\n", "has ended: 9 steps done")] == [2, 1]


def test_an_interrupt_ends_watching_with_what_was_seen_last(run: Path) -> None:
    def interrupt() -> None:
        raise KeyboardInterrupt

    write(run)
    terminal = Console(file=io.StringIO(), width=200, force_terminal=True)
    assert watch_status(run_status(run), lambda: run_status(run), terminal, wait=interrupt).state == "running"


def test_the_command_watches_a_run_that_has_ended_once(mas: Mas, run: Path) -> None:
    write(run, ended="9 steps done")
    ran = mas("cluster", "status", str(run), "--watch")
    assert (ran.code, ran.out.count("has ended")) == (0, 1)
