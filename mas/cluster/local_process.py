"""One subprocess, leader of a process group of its own: started, watched, and ended with all that it has started."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from mas.cluster.cleanup import CleanupProcess
from mas.core.errors import ClusterError

_POLL_S = 0.01


class LocalProcess:
    """A worker's process. Made in the thread of the event loop: on Linux it dies with the thread that started it.

    Args:
        connection: the worker's end of the socket, closed here.

    Raises:
        ClusterError: it cannot be started, or its output cannot be written.
    """

    def __init__(
        self, connection: socket.socket, variables: Mapping[str, str], output: Path, cleaner: CleanupProcess
    ) -> None:
        words = [sys.executable, "-P", "-m", "mas.cluster.worker", str(connection.fileno()), str(os.getpid())]
        try:
            with connection, output.with_suffix(".out").open("ab") as out, output.with_suffix(".err").open("ab") as err:
                self._process = subprocess.Popen(
                    words,
                    env=dict(variables),
                    stdin=subprocess.DEVNULL,
                    stdout=out,
                    stderr=err,
                    pass_fds=[connection.fileno()],
                    start_new_session=True,
                )
        except OSError as error:
            raise ClusterError(f"no worker can be started with its output in {output}: {error}") from error
        self._guard = cleaner
        cleaner.note("+", self.pid)

    @property
    def pid(self) -> int:
        """Of the process, and of its group."""
        return self._process.pid

    def has_ended(self) -> bool:
        """Whether it has; it is not yet reaped, so that its number is still its own."""
        if self._process.returncode is not None:
            return True
        if not hasattr(os, "waitid"):
            return self._process.poll() is not None
        return os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    async def wait(self, limit_s: float | None) -> bool:
        """Wait until it has ended; False: time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                while not self.has_ended():  # noqa: ASYNC110 - works on every Unix, without a thread
                    await asyncio.sleep(_POLL_S)
        return self.has_ended()

    async def end(self, grace_s: float = 0.0) -> str:
        """Wait `grace_s` for it, kill it and its group, reap it, and say how it ended.

        One that cannot be killed (it waits for a device) is left after ten seconds.
        """
        await self.wait(grace_s)
        if self._process.returncode is None:
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGKILL)
            if not await self.wait(10.0):
                return f"process {self.pid} cannot be killed"
            self._process.wait()
            self._guard.note("-", self.pid)
        return describe_exit(self._process.returncode)


def describe_exit(code: int) -> str:
    """A return code of subprocess in words."""
    if code >= 0:
        return f"its process ended with code {code}"
    try:
        return f"its process was ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"its process was ended by signal {-code}"
