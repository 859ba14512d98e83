"""The numbers of one `metrics.jsonl`, read on as the file grows.

A line that is not whole yet is left for the next time, one that cannot be read is counted and left out: a run that is
killed, or that somebody else wrote, stops nothing. A file that was replaced or cut, as by a resume, is read anew.
"""

import os
import threading
from array import array
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import msgspec

from mas.studio.line_index import tail_before

_MOST_NAMES = 4000
_LONGEST_NAME = 200
_DEEPEST = 8
_MOST_BYTES = 8 * 2**20
"""Of one line."""
_CHUNK = 2**20
_NON_FINITE = ("nan", "inf", "-inf")

Points = list[tuple[int, float]]


class MetricColumns:
    """Flat metric names with their values by step.

    Attributes:
        damaged: lines that were left out; first_damaged: the number of the first of them, from 1.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inode = self._offset = self.damaged = self.first_damaged = 0
        self._tail = b""
        self._forget()

    def refresh(self, path: Path) -> None:
        """Read what the file has more than at the last call; one that is missing is empty.

        Raises:
            OSError: it cannot be read.
        """
        with self._lock:
            try:
                file = path.open("rb")
            except FileNotFoundError:
                self._forget()
                return
            with file:
                state = os.fstat(file.fileno())
                is_same = state.st_ino == self._inode and state.st_size >= self._offset
                if not is_same or tail_before(file, self._offset) != self._tail:
                    self._forget()
                self._inode = state.st_ino
                file.seek(self._offset)
                while chunk := file.read(_CHUNK):
                    self._take(chunk)
                self._tail = tail_before(file, self._offset)

    @property
    def version(self) -> str:
        """Another text whenever there is another number."""
        with self._lock:
            return f"{self._inode}-{self._offset}"

    @property
    def last_step(self) -> int | None:
        """The last step with a line, None without one."""
        with self._lock:
            return self._last

    @property
    def names(self) -> list[str]:
        """All metrics, in the order in which they came up."""
        with self._lock:
            return list(self._columns)

    def points(self, name: str) -> Points:
        """Step and value of a metric, oldest first; empty for one that is not there."""
        with self._lock:
            if name not in self._columns:
                return []
            return list(zip(*self._columns[name], strict=True))

    def last(self, name: str) -> float | None:
        """The last value, None without one."""
        with self._lock:
            return self._columns[name][1][-1] if name in self._columns else None

    def total(self, name: str) -> float:
        """The sum of all values."""
        return sum(value for _, value in self.points(name))

    def _forget(self) -> None:
        self._columns: dict[str, tuple[array[int], array[float]]] = {}
        self._rest, self._tail, self._offset, self._inode = b"", b"", 0, 0
        self._last: int | None = None
        self._number = self.damaged = self.first_damaged = 0

    def _take(self, chunk: bytes) -> None:
        self._offset += len(chunk)
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            self._number += 1
            if line and not self._add(line):
                self.damaged += 1
                self.first_damaged = self.first_damaged or self._number
        if len(self._rest) > _MOST_BYTES:
            self._rest = b"?"  # the rest of the line comes behind it: it does not parse

    def _add(self, raw: bytes) -> bool:
        """Whether the line could be read."""
        try:
            line = msgspec.json.decode(raw, type=dict[str, Any])
            step = line.pop("step", None)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return False
        if type(step) is not int or not (self._last or 0) <= step < 2**53:
            return False
        self._last = step
        for name, value in _flat(line):
            if name not in self._columns:
                if len(self._columns) >= _MOST_NAMES or len(name) > _LONGEST_NAME:
                    continue
                self._columns[name] = (array("q"), array("d"))
            steps, values = self._columns[name]
            steps.append(step)
            values.append(value)
        return True


def _flat(metrics: Mapping[str, Any], prefix: str = "", depth: int = 0) -> Iterator[tuple[str, float]]:
    for name, value in metrics.items():
        if isinstance(value, dict):
            if depth < _DEEPEST:
                yield from _flat(value, f"{prefix}{name}/", depth + 1)
        elif isinstance(value, str):
            if value in _NON_FINITE:
                yield prefix + name, float(value)
        elif isinstance(value, int | float) and not isinstance(value, bool) and abs(value) < 2**1000:
            yield prefix + name, float(value)
