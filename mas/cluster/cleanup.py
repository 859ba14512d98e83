"""Starts the process that cleans up when this one is killed (`mas.cluster.guard`), and keeps it informed."""

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from mas.cluster import guard
from mas.core.errors import ClusterError


class CleanupProcess:
    """The process of `mas.cluster.guard`: it ends what is left when this one is killed.

    Raises:
        ClusterError: it cannot be started.
    """

    def __init__(self, directory: Path) -> None:
        ours, theirs = os.pipe()[::-1]
        words = [sys.executable, "-I", "-S", str(Path(guard.__file__)), str(theirs), str(directory)]
        try:
            self._process = subprocess.Popen(
                words, env={}, stdin=subprocess.DEVNULL, pass_fds=[theirs], start_new_session=True
            )
        except OSError as error:
            os.close(ours)
            raise ClusterError(f"no process can be started to clean up after this one: {error}") from error
        finally:
            os.close(theirs)
        self._pipe = ours

    def note(self, sign: str, group: int) -> None:
        """`+`: a process group has begun; `-`: it has ended."""
        with suppress(BrokenPipeError):
            os.write(self._pipe, f"{sign}{group}\n".encode())

    def close(self) -> None:
        """Have it remove the directory and end."""
        os.close(self._pipe)
        self._process.wait()
