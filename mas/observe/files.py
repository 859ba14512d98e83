"""Files that a crash leaves readable: written whole or not at all, or line by line.

Whole: write to a hidden sibling, fsync it, rename it over the name, fsync the parent. A killed writer leaves at most a
hidden sibling `.<name>.<random>.tmp` behind, which `remove_leftovers` clears.

`JsonLines`: one JSON object per line and per event, flushed line by line, with the step that it belongs to. A process
killed in the middle of a line leaves a torn last line: reading ignores it, the next writer cuts it off. Any other line
that does not parse is damage, and an error.
"""

import fcntl
import os
import secrets
import shutil
import sys
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO

import msgspec

from mas.core.errors import RunDirectoryError

LEFTOVER_PATTERN = ".*.tmp"
STANDARD_OUTPUT = Path("-")
_BEGINS_S = 60.0
"""A hidden directory that is younger may be of a process that has not locked it yet."""


def write_bytes_atomic(path: Path, content: bytes, *, mode: int = 0o666) -> None:
    """Replace the file at `path` by `content`; a reader sees the old file or the new one, never a part.

    Args:
        mode: permissions from the first moment, less the process's umask; 0o600 is for secrets.

    Raises:
        OSError: the directory is missing, read-only or full; the old file is then untouched.
    """
    temporary = _hidden_sibling(path)
    try:
        _write_synced(temporary, content, mode)
        temporary.replace(path)
    except BaseException as error:
        temporary.unlink(missing_ok=True)
        if isinstance(error, OSError):
            error.filename = str(path)  # not the hidden one, or none
        raise
    sync_directory(path.parent)


def write_text_atomic(path: Path, text: str) -> None:
    """Replace the file at `path` by `text` in UTF-8; see `write_bytes_atomic`."""
    write_bytes_atomic(path, text.encode())


_BEGINS_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20")
"""The last four are the full-width forms of the first four."""


def text_cell(text: str) -> str:
    """A cell of CSV that a spreadsheet shows as text: with an apostrophe before what begins a formula.

    Source: OWASP, CSV Injection, https://owasp.org/www-community/attacks/CSV_Injection.
    """
    return f"'{text}" if text.startswith(_BEGINS_FORMULA) else text


