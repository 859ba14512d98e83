"""The command `mas cluster status`: what a training does in which process, from the file that it keeps.

It starts nothing and connects to nothing: whether the process that trains still runs is asked of this machine.
"""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Literal

import msgspec
import typer
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from mas.config.stored_run import load_run_config
from mas.config.trust import check_links
from mas.core.host import gib, is_running
from mas.core.printable import printable
from mas.observe.durations import rough_time
from mas.observe.files import check_json_file, write_json_file
from mas.observe.trust_option import Trust
from mas.runs.overrides import JsonFile, RunDir
from mas.training.cluster_status import EVERY_S, BatchStatus, ClusterStatus, read_status

_LATE_S = 15.0
"""A file that is older was not written when it should have been."""
RunState = Literal["running", "ended", "gone", "unseen"]


class ClusterRunStatus(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a run.

    Attributes:
        state: `ended` by itself or with an error; `gone`: its process was killed; `unseen`: on another machine.
        age_s: of what is in `cluster`, which is what the file says.
    """

    run_dir: str
    state: RunState
    age_s: float
    cluster: ClusterStatus


def show_status(
    run_dir: RunDir,
    watch: Annotated[bool, typer.Option("--watch", help="draw it again every two seconds, until the run ends")] = False,
    json: JsonFile = None,
    trust: Trust = False,
) -> None:
    """Show a training's processes, batches in flight and adapter versions; of one that has ended, how it ended.

    Exit code 1: the process that trained was killed.
    """
    check_json_file(json)
    load_run_config(run_dir, uses=())
    check_links(run_dir)

    def read() -> ClusterRunStatus:
        status = run_status(run_dir)
        if json is not None:
            write_json_file(json, status)
        return status

    console = Console()
    status = read()
    if watch:
        status = watch_status(status, read, console)
    else:
        console.print(status_table(status))
    if status.state == "gone":
        raise typer.Exit(1)


def run_status(run: Path) -> ClusterRunStatus:
    """What the file of a run says, and whether its process runs.

    Raises:
        RunDirectoryError: see `read_status`.
    """
    found = read_status(run)
    if found.ended:
        state: RunState = "ended"
    else:
        seen = is_running(found.process)
        state = "unseen" if seen is None else "running" if seen else "gone"
    if state == "gone":
        found = read_status(run)  # it may have ended since
        state = "ended" if found.ended else state
    return ClusterRunStatus(run_dir=str(run), state=state, age_s=max(time.time() - found.written_s, 0.0), cluster=found)


def watch_status(
    status: ClusterRunStatus,
    read: Callable[[], ClusterRunStatus],
    console: Console,
    wait: Callable[[], None] = lambda: time.sleep(EVERY_S),
) -> ClusterRunStatus:
    """Draw it again and again until the run has ended, or Ctrl-C; returns the last."""
    with Live(console=console, auto_refresh=False) as live:
        try:
            while True:
                if console.is_terminal:
                    live.update(status_table(status), refresh=True)
                else:
                    console.print(status_table(status))
                if status.state in ("ended", "gone"):
                    return status
                wait()
                status = read()
        except KeyboardInterrupt:
            return status


def status_table(status: ClusterRunStatus) -> RenderableType:
    """For people."""
    found = status.cluster
    parts: list[RenderableType] = [Text(printable(line)) for line in (*_run_lines(status), *_adapter_lines(found))]
    if found.batches:
        parts.append(_batch_table(found.batches))
    return Group(*parts, _member_table(status))


def _run_lines(status: ClusterRunStatus) -> list[str]:
    found, age = status.cluster, rough_time(status.age_s)
    process = f"process {found.process.pid} on {found.process.host}"
    phase = f", {found.phase}" if found.phase and status.state != "ended" else ""
    late = status.age_s > _LATE_S
    lines = {
        "running": f"{process} trains" + (f", and has written nothing for {age}: it is busy, or was stopped" * late),
        "ended": f"{process} has ended: {found.ended}",
        "gone": f"{process} is gone without a last word: it was killed. The same command resumes the run",
        "unseen": f"{process} cannot be seen from this machine or container" + (", and may have ended" * late),
    }
    step = f"step {found.step} of {found.steps} done{phase}"
    return [f"{status.run_dir}: {step}; written {age} ago", lines[status.state]]


def _adapter_lines(found: ClusterStatus) -> list[str]:
    current = " ".join(f"{name}@{version}" for name, version in found.versions.items())
    return [
        f"adapters now: {current or 'none'}; held: {' '.join(found.held) or 'none'}",
        f"staleness k = {found.staleness}; batches in flight: {len(found.batches)}; groups dropped as too old and "
        f"played again: {found.groups_dropped}",
    ]


def _batch_table(batches: list[BatchStatus]) -> Table:
    table = Table(title="Batches in flight", title_justify="left", box=None, pad_edge=False)
    for column in ("step", "groups", "is", "sampled with", "updates behind"):
        table.add_column(column, justify="left" if column in ("is", "sampled with") else "right", overflow="fold")
    for one in batches:
        versions = " ".join(f"{name}@{version}" for name, version in one.versions.items())
        state = "sampled" if one.is_sampled else "in sampling"
        age = str(max(one.ages.values(), default=0))
        table.add_row(str(one.step), str(one.groups), state, Text(printable(versions)), age)
    return table


def _member_table(status: ClusterRunStatus) -> Table:
    found = status.cluster
    last = "" if status.state == "running" else ", as they were last seen"
    title = Text(printable(f"Processes (cluster={found.kind}){last}"))
    table = Table(title=title, title_justify="left", box=None, pad_edge=False)
    for column in ("process", "kind", "pid", "node", "state", "restarts", "calls", "memory"):
        is_number = column in ("pid", "restarts", "calls", "memory")
        table.add_column(column, justify="right" if is_number else "left", overflow="fold")
    for one in found.members:
        memory = "-" if one.rss_bytes is None else gib(one.rss_bytes)
        pid = "-" if one.pid is None else str(one.pid)
        words = (one.name, one.kind, pid, one.node, one.state, str(one.restarts), str(one.calls), memory)
        table.add_row(*(Text(printable(word)) for word in words))
    return table
