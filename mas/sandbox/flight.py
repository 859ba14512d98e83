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
from mas.sandbox.outcome import ProgramOutcome, SandboxLimits, Status
from mas.sandbox.server_process import ServerProcess

KIB, MIB = 1024, 1024 * 1024
GRACE_S = 10.0
"""How long the kernel may take to end a program that was told to."""
NOT_STARTED = "a program could not be started on this machine"
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
    """One program, from order to outcome. `fly` is called once, `close` at last; `stop` from any thread.

    Raises:
        SandboxError: the system gives no socket.
    """

    def __init__(self, order: Order, limits: SandboxLimits) -> None:
        self.order = order
        self._limits = limits
        try:
            self._leash, self._their_leash = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        except OSError as error:
            raise SandboxError(f"{NOT_STARTED}: {error}") from error

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

    def fly(self, server: ServerProcess) -> tuple[ProgramOutcome, list[Record]]:
        """Run the program. Beside the outcome: what it reported of itself.

        Raises:
            SandboxError: the server did not take the order, or ended before the program did.
        """
        began = time.monotonic()
        with ExitStack() as held:
            pipes = self._send(server, held)
            texts, cause = self._watch(pipes, began + self._limits.time_s)
            answer = self._end()
            cause = self._empty(pipes, texts) or cause
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

    def _watch(self, pipes: list[int], deadline: float) -> tuple[list[bytearray], Status | None]:
        """Read until the program has ended; end it where it goes beyond a limit."""
        texts = [bytearray() for _ in pipes]
        cause: Status | None = None
        most = self._limits.output_kib * KIB
        with selectors.DefaultSelector() as selector:
            selector.register(self._leash, selectors.EVENT_READ)
            for index, pipe in enumerate(pipes):
                selector.register(pipe, selectors.EVENT_READ, index)
            while True:
                ready = {key.fd: key.data for key, _ in selector.select(max(0.0, deadline - time.monotonic()))}
                if self._leash.fileno() in ready:
                    return texts, cause
                for pipe, index in ready.items():
                    if not _read(pipe, texts[index], most):
                        selector.unregister(pipe)
                    if cause is None and len(texts[index]) > most:
                        cause, deadline = self._told("output")
                if time.monotonic() >= deadline:
                    if cause is not None:
                        raise SandboxError(f"a program's end took longer than {GRACE_S:g} s")
                    cause, deadline = self._told("timeout")

    def _empty(self, pipes: list[int], texts: list[bytearray]) -> Status | None:
        """Read what an ended program left in its pipes; `output`: it wrote more than it may.

        Its end is the end of all its processes, so nothing more is coming, and an end of the file is not waited for:
        somebody else might hold a pipe open.
        """
        most = self._limits.output_kib * KIB
        for pipe, text in zip(pipes, texts, strict=True):
            while len(text) <= most and _read(pipe, text, most):
                continue
        is_over = any(len(text) > most for text in texts)
        for text in texts:
            del text[most:]
        return "output" if is_over else None

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
    ) -> ProgramOutcome:
        code: int = answer["exit"]
        stdout, stderr = (text.decode("utf-8", "backslashreplace") for text in texts[:2])
        if cause is None and (not records or records[0][0] != BEGUN):
            reason = records[0][1] if records else f"it ended before it began. {stderr}".rstrip()
            return ProgramOutcome(status="refused", stderr=reason, seconds=seconds)
        status = cause or _status(code, records, answer["cpu_s"] >= self._limits.time_s)
        exit_code = code if code >= 0 else None
        return ProgramOutcome(status=status, stdout=stdout, stderr=stderr, seconds=seconds, exit_code=exit_code)


def _read(pipe: int, text: bytearray, most: int) -> int:
    """Add what a pipe holds to a text, to one byte beyond `most`; how much was read: 0 if it is empty or at its end."""
    try:
        part = os.read(pipe, _CHUNK)
    except BlockingIOError:
        return 0
    text += part[: most - len(text) + 1]
    return len(part)


def _status(code: int, records: list[Record], spent: bool) -> Status:
    """How a program ended that was not told to."""
    if code < 0:
        return "timeout" if spent else "killed"
    if code == 0:
        return "ok"
    return "memory" if records and records[-1][0] == NO_MEMORY else "wrong"


def _packet(limits: SandboxLimits) -> bytes:
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
