"""Files and directories that appear whole or not at all, even when the machine dies in between.

Write to a hidden sibling, fsync it, rename it over the name, fsync the parent. A killed writer leaves at most a hidden
sibling `.<name>.<random>.tmp` behind, which `remove_leftovers` clears.
"""

import os
import secrets
import shutil
from collections.abc import Mapping
from pathlib import Path, PurePosixPath

LEFTOVER_PATTERN = ".*.tmp"


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
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync_directory(path.parent)


def write_text_atomic(path: Path, text: str) -> None:
    """Replace the file at `path` by `text` in UTF-8; see `write_bytes_atomic`."""
    write_bytes_atomic(path, text.encode())


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
    for name in files:
        _check_relative(name)
    temporary = _hidden_sibling(path)
    try:
        _fill_directory(temporary, files)
        _replace_directory(temporary, path)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    sync_directory(path.parent)


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


def _check_relative(name: str) -> None:
    if not is_relative(name):
        raise ValueError(f"{name!r} is no file name inside the directory; use a relative name such as 'planner/a.bin'.")


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
