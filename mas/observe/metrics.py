"""The numbers of a run, one line per training step, for people (`metrics.jsonl`) and for TensorBoard.

Names nest by role, `{"planner": {"entropy": 1.2}}`; TensorBoard gets the flat `planner/entropy`. JSON knows no NaN:
non-finite numbers are written as the texts `nan`, `inf`, `-inf` and read back as numbers, so a diverged loss stays
one. None means that a metric did not apply at this step; it is kept in the file and left out of TensorBoard.
"""

import math
import os
import re
import secrets
import socket
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from mas.core.errors import RunDirectoryError
from mas.observe.files import JsonLines, read_lines

if TYPE_CHECKING:
    from mas.observe.event_file import EventFile

Metrics: TypeAlias = "Mapping[str, float | Metrics | None]"


class MetricsLog:
    """Appends the metrics of a step; every line is flushed, so it can be followed while the run is alive.

    A step may have several lines, such as one of training and one of evaluation, with no metric in two of them.

    Args:
        path: `metrics.jsonl`; continued when it exists.
        tensorboard: directory of event files, None for none. Each log adds its own file.
        listener: called with the step and the flat metrics of each line once it is written; None: nobody.

    Raises:
        RunDirectoryError: a line other than the last does not parse.
    """

    def __init__(
        self,
        path: Path,
        tensorboard: Path | None = None,
        listener: Callable[[int, Mapping[str, float | None]], None] | None = None,
    ) -> None:
        self._path, self._listener = path, listener
        self._lines = JsonLines(path)
        try:
            self._last_step, self._last_names = _last(path)
            self._events = None if tensorboard is None else _event_file(tensorboard)
        except BaseException:
            self._lines.close()
            raise

    def append(self, step: int, metrics: Metrics) -> None:
        """Write the metrics of one step.

        Raises:
            TypeError: a value is no number, None or mapping; tensors must be turned into floats first.
            ValueError: a name is `step`, empty, or contains `/`.
            RunDirectoryError: the step is before the last one, or has one of these metrics already.
        """
        flat = flatten(metrics)
        again = self._last_names & flat.keys() if step == self._last_step else set()
        if self._last_step is not None and (step < self._last_step or again):
            raise RunDirectoryError(
                f"Step {step} is not after step {self._last_step}, the last in {self._path}"
                f"{f', which has {sorted(again)} already' if again else ''}. "
                f"Call truncate_after with the checkpoint's step before going on from it."
            )
        self._lines.append(step, _writable(metrics))
        self._last_names = flat.keys() | (self._last_names if step == self._last_step else set())
        self._last_step = step
        if self._events is not None:
            self._events.add_values(step, flat)
        if self._listener is not None:
            self._listener(step, flat)

    def truncate_after(self, step: int) -> int:
        """Forget all steps after `step`, the checkpoint's, and return how many there were.

        TensorBoard is told by a session start at `step + 1`, from which on it hides what earlier files say.
        """
        dropped = self._lines.truncate_after(step)
        self._last_step, self._last_names = _last(self._path)
        if self._events is not None:
            self._events.add_start(step + 1)
        return dropped

    def close(self) -> None:
        """Put everything on disk; a second call does nothing."""
        self._lines.close()
        if self._events is not None:
            self._events.close()

    def __enter__(self) -> "MetricsLog":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


_EVENT_FILE = re.compile(r"tfevents\.(\d+)\.")


def _event_file(directory: Path) -> "EventFile":
    """A new event file, which readers take after those there: they sort by name, that is by second."""
    directory.mkdir(parents=True, exist_ok=True)
    seconds = [int(found[1]) for path in directory.glob("*") if (found := _EVENT_FILE.search(path.name))]
    second = max([int(time.time()), *(one + 1 for one in seconds)])  # also where the clock was set back
    name = f"events.out.tfevents.{second}.{socket.gethostname()}.{os.getpid()}.{secrets.token_hex(4)}"
    from mas.observe.event_file import EventFile  # imports TensorBoard, which only what trains needs

    return EventFile(directory / name)


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """One mapping per line, oldest first: `step` and the nested metrics; a torn last line is left out.

    Raises:
        RunDirectoryError: a line other than the last does not parse.
    """
    return [_restored(line) for line in read_lines(path)]


def flatten(metrics: Metrics, prefix: str = "") -> dict[str, float | None]:
    """Nested metrics under flat names: `{"planner": {"entropy": 1.2}}` is `{"planner/entropy": 1.2}`.

    Raises:
        TypeError: a value is no number, None or mapping.
        ValueError: a name is empty or contains `/`, which would make two metrics one.
    """
    flat: dict[str, float | None] = {}
    for name, value in metrics.items():
        if not name or "/" in name:
            raise ValueError(f"{name!r} is no metric name: nest mappings instead of writing '/'.")
        if isinstance(value, Mapping):
            flat.update(flatten(value, f"{prefix}{name}/"))
        else:
            _check_number(prefix + name, value)
            flat[prefix + name] = value
    return flat


def _check_number(name: str, value: object) -> None:
    if value is not None and not isinstance(value, int | float):
        kind = type(value).__name__
        raise TypeError(f"Metric {name!r} is a {kind}; pass a float, an int, None or a mapping of them.")


_NON_FINITE = {"nan": math.nan, "inf": math.inf, "-inf": -math.inf}


def _writable(metrics: Metrics) -> dict[str, object]:
    return {
        name: _writable(value)
        if isinstance(value, Mapping)
        else str(value)
        if isinstance(value, float) and not math.isfinite(value)
        else value
        for name, value in metrics.items()
    }


def _restored(line: Mapping[str, Any]) -> dict[str, Any]:
    return {
        name: _restored(value)
        if isinstance(value, Mapping)
        else _NON_FINITE[value]
        if isinstance(value, str) and value in _NON_FINITE
        else value
        for name, value in line.items()
    }


def _last(path: Path) -> tuple[int | None, set[str]]:
    """The last step, None without one, and the names of all its metrics."""
    lines = read_metrics(path)
    if not lines:
        return None, set()
    step: int = lines[-1]["step"]
    return step, {name for line in lines if line["step"] == step for name in flatten(line) if name != "step"}
