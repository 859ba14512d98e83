"""A real mosquitto on a free loopback port, as a child process that a test may kill, stop and start again."""

import getpass
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

BINARY = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
needs_mosquitto = pytest.mark.skipif(BINARY is None, reason="mosquitto is not installed: make mosquitto")
_CONFIG = """listener {port} 127.0.0.1
persistence false
set_tcp_nodelay true
max_queued_messages 0
log_type error
user {user}
{more}
"""
OPEN = "allow_anonymous true"


class Mosquitto:
    """The broker's process."""

    def __init__(self, folder: Path, more: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        self.config = folder / f"mosquitto-{self.port}.conf"
        self.config.write_text(_CONFIG.format(port=self.port, user=getpass.getuser(), more=more))
        self._process: subprocess.Popen[bytes] | None = None

    def url(self, user: str, space: str = "test") -> str:
        return f"mqtt://{user}@127.0.0.1:{self.port}/{space}"

    def start(self) -> None:
        assert BINARY is not None
        self._process = subprocess.Popen(
            [BINARY, "-c", str(self.config)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        deadline = time.monotonic() + 20.0
        while time.monotonic() < deadline:
            try:
                socket.create_connection(("127.0.0.1", self.port), timeout=1.0).close()
            except OSError:
                time.sleep(0.02)
            else:
                return
        raise TimeoutError("mosquitto did not come up")

    def kill(self) -> None:
        assert self._process is not None
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)


@contextmanager
def running_mosquitto(folder: Path, more: str = OPEN) -> Iterator[Mosquitto]:
    """A broker for as long as the block lasts. `more`: further lines of its configuration."""
    broker = Mosquitto(folder, more)
    try:
        broker.start()
        yield broker
    finally:
        broker.thaw()
        broker.kill()
