"""One JSON object per line and per event, flushed line by line, with the step that it belongs to.

A process killed in the middle of a line leaves a torn last line: reading ignores it, the next writer cuts it off.
Any other line that does not parse is damage, and an error.
"""

import os
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from mas.core.errors import RunDirectoryError
from mas.observe.atomic import write_bytes_atomic


class JsonLines:
    """Appends records to one file, such as a run's samples; many may share a step.

    Args:
        path: the file; made when missing. Its directory must exist.

    Raises:
        RunDirectoryError: a line other than the last does not parse.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._rewrite(read_lines(path))

    def append(self, step: int, record: Mapping[str, object]) -> None:
        """Write one line, `{"step": step, ...record}`, and hand it to the operating system.

        Args:
            record: anything msgspec encodes: plain values, lists, mappings, Structs.

        Raises:
            ValueError: the record has a key `step` of its own.
        """
        if "step" in record:
            raise ValueError("A record must not have a key 'step': it is the line's own. Rename the key.")
        self._file.write(_encoded({"step": step, **record}))
        self._file.flush()

    def truncate_after(self, step: int) -> int:
        """Drop the lines of later steps, atomically, and return how many: a killed run's work past its checkpoint."""
        self._file.close()
        lines = read_lines(self._path)
        kept = [line for line in lines if line["step"] <= step]
        self._rewrite(kept)
        return len(lines) - len(kept)

    def close(self) -> None:
        """Put everything on disk and close the file; a second call does nothing."""
        if not self._file.closed:
            self._file.flush()
            os.fsync(self._file.fileno())
            self._file.close()

    def _rewrite(self, lines: Iterable[Mapping[str, Any]]) -> None:
        content = b"".join(_encoded(line) for line in lines)
        if not self._path.exists() or self._path.read_bytes() != content:
            write_bytes_atomic(self._path, content)
        self._file: BinaryIO = self._path.open("ab")


def read_lines(path: Path) -> list[dict[str, Any]]:
    """All whole lines of the file, oldest first; a missing file has none.

    Raises:
        RunDirectoryError: a line other than the last does not parse, or has no integer `step`.
    """
    if not path.exists():
        return []
    return list(_parsed(path, path.read_bytes().split(b"\n")))


def _parsed(path: Path, raw_lines: list[bytes]) -> Iterator[dict[str, Any]]:
    for number, raw in enumerate(raw_lines, start=1):
        if not raw:
            continue
        try:
            line = msgspec.json.decode(raw, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if number == len(raw_lines):
                return
            raise RunDirectoryError(
                f"Line {number} of {path} is damaged ({error}). Delete that line, or restore the file from a copy."
            ) from error
        if not isinstance(line.get("step"), int):
            raise RunDirectoryError(f"Line {number} of {path} has no integer 'step'. Delete that line.")
        yield line


def _encoded(line: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(line) + b"\n"
