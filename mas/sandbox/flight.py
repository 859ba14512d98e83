"""One program on its way through a server: what it is given, what it says, and its end."""

import fcntl
import json
import os
import selectors
import socket
import time
from contextlib import ExitStack, suppress
from typing import Any

import msgspec

from mas.core.errors import SandboxError
from mas.sandbox.inside.program import BEGUN, HEAD, NO_MEMORY
from mas.sandbox.inside.server import PACKET
from mas.sandbox.outcome import Limits, Outcome, Status
from mas.sandbox.server_process import ServerProcess

KIB, MIB = 1024, 1024 * 1024
GRACE_S = 10.0
"""How long the kernel may take to end a program that was told to."""
_CHUNK = 65536
_SEALS = fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL


class Order(msgspec.Struct, frozen=True, kw_only=True):
    """What a program is given: its text, expressions to evaluate afterwards, the seed of `random`, its input."""

    source: str
    calls: tuple[str, ...] = ()
    seed: int = 0
    stdin: str = ""

    @property
    def size(self) -> int:
        """Bytes of all its texts."""
        return sum(len(text.encode("utf-8", "surrogatepass")) for text in (self.source, *self.calls, self.stdin))


Record = tuple[bytes, str]


class Flight:
    """One program, from order to outcome. `fly` is called once, `close` at last; `stop` from any thread."""

    def __init__(self, order: Order, limits: Limits) -> None:
        self.order = order
        self._limits = limits
        self._leash, self._their_leash = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)

    def stop(self) -> None:
        """End the program and all that it started."""
        try:
            self._leash.shutdown(socket.SHUT_WR)
        except OSError:
            return  # it has ended

    def close(self) -> None:
        """Let go of it."""
        self._leash.close()
        self._their_leash.close()

    def fly(self, server: ServerProcess) -> tuple[Outcome, list[Record]]:
        """Run the program. Beside the outcome: what it reported of itself.

        Raises:
            SandboxError: the server did not take the order, or ended before the program did.
        """
        began = time.monotonic()
        with ExitStack() as held:
            pipes = self._send(server, held)
            texts, cause, answer = self._watch(pipes, began + self._limits.time_s)
        if "error" in answer:
            raise SandboxError(f"a program has no end that is known: {answer['error']}")
        records = _records(bytes(texts[2]))
        return self._outcome(texts, cause, answer, records, time.monotonic() - began), records[1:]

    def _send(self, server: ServerProcess, held: ExitStack) -> list[int]:
        """Hand everything over; the reading ends of output, errors and report stay here."""
        ours: list[int] = []
        with ExitStack() as theirs:
            theirs.callback(self._their_leash.close)
            order = {"source": self.order.source, "calls": self.order.calls, "seed": self.order.seed}
            files = [self._their_leash.fileno()]
            for text in (json.dumps(order), self.order.stdin):
                files.append(_sealed(text.encode("utf-8", "surrogatepass")))
                theirs.callback(os.close, files[-1])
            for _ in range(3):
                read, write = os.pipe()
                held.callback(os.close, read)
                theirs.callback(os.close, write)
                os.set_blocking(read, False)
                ours.append(read)
                files.append(write)
            try:
                server.send(_packet(self._limits), files)
            except OSError as error:
                raise SandboxError(f"the sandbox's server is gone: {error}") from error
        return ours

    def _watch(self, pipes: list[int], deadline: float) -> tuple[list[bytearray], Status | None, dict[str, Any]]:
        """Read until the program has ended and nothing is left to read; end it where it goes beyond a limit."""
        texts = [bytearray() for _ in pipes]
        cause: Status | None = None
        answer: dict[str, Any] | None = None
        most = self._limits.output_kib * KIB
        with selectors.DefaultSelector() as selector:
            selector.register(self._leash, selectors.EVENT_READ)
            for index, pipe in enumerate(pipes):
                selector.register(pipe, selectors.EVENT_READ, index)
            while selector.get_map():
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                for key, _ in ready:
                    if key.data is None:
                        answer, deadline = self._end(), time.monotonic() + GRACE_S
                        selector.unregister(self._leash)
                        continue
                    part = os.read(key.fd, _CHUNK)
                    if not part:
                        selector.unregister(key.fd)
                    texts[key.data] += part[: most - len(texts[key.data]) + 1]
                    if cause is None and len(texts[key.data]) > most:
                        cause, deadline = self._told("output")
                if time.monotonic() >= deadline:
                    if cause is not None or answer is not None:
                        raise SandboxError(f"a program's end took longer than {GRACE_S:g} s")
                    cause, deadline = self._told("timeout")
        return [text[:most] for text in texts], cause, answer or {}

    def _end(self) -> dict[str, Any]:
        """What the server says of the end of the program."""
        with suppress(OSError):
            if said := self._leash.recv(PACKET):
                answer: dict[str, Any] = json.loads(said)
                return answer
        return {"error": "its server is gone"}

    def _told(self, cause: Status) -> tuple[Status, float]:
        self.stop()
        return cause, time.monotonic() + GRACE_S

    def _outcome(
        self,
        texts: list[bytearray],
        cause: Status | None,
        answer: dict[str, Any],
        records: list[Record],
        seconds: float,
    ) -> Outcome:
        code: int = answer["exit"]
        stdout, stderr = (text.decode("utf-8", "backslashreplace") for text in texts[:2])
        if cause is None and (not records or records[0][0] != BEGUN):
            reason = records[0][1] if records else f"it ended before it began. {stderr}".rstrip()
            return Outcome(status="refused", stderr=reason, seconds=seconds)
        status = cause or _status(code, records, answer["cpu_s"] >= self._limits.time_s)
        exit_code = code if code >= 0 else None
        return Outcome(status=status, stdout=stdout, stderr=stderr, seconds=seconds, exit_code=exit_code)


def _status(code: int, records: list[Record], spent: bool) -> Status:
    """How a program ended that was not told to."""
    if code < 0:
        return "timeout" if spent else "killed"
    if code == 0:
        return "ok"
    return "memory" if records and records[-1][0] == NO_MEMORY else "wrong"


def _packet(limits: Limits) -> bytes:
    return json.dumps(
        {
            "cpu_s": int(limits.time_s) + 1,
            "memory_bytes": limits.memory_mib * MIB,
            "disk_bytes": limits.disk_mib * MIB,
            "inodes": limits.entries,
            "files": limits.files,
            "tasks": limits.tasks,
            "may_fork": limits.may_fork,
        }
    ).encode()


def _sealed(content: bytes) -> int:
    """An open file in memory that nobody can change, to be read from its beginning."""
    file = os.memfd_create("order", os.MFD_ALLOW_SEALING | os.MFD_CLOEXEC)
    with open(file, "wb", closefd=False) as writing:
        writing.write(content)
    os.lseek(file, 0, os.SEEK_SET)
    fcntl.fcntl(file, fcntl.F_ADD_SEALS, _SEALS)
    return file


def _records(report: bytes) -> list[Record]:
    """Everything that is a whole record; the first is the sandbox's own, later ones may be the program's."""
    records: list[Record] = []
    place = 0
    while place + HEAD.size <= len(report):
        kind, length = HEAD.unpack_from(report, place)
        content = report[place + HEAD.size : place + HEAD.size + length]
        if len(content) < length:
            break
        records.append((kind, content.decode("utf-8", "replace")))
        place += HEAD.size + length
    return records
