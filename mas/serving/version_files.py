"""Where the files of adapter versions lie while an engine may read them: in memory, as long as that is mostly free, or
in a directory that is shared with the engine's machine."""

import os
import shutil
import tempfile
import weakref
from collections.abc import Mapping
from pathlib import Path

from mas.observe.files import write_directory_atomic

_MEMORY = Path("/dev/shm")
_PREFIX = "mas-adapters-"


class VersionFiles:
    """One directory per version in a folder of this process; gone with it.

    Args:
        shared: where the folder is made, readable by all who can read that; None: in memory, for this user alone.
    """

    def __init__(self, shared: Path | None = None) -> None:
        self._shared = shared
        self._folder: Path | None = None

    def write(self, name: str, files: Mapping[str, bytes]) -> Path:
        """A new directory, whole or not at all.

        Raises:
            OSError: it cannot be written.
        """
        if self._folder is None:
            where = self._shared or _roomy(sum(len(content) for content in files.values()))
            self._folder = Path(tempfile.mkdtemp(prefix=f"{_PREFIX}{os.getpid()}-", dir=where)).resolve()
            if self._shared is not None:
                self._folder.chmod(0o755)
            weakref.finalize(self, shutil.rmtree, self._folder, ignore_errors=True)
        path = self._folder / name
        write_directory_atomic(path, files)
        return path

    def close(self) -> None:
        """Delete everything."""
        if self._folder is not None:
            shutil.rmtree(self._folder, ignore_errors=True)
            self._folder = None


def _roomy(size: int) -> Path | None:
    """Memory if a hundred versions of this size fit into it, else None; folders of dead processes are removed there."""
    if not os.access(_MEMORY, os.W_OK):
        return None
    for folder in _MEMORY.glob(f"{_PREFIX}*"):
        process = folder.name.removeprefix(_PREFIX).partition("-")[0]
        if process.isdecimal() and not Path(f"/proc/{process}").exists():
            shutil.rmtree(folder, ignore_errors=True)
    return _MEMORY if shutil.disk_usage(_MEMORY).free > 100 * size else None
