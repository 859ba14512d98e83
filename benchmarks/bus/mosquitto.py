"""A mosquitto for one benchmark: a child on a free loopback port, open to everybody on this machine for as long."""

import asyncio
import getpass
import os
import shutil
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from mas.core.errors import RunError

HOST = "127.0.0.1"
_ELSEWHERE = ("/usr/sbin", "/usr/local/sbin", "/usr/local/bin", "/opt/homebrew/sbin")
"""Where packages put servers; users who are not root often lack these in PATH."""
_START_S = 15.0
_CONF = """listener {port} {host}
allow_anonymous true
set_tcp_nodelay true
max_queued_messages 0
persistence false
log_type error
user {user}
"""


def mosquitto() -> str | None:
    """Its path; None: it is not installed."""
    return shutil.which("mosquitto", path=os.pathsep.join((os.environ.get("PATH", os.defpath), *_ELSEWHERE)))


@asynccontextmanager
async def open_mosquitto(path: str) -> AsyncIterator[int]:
    """The port of a broker that runs meanwhile.

    Raises:
        RunError: it does not listen.
    """
    with socket.create_server((HOST, 0)) as free:
        port = int(free.getsockname()[1])
    with TemporaryDirectory() as folder:
        conf = Path(folder) / "mosquitto.conf"
        conf.write_text(_CONF.format(port=port, host=HOST, user=getpass.getuser()), encoding="utf-8")
        process = await asyncio.create_subprocess_exec(path, "-c", str(conf))
        try:
            await _until_it_listens(process, port)
            yield port
        finally:
            if process.returncode is None:
                process.terminate()
            await process.wait()


async def _until_it_listens(process: asyncio.subprocess.Process, port: int) -> None:
    limit = time.monotonic() + _START_S
    while process.returncode is None and time.monotonic() < limit:
        try:
            _, writer = await asyncio.open_connection(HOST, port)
        except OSError:
            await asyncio.sleep(0.02)
        else:
            writer.close()
            return
    raise RunError(f"mosquitto did not listen at {HOST}:{port} within {_START_S:.0f} s; what it wrote above says why")
