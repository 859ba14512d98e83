"""The driver's view of one worker: calls with time limits, heartbeats, and one clear end.

`WorkerLink` is the seam to how its process is reached: what an implementation of a cluster writes.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from typing import Any

from mas.cluster.options import ClusterOptions
from mas.cluster.records import FailedCall, HeartbeatReply, Outcome, ProcessStatus, Ref, State, WorkerSpec
from mas.core.errors import CallExpired, CallFailed, ClusterError, WorkerLost

_STILL_S = 0.5
"""A time limit that is noticed so much too late was missed because the event loop stood still."""


class WorkerLink(ABC):
    """One process. It has no time limits: `Handle` has them, and cancels.

    Each method but `kill` raises WorkerLost when the process is gone.
    """

    pid: int | None = None
    node: str = ""

    @abstractmethod
    async def start(self, lost: Callable[[str], None]) -> Outcome:
        """Start the process and have its factory called.

        Args:
            lost: is called once with the reason when the process is gone, or sends what is no message.

        Raises:
            NoResources: the cluster lacks what the worker asks for.
        """

    @abstractmethod
    async def call(self, method: str, payload: bytes, refs: Sequence[Ref]) -> Outcome:
        """Call a method. If this call is cancelled, the worker cancels the method.

        Raises:
            ClusterError: an object is not there.
        """

    @abstractmethod
    async def ping(self) -> HeartbeatReply:
        """Ask for a sign of life."""

    @abstractmethod
    async def stop(self) -> None:
        """Have the worker close itself, and wait until its process has ended."""

    @abstractmethod
    async def kill(self) -> None:
        """End the process and those that it started; nothing if they have ended. Waits for the end."""


class Handle:
    """A worker, started by `Cluster.spawn`. Of use in the event loop that spawned it."""

    def __init__(self, name: str, spec: WorkerSpec, link: WorkerLink, options: ClusterOptions, restarts: int) -> None:
        self.name, self.spec, self.restarts = name, spec, restarts
        self._link, self._options = link, options
        self._state: State = "starting"
        self._ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._calls = 0
        self._rss_bytes: int | None = None
        self._heartbeats: asyncio.Task[None] | None = None
        self._ending = asyncio.Lock()

    @property
    def alive(self) -> bool:
        """Whether it takes calls. False from the moment at which its end is known."""
        return self._state == "alive"

    @property
    def pid(self) -> int | None:
        """Of its process, on its machine; None: it has not started."""
        return self._link.pid

    def member(self) -> ProcessStatus:
        return ProcessStatus(
            name=self.name,
            kind=self.spec.kind,
            pid=self._link.pid,
            node=self._link.node,
            state=self._state,
            restarts=self.restarts,
            calls=self._calls,
            rss_bytes=self._rss_bytes if self.alive else None,
        )

    async def call(
        self, method: str, payload: bytes = b"", *, refs: Sequence[Ref] = (), timeout_s: float | None
    ) -> bytes:
        """Call `method(payload, *objects)` of the worker and return its bytes.

        Calls begin in the order in which they were made. Synchronous methods run one at a time in one thread;
        asynchronous ones run side by side, and beside those. Cancelling the call, or its time limit, cancels an
        asynchronous method; a synchronous one runs to its end, unheard.

        Args:
            refs: objects of `Cluster.put`; the method gets their bytes behind the payload.
            timeout_s: None: no limit, though a worker that hangs as a whole is noticed (`hung_s`).

        Raises:
            CallFailed: the method raised, is not there, or returned no bytes; holds the remote traceback.
            CallExpired: no answer within `timeout_s`.
            WorkerLost: the worker is gone, or went during the call. Whether the method has run is not known.
            ClusterError: the payload or the answer is larger than `payload_mib`, or an object has been freed.
        """
        if not self.alive:
            raise WorkerLost(self._gone(method))
        if len(payload) > self._options.payload_mib << 20:
            raise ClusterError(
                f"{self.name}.{method}: a payload of {len(payload) >> 20} MiB is over payload_mib="
                f"{self._options.payload_mib}: pass it by reference (Cluster.put)"
            )
        self._calls += 1
        try:
            outcome = await self._answer(method, self._link.call(method, payload, refs), timeout_s)
        finally:
            self._calls -= 1
        return self._payload(method, outcome)

    async def wait_ended(self) -> str:
        """Wait until it is gone, stopped or lost, and return the reason."""
        return await asyncio.shield(self._ended)

    async def stop(self, limit_s: float | None = None) -> None:
        """Have it end: calls in flight raise WorkerLost, the worker's `close` is called if it has one.

        Args:
            limit_s: after which it is killed; None: `stop_s` of the options.

        Raises:
            Nothing: a worker that is gone already is fine.
        """
        async with self._ending:
            if self._state in ("stopped", "lost"):
                return await self._link.kill()
            self._finish("stopped", "it was stopped")
            try:
                async with asyncio.timeout(self._options.stop_s if limit_s is None else limit_s):
                    await self._link.stop()
            except (TimeoutError, ClusterError):
                pass  # it is killed below
            finally:
                await self._link.kill()
        return None

    async def kill(self) -> None:
        """End it now, without its `close`."""
        async with self._ending:
            self._finish("stopped", "it was killed by its driver")
            await self._link.kill()

    async def start(self) -> None:
        """Start it: `Cluster.spawn` does.

        Raises:
            CallFailed: the factory raised. WorkerLost: the process ended before the factory returned.
            CallExpired: it took longer than `start_s`. NoResources: the cluster lacks what it asks for.
        """
        try:
            if self._ended.done():
                raise WorkerLost(self._gone("the factory"))
            outcome = await self._answer("the factory", self._link.start(self._lose), self._options.start_s)
            self._payload(self.spec.factory, outcome)
            if self._ended.done():
                raise WorkerLost(self._gone("the factory"))
        except BaseException as error:  # also if cancelled: no process stays
            self._finish("lost", f"it did not start: {error}")
            with suppress(ClusterError):  # the first error says more
                await self._link.kill()
            raise
        self._state = "alive"
        self._heartbeats = asyncio.create_task(self._watch(), name=f"cluster-{self.name}-heartbeats")

    async def _answer(self, what: str, work: Coroutine[Any, Any, Outcome], limit_s: float | None) -> Outcome:
        """The outcome, unless the worker ends or time is up before."""
        task = asyncio.create_task(work, name=f"cluster-{self.name}-{what}")
        loop = asyncio.get_running_loop()
        try:
            ends: set[asyncio.Future[Any]] = {task, self._ended}
            began = loop.time()
            await asyncio.wait(ends, timeout=limit_s, return_when=asyncio.FIRST_COMPLETED)
            if limit_s is not None and loop.time() - began > limit_s + _STILL_S:  # an answer may be there, and not read
                await asyncio.wait(ends, timeout=_STILL_S, return_when=asyncio.FIRST_COMPLETED)
            if task.done():
                return task.result()
            if self._ended.done():
                raise WorkerLost(self._gone(what))
            raise CallExpired(f"{self.name}: no answer to {what} within {limit_s:g} s")
        except WorkerLost as error:
            raise (WorkerLost(self._gone(what)) if self._ended.done() else error) from None
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError, ClusterError):
                await task

    def _payload(self, method: str, outcome: Outcome) -> bytes:
        if isinstance(outcome, FailedCall):
            raise CallFailed(
                f"{self.name}: {method} raised {outcome.error_type}: {outcome.text}\n"
                f"The worker's traceback:\n{outcome.traceback}",
                outcome.error_type,
                outcome.text,
            )
        return outcome.payload

    async def _watch(self) -> None:
        """Ask for a sign of life, for ever; a worker that gives none is killed.

        A wait that ends much later than it should says that this process stood still, as while vLLM starts in it, and
        nothing of the worker, whose answer may be there: it is asked again.
        """
        loop = asyncio.get_running_loop()
        while not self._ended.done():
            began = loop.time()
            try:
                async with asyncio.timeout(self._options.hung_s):
                    self._rss_bytes = (await self._link.ping()).rss_bytes
            except TimeoutError:
                if loop.time() - began > (self._options.hung_s or 0.0) + _STILL_S:
                    continue
                self._lose(f"no answer to a heartbeat for {self._options.hung_s:g} s: it hangs, and is killed")
                await self._link.kill()
                return
            except ClusterError as error:
                self._lose(str(error))
                return
            await asyncio.wait({self._ended}, timeout=self._options.heartbeat_s)

    def _lose(self, reason: str) -> None:
        self._finish("lost", reason)

    def _finish(self, state: State, reason: str) -> None:
        if not self._ended.done():
            self._state = state
            self._ended.set_result(reason)

    def _gone(self, method: str) -> str:
        return f"{self.name} (pid {self.pid}, node {self._link.node}): {method}: {self._ended.result()}"

    async def close(self) -> None:
        """Stop it, and wait for the task that listens for heartbeats: `Cluster.close` does."""
        await self.stop()
        if self._heartbeats is not None:
            self._heartbeats.cancel()
            await asyncio.gather(self._heartbeats, return_exceptions=True)
