"""Workers that the tests of clusters spawn, in processes of their own."""

import asyncio
import hashlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import NoReturn


class Worker:
    """Counts, echoes, fails, hangs and dies, as it is asked to."""

    def __init__(self, arguments: bytes) -> None:
        self.arguments = arguments
        self.log: list[bytes] = []
        self.entered = 0
        self.gate = asyncio.Event()

    def echo(self, payload: bytes) -> bytes:
        return payload

    def made_of(self, payload: bytes) -> bytes:
        return self.arguments

    def append(self, payload: bytes, *objects: bytes) -> bytes:
        self.log.append(payload)
        return b",".join(self.log)

    def digest(self, payload: bytes, *objects: bytes) -> bytes:
        return b" ".join(hashlib.sha256(content).hexdigest().encode() for content in (payload, *objects))

    async def meet(self, payload: bytes) -> bytes:
        """Answers when as many calls as `payload` says are in here at once."""
        self.entered += 1
        if self.entered == int(payload):
            self.gate.set()
        await self.gate.wait()
        return str(self.entered).encode()

    async def digest_async(self, payload: bytes, *objects: bytes) -> bytes:
        return self.digest(payload, *objects)

    async def wait(self, payload: bytes) -> bytes:
        """For ever; writes a file when it begins, and one when it is cancelled."""
        path = Path(payload.decode())
        await asyncio.to_thread(path.touch)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            path.with_suffix(".cancelled").touch()
            raise
        return b""

    def fail(self, payload: bytes) -> bytes:
        raise ValueError(f"a bad value: {payload.decode()} \ud800")

    def exit(self, payload: bytes) -> NoReturn:
        os._exit(int(payload))

    def die(self, payload: bytes) -> bytes:
        os.kill(os.getpid(), signal.SIGKILL)
        return b""

    async def survive(self, payload: bytes) -> bytes:
        """Answers after the time of many calls; of `poison` the process dies at once."""
        if payload == b"poison":
            self.die(payload)
        await asyncio.sleep(0.5)
        return payload

    def text(self, payload: bytes) -> str:
        return "no bytes"

    def environment(self, payload: bytes) -> bytes:
        return json.dumps(dict(os.environ)).encode()

    def say(self, payload: bytes) -> bytes:
        print(payload.decode(), flush=True)
        print(payload.decode().upper(), file=sys.stderr, flush=True)
        return b""

    def start_child(self, payload: bytes) -> bytes:
        """A process that ignores everything but SIGKILL; its number."""
        code = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
        return str(subprocess.Popen([sys.executable, "-c", code]).pid).encode()

    def large(self, payload: bytes) -> bytes:
        return bytes(int(payload))

    def garble(self, payload: bytes) -> bytes:
        """Write bytes into the socket to the driver, which is the first one that is open."""
        for descriptor in range(3, 64):
            try:
                with socket.socket(fileno=os.dup(descriptor)) as connection:
                    if connection.family == socket.AF_UNIX and connection.getsockname() == "":
                        connection.sendall(payload)
            except OSError:
                continue
        return b""


class Closing(Worker):
    """Notes that it was closed."""

    async def close(self) -> None:
        await asyncio.to_thread(Path(self.arguments.decode()).touch)


class Lingering(Worker):
    """Never gets closed."""

    async def close(self) -> None:
        await asyncio.Event().wait()


def make(arguments: bytes) -> Worker:
    return Worker(arguments)


async def make_async(arguments: bytes) -> Worker:
    await asyncio.sleep(0)
    return Worker(arguments + b" async")


def make_closing(arguments: bytes) -> Closing:
    return Closing(arguments)


def make_lingering(arguments: bytes) -> Lingering:
    return Lingering(arguments)


def make_once(arguments: bytes) -> Worker:
    """A worker of a directory of one file for each process that may start, of which this takes one."""
    left = sorted(Path(arguments.decode()).iterdir())
    if not left:
        os._exit(3)
    left[0].unlink(missing_ok=True)
    return Worker(arguments)


def make_hanging(arguments: bytes) -> Worker:
    """A worker, once this file is gone."""
    while Path(arguments.decode()).exists():
        time.sleep(0.05)
    return Worker(arguments)


def make_none(arguments: bytes) -> NoReturn:
    raise LookupError(f"nothing to make of {arguments.decode()}")


def make_exit(arguments: bytes) -> NoReturn:
    os._exit(3)
