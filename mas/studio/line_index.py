"""Where the lines of a growing file are, so that a page reads only those that it shows.

A file is scanned once, block by block, and later only what was appended. A file that was replaced or became shorter is
scanned anew: its number differs, or the last bytes that were read, as file systems use the number of a deleted file
again. Its last line counts when its end is there. Nothing but a plain file is opened.
"""

import os
import stat
import threading
from array import array
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Generic, TypeVar

import msgspec

LONGEST = 16 << 20
"""Bytes of a line that is read whole; a longer one is counted as unreadable."""
_BLOCK = 4 << 20
_SHORT = 64
"""Bytes of its beginning that say what a line is."""
_TAIL = 256
"""Bytes by which a file is known again."""

HeadT = TypeVar("HeadT")
DECODE_ERRORS = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What `msgspec` raises of bytes that are no record."""


class LineIndex(Generic[HeadT]):
    """The lines of one file.

    Args:
        begins: what the lines begin with that are heads; empty: all do.
        read: makes a head of a line; what it raises of `DECODE_ERRORS` makes the line unreadable.

    Attributes:
        heads: number of its line and head, in the order of the file.
        unreadable: lines that should be heads and are none.
    """

    def __init__(self, path: Path, begins: bytes, read: Callable[[bytes], HeadT]) -> None:
        self.path = path
        self._begins, self._read = begins, read
        self._lock = threading.Lock()
        self._forget((0, 0))

    def _forget(self, identity: tuple[int, int]) -> None:
        self._identity, self._seen, self._tail = identity, 0, b""
        self._starts = array("Q", [0])
        self.heads: list[tuple[int, HeadT]] = []
        self.unreadable = 0

    @property
    def count(self) -> int:
        """How many whole lines there are."""
        return len(self._starts) - 1

    @property
    def version(self) -> tuple[int, ...]:
        """Changes when the file does."""
        return (*self._identity, self._seen)

    @property
    def is_cut(self) -> bool:
        """Whether the last line has no end yet."""
        return self._seen > self._starts[-1]

    def update(self) -> None:
        """Scan what was appended since the last call; a file that is gone or is no plain file has no lines."""
        with self._lock, opened(self.path) as file:
            if file is None:
                self._forget((0, 0))
                return
            now = os.fstat(file.fileno())
            is_same = self._identity == (now.st_dev, now.st_ino) and now.st_size >= self._seen
            if not is_same or tail_before(file, self._seen) != self._tail:
                self._forget((now.st_dev, now.st_ino))
            if now.st_size == self._seen:
                return
            for line, end in _lines(file, self._starts[-1], self._begins):
                if line is not None:
                    self._take(line)
                self._starts.append(end)
            self._seen = file.tell()
            self._tail = tail_before(file, self._seen)

    def _take(self, line: bytes) -> None:
        if not line.strip():
            return
        try:
            if len(line) > LONGEST:
                raise msgspec.DecodeError("the line is too long")
            self.heads.append((self.count, self._read(line)))
        except DECODE_ERRORS:
            self.unreadable += 1

    def lines(self, first: int, behind: int) -> Iterator[bytes | None]:
        """The lines from `first` to before `behind`, without their ends; None: it is too long, or gone."""
        starts = self._starts  # another thread may find a new file meanwhile
        with opened(self.path) as file:
            for number in range(first, behind):
                if number + 1 >= len(starts):
                    yield None
                    continue
                start, end = starts[number], starts[number + 1]
                if file is None or end - start > LONGEST:
                    yield None
                    continue
                file.seek(start)
                line = file.read(end - start)
                yield line[:-1] if len(line) == end - start and line.endswith(b"\n") else None


def tail_before(file: BinaryIO, end: int) -> bytes:
    """The last bytes of a file before a place in it."""
    begin = max(0, end - _TAIL)
    file.seek(begin)
    return file.read(end - begin)


@contextmanager
def opened(path: Path) -> Iterator[BinaryIO | None]:
    """A plain file for reading; None: there is none, or it is a link, a pipe or a device."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        yield None
        return
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):
        os.close(descriptor)
        yield None
        return
    with os.fdopen(descriptor, "rb") as file:
        yield file


def _lines(file: BinaryIO, start: int, begins: bytes) -> Iterator[tuple[bytes | None, int]]:
    """From `start` on every whole line that begins so, None for another one, and where it ends.

    Of a line that is too long the first bytes are enough: it is told by its length.
    """
    file.seek(start)
    held, end = bytearray(), start
    while block := file.read(_BLOCK):
        first, *others = block.split(b"\n")
        most = LONGEST + 1 if len(held) < _SHORT or held.startswith(begins) else _SHORT
        held += first[: max(0, most - len(held))]
        end += len(first)
        if not others:
            continue
        end += 1
        yield bytes(held) if held.startswith(begins) else None, end
        for line in others[:-1]:
            end += len(line) + 1
            yield line if line.startswith(begins) else None, end
        held = bytearray(others[-1])
        end += len(held)