@contextmanager
def writing(what: Path | str, advice: str = "") -> Iterator[None]:
    """Make an error of the file system in the block a sentence.

    Args:
        what: is written, at the beginning of the sentence. advice: what to do, at its end.

    Raises:
        RunDirectoryError: it cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise RunDirectoryError(f"{what} cannot be written: {error.strerror or error}{advice}") from error


def check_json_file(path: Path | None) -> None:
    """Refuse, before what takes long, a file that `write_json_file` could not write; None is none, `-` standard output.

    Raises:
        RunDirectoryError: its directory is missing.
    """
    if path is not None and not path.absolute().parent.is_dir():
        raise RunDirectoryError(f"{path} cannot be written: {path.parent} is no directory")


def write_json_file(path: Path, content: object) -> None:
    """Replace the file at `path` by `content` as indented JSON; `-` is standard output.

    Args:
        content: anything msgspec encodes.

    Raises:
        RunDirectoryError: it cannot be written.
    """
    text = msgspec.json.format(msgspec.json.encode(content), indent=1) + b"\n"
    if path == STANDARD_OUTPUT:
        sys.stdout.write(text.decode())
        sys.stdout.flush()
        return
    with writing(path, ". Name another file."):
        write_bytes_atomic(path, text)


def write_directory_atomic(path: Path, files: Mapping[str, bytes]) -> None:
    """Make the directory `path` hold exactly `files`; it appears under its name only when all of them are on disk.

    An older directory of that name is moved aside first and deleted last. No portable call swaps two directories, so a
    crash between the two renames leaves nothing under the name: give every version its own name where that matters.

    Args:
        files: relative names to contents; `planner/adapter.safetensors` makes a folder.

    Raises:
        ValueError: a name is absolute, empty, or leaves the directory.
        OSError: the parent is missing, read-only or full; `path` is then as it was.
    """
    if (wrong := next((name for name in files if not is_relative(name)), None)) is not None:
        raise ValueError(
            f"{wrong!r} is no file name inside the directory; use a relative name such as 'planner/a.bin'."
        )
    temporary = _hidden_sibling(path)
    try:
        _fill_directory(temporary, files)
        _replace_directory(temporary, path)
    except BaseException as error:
        shutil.rmtree(temporary, ignore_errors=True)
        if isinstance(error, OSError):
            error.filename = str(path)
        raise
    sync_directory(path.parent)


@contextmanager
def making_directory(path: Path) -> Iterator[Path]:
    """A hidden sibling for the block to fill, which gets the name `path` at its end; on an error it is deleted.

    Of several processes that make it at a time, the first one's stays. What killed processes have left is deleted.

    Raises:
        OSError: a directory cannot be made there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    prefix = f".{path.name}-"
    _remove_abandoned(path.parent, prefix)
    made = path.with_name(f"{prefix}{secrets.token_hex(4)}")
    made.mkdir()  # not as tempfile does: other users of a cache may read what is made there
    lock = os.open(made, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield made
        try:
            made.rename(path)
        except OSError:
            if not path.is_dir():
                raise
    finally:
        shutil.rmtree(made, ignore_errors=True)
        os.close(lock)


def _remove_abandoned(parent: Path, prefix: str) -> None:
    """Delete directories of `making_directory` whose processes have ended."""
    for found in [one for one in parent.iterdir() if one.name.startswith(prefix)]:
        with suppress(OSError):  # locked, or another process deletes it
            lock = os.open(found, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - found.stat().st_mtime > _BEGINS_S:
                    shutil.rmtree(found, ignore_errors=True)
            finally:
                os.close(lock)


def delete_directory(path: Path) -> None:
    """Delete a directory, which is gone from its name at once: a killed process leaves no part of it there.

    Raises:
        OSError: it is missing, or its parent is read-only.
    """
    hidden = _hidden_sibling(path)
    path.rename(hidden)
    shutil.rmtree(hidden)


def remove_leftovers(directory: Path) -> int:
    """Delete what killed writers left in `directory` and return how many there were; call it as the only writer."""
    leftovers = sorted(directory.glob(LEFTOVER_PATTERN))
    for leftover in leftovers:
        if leftover.is_dir() and not leftover.is_symlink():
            shutil.rmtree(leftover)
        else:
            leftover.unlink()
    return len(leftovers)


def sync_directory(directory: Path) -> None:
    """Put the directory's own entries on disk, without which a rename may be lost with the power."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _hidden_sibling(path: Path) -> Path:
    return path.with_name(f".{path.name}.{secrets.token_hex(4)}.tmp")


def _write_synced(path: Path, content: bytes, mode: int = 0o666) -> None:
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


def is_relative(name: str) -> bool:
    """Whether a name stands for a file inside a directory, whatever the directory."""
    parts = PurePosixPath(name).parts
    return bool(parts) and not name.startswith("/") and ".." not in parts


def _fill_directory(directory: Path, files: Mapping[str, bytes]) -> None:
    directory.mkdir()
    folders = {directory}
    for name, content in files.items():
        target = directory / name
        target.parent.mkdir(parents=True, exist_ok=True)
        _write_synced(target, content)
        folders.update(parent for parent in target.parents if parent.is_relative_to(directory))
    for folder in folders:
        sync_directory(folder)


def _replace_directory(new: Path, path: Path) -> None:
    if not path.is_dir():
        new.rename(path)
        return
    old = _hidden_sibling(path)
    path.rename(old)
    try:
        new.rename(path)
    except BaseException:
        old.rename(path)
        raise
    shutil.rmtree(old)


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
        RunDirectoryError: a line other than the last does not parse, or has no integer `step`; the file cannot be read.
    """
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return []
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be read: {error.strerror}. Restore the file from a copy.") from error
    lines = []
    for number, line in whole_lines(path, content, "Delete that line, or restore the file from a copy."):
        if not isinstance(line.get("step"), int):
            raise RunDirectoryError(f"Line {number} of {path} has no integer 'step'. Delete that line.")
        lines.append(line)
    return lines


def whole_lines(path: Path, content: bytes, advice: str) -> Iterator[tuple[int, dict[str, Any]]]:
    """The whole lines of a file with their numbers, from 1; a last one that was torn by a kill is left out.

    Args:
        advice: what to do about a damaged line.

    Raises:
        RunDirectoryError: a line other than the last does not parse.
    """
    lines = content.split(b"\n")
    for number, line in enumerate(lines, start=1):
        try:
            if line:
                yield number, msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if number == len(lines):
                return
            raise RunDirectoryError(f"Line {number} of {path} is damaged ({error}). {advice}") from error


def _encoded(line: Mapping[str, object]) -> bytes:
    return msgspec.json.encode(line) + b"\n"
