"""The sandbox as its callers use it: run a program, or check one with cases, at once or awaited."""

import asyncio
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from types import TracebackType
from typing import Self
from weakref import WeakSet

from mas.core.errors import SandboxError
from mas.sandbox.flight import KIB, NOT_STARTED, Flight, Order, Record
from mas.sandbox.inside.program import VALUE
from mas.sandbox.inside.values import canonical
from mas.sandbox.mechanism import Mechanism, open_server
from mas.sandbox.outcome import Checked, ProgramCase, ProgramOutcome, SandboxLimits
from mas.sandbox.server_process import ServerProcess

CLOSED = "the sandbox is closed: make another one"


class Sandbox:
    """Runs untrusted Python programs. It begins with the first program and is to be closed.

    Args:
        limits: of every program.
        places: programs at a time; more wait for one to end.
        seed: of `random` in every program; the order of sets of text is always the same.
        mechanism: how the walls are built; None: the first of `mas.sandbox.mechanism` that works here.
    """

    def __init__(
        self, limits: SandboxLimits | None = None, *, places: int = 2, seed: int = 0, mechanism: Mechanism | None = None
    ) -> None:
        if places < 1:
            raise SandboxError(f"places={places}: at least one program must be able to run")
        self.limits = limits or SandboxLimits()
        self._seed = seed
        self._mechanism = mechanism
        self._places = threading.BoundedSemaphore(places)
        self._threads = ThreadPoolExecutor(places, thread_name_prefix="sandbox")
        self._opening = threading.Lock()
        self._server: ServerProcess | None = None
        self._servers: WeakSet[ServerProcess] = WeakSet()
        self._is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """End every program and the server. A closed sandbox runs nothing more."""
        with self._opening:
            self._is_closed = True
            self._server = None
            for server in list(self._servers):
                server.close()
        self._threads.shutdown()

    def run_now(self, source: str, stdin: str = "") -> ProgramOutcome:
        """Run a program to its end.

        Raises:
            SandboxError: no program can be run safely here, or the sandbox broke or was closed.
        """
        return self._fly(Flight(self._order(source, stdin=stdin), self.limits))[0]

    async def run(self, source: str, stdin: str = "") -> ProgramOutcome:
        """The same, awaited; a task that is cancelled ends its program.

        Raises:
            SandboxError: as `run_now`.
        """
        return (await self._awaited(self._order(source, stdin=stdin)))[0]

    def check_now(self, source: str, cases: Sequence[ProgramCase]) -> Checked:
        """Run a program, then evaluate the call of every case in it, and compare the values out here.

        The expected values never enter the sandbox: a program passes a case by having its value, and by nothing else.

        Raises:
            SandboxError: as `run_now`, or an expected value that cannot be compared.
        """
        wanted = _wanted(cases)
        return _judged(wanted, self._fly(Flight(self._order(source, cases), self.limits)))

    async def check(self, source: str, cases: Sequence[ProgramCase]) -> Checked:
        """The same, awaited.

        Raises:
            SandboxError: as `check_now`.
        """
        wanted = _wanted(cases)
        return _judged(wanted, await self._awaited(self._order(source, cases)))

    def _order(self, source: str, cases: Sequence[ProgramCase] = (), stdin: str = "") -> Order:
        return Order(source=source, calls=tuple(case.call for case in cases), seed=self._seed, stdin=stdin)

    async def _awaited(self, order: Order) -> tuple[ProgramOutcome, list[Record]]:
        if self._is_closed:
            raise SandboxError(CLOSED)
        flight = Flight(order, self.limits)
        running = asyncio.get_running_loop().run_in_executor(self._threads, self._fly, flight)
        running.add_done_callback(lambda ended: ended.cancelled() or ended.exception())
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            flight.stop()
            raise

    def _fly(self, flight: Flight) -> tuple[ProgramOutcome, list[Record]]:
        with closing(flight):
            most, size = self.limits.source_kib * KIB, flight.order.size
            if size > most:
                refused = f"the program and its input have {size} bytes; the limit is {most} (source_kib)"
                return ProgramOutcome(status="refused", stderr=refused), []
            with self._places:
                server = self._open()
                try:
                    return flight.fly(server)
                except SandboxError:
                    self._retire(server)
                    raise
                except OSError as error:  # such as no more open files
                    raise SandboxError(f"{NOT_STARTED}: {error}") from error

    def _open(self) -> ServerProcess:
        with self._opening:
            if self._is_closed:
                raise SandboxError(CLOSED)
            if self._server is None:
                self._server, _ = open_server(self._mechanism)
                self._servers.add(self._server)
            return self._server

    def _retire(self, server: ServerProcess) -> None:
        """The next program begins a new server; this one ends with the last program that it still runs."""
        with self._opening:
            if self._server is server:
                self._server = None


def _wanted(cases: Sequence[ProgramCase]) -> list[Record]:
    """What a program that passes reports."""
    wanted = []
    for case in cases:
        try:
            wanted.append((VALUE, canonical(case.expected)))
        except (TypeError, ValueError) as error:
            raise SandboxError(
                f"the case {case.call!r} expects {type(case.expected).__name__}: {error}. Expect numbers, text, bytes, "
                "booleans, None, or lists, tuples, sets and dictionaries of these."
            ) from error
    return wanted


def _judged(wanted: list[Record], flown: tuple[ProgramOutcome, list[Record]]) -> Checked:
    """Case by case: whether the record in its place holds the expected value. Records beyond the cases say nothing."""
    outcome, records = flown
    reached = [*records[: len(wanted)], *[None] * (len(wanted) - len(records))]
    return Checked(outcome=outcome, passed=tuple(one == other for one, other in zip(wanted, reached, strict=True)))
