"""What the list of runs and the head of a run's page say of a run: where it stands, its numbers, its time."""

import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from mas.config.stored_run import load_run_config
from mas.core.errors import MasError
from mas.observe.durations import clock_time, rough_time, seconds_spent
from mas.observe.progress import format_number
from mas.observe.report_records import STEP_PARTS, KeyNumber, throughput
from mas.runs.report import command_again
from mas.studio.metric_columns import MetricColumns
from mas.studio.run_status import RunStatus
from mas.studio.runs import StudioRun

_LONGEST = 200
"""Characters of a configured name that are shown."""
_CONFIGURING = threading.Lock()
"""Hydra composes one configuration at a time."""
_MOST_STATE = 2**20


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRow:
    """One run in the list.

    Attributes:
        status: None where it cannot be read; `problem` says why then, and is empty otherwise.
        changed: when its metrics last changed, in words.
    """

    run: StudioRun
    scenario: str
    algorithm: str
    model: str
    status: RunStatus | None
    changed: str
    problem: str

    @property
    def changed_s(self) -> float:
        """Seconds since 1970; 0 without metrics."""
        return (self.status.changed_s if self.status is not None else None) or 0.0


def row_of(run: StudioRun) -> RunRow:
    """What the list says of a run; never an error."""
    status, problem = None, ""
    try:
        status = run.status()
    except (OSError, MasError) as error:
        problem = str(error)
    changed_s = None if status is None else status.changed_s
    return RunRow(
        run=run,
        scenario=_name(run.option("scenario.name")),
        algorithm=_name(run.option("algorithm.name")),
        model=_name(run.option("model.path")),
        status=status,
        changed="" if changed_s is None else f"{rough_time(max(time.time() - changed_s, 0))} ago",
        problem=problem,
    )


def _name(value: Any) -> str:
    if not isinstance(value, str | int | float):
        return "–"
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def key_numbers(columns: MetricColumns, status: RunStatus) -> list[KeyNumber]:
    """Success before and after, steps, tokens, throughput and time."""
    numbers = []
    for kind in ("greedy", "sampled"):
        values = [value for _, value in columns.points(f"eval/{kind}/success")]
        if values:
            before = format_number(values[0]) if len(values) > 1 else None
            after = format_number(values[-1])
            numbers.append(KeyNumber(label=f"success, {kind}", before=before, after=after, note="on held-out tasks"))
    done = 0 if status.step is None else status.step
    steps = "" if status.steps is None else f"of {status.steps}"
    numbers.append(KeyNumber(label="steps done", after=str(done), note=steps))
    tokens = columns.last("tokens")
    if tokens is not None:
        numbers.append(KeyNumber(label="tokens sampled", after=format_number(round(tokens)), note="prompts included"))
    seconds = {part: columns.total(f"seconds/{part}") for part in STEP_PARTS}
    timed = len(columns.points("seconds/sample"))
    speed = throughput(columns.last("completion_tokens") or 0.0, seconds, timed)
    if speed is not None:
        numbers.append(speed)
    whole = sum(time_spent(columns).values())
    if whole > 0:
        numbers.append(KeyNumber(label="time", after=clock_time(whole), note="of steps and evaluations"))
    return numbers


def time_spent(columns: MetricColumns) -> Mapping[str, float]:
    """Seconds by activity, see `seconds_spent`."""
    parts = ("sample", "environment", "learn", "publish")
    evaluations = [name for name in columns.names if name.startswith("seconds/evaluate/")]
    seconds: dict[str, Any] = {part: columns.total(f"seconds/{part}") for part in parts}
    seconds["evaluate"] = {name: columns.total(name) for name in evaluations}
    return seconds_spent([{"seconds": seconds}])


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterRow:
    """One adapter: its version in the latest checkpoint (None: there is none), and the canary's last and worst gap
    beside what is allowed, in nats a token (None: not measured)."""

    name: str
    version: int | None
    gap: float | None
    worst: float | None
    allowed: float | None
    moved: float | None


def adapter_rows(run: StudioRun, columns: MetricColumns) -> Sequence[AdapterRow]:
    """Every adapter that was trained, with its version and the canary's numbers."""
    names = dict.fromkeys(name.split("/")[1] for name in columns.names if name.startswith(("adapters/", "canary/")))
    versions = _versions(run)
    return [
        AdapterRow(
            name=name,
            version=versions.get(name),
            gap=columns.last(f"canary/{name}/gap"),
            worst=max((value for _, value in columns.points(f"canary/{name}/gap")), default=None),
            allowed=columns.last(f"canary/{name}/allowed"),
            moved=columns.last(f"canary/{name}/from_previous"),
        )
        for name in names
    ]


class _CheckpointState(msgspec.Struct, frozen=True):
    versions: dict[str, int] = {}


def _versions(run: StudioRun) -> Mapping[str, int]:
    """Adapter -> version of the latest checkpoint; empty where there is none or it cannot be read."""
    try:
        steps = sorted(path.name for path in (run.path / "checkpoints").glob("step-*"))
        if not steps:
            return {}
        with run.file(f"checkpoints/{steps[-1]}/state.json").open("rb") as file:
            return msgspec.json.decode(file.read(_MOST_STATE), type=_CheckpointState).versions
    except (OSError, MasError, msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return {}


class AgainCommands:
    """The command that trains a run again, made once per configuration: that takes a while."""

    def __init__(self) -> None:
        self._made: dict[Path, tuple[int, str]] = {}

    def of(self, run: StudioRun) -> str:
        """The command, or a comment that says why there is none."""
        try:
            changed = run.file("config.yaml").stat().st_mtime_ns
        except (OSError, MasError) as error:
            return f"# no command trains it again: {error}"
        with _CONFIGURING:
            if run.path not in self._made or self._made[run.path][0] != changed:
                self._made[run.path] = (changed, _again(run))
            return self._made[run.path][1]


def _again(run: StudioRun) -> str:
    try:
        return command_again(load_run_config(run.path, uses=["code", "file"]))
    except MasError as error:
        return f"# no command trains it again: {error}"
