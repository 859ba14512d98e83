"""Work that a client asks for and fetches later, once for each request, however often it is sent.

The key of a request is made of what the client numbers (its model and the number of the request there). The same
request again is answered with the same key and does nothing; another request under that key is refused.
"""

import asyncio
import hashlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from mas.core.errors import RefusedRequest, UnknownAdapter
from mas.endpoint.errors import Refused, refusal

MOST_PENDING = 4096
"""Requests that wait or are carried out."""
MOST_PENDING_BYTES = 2**30
"""Of the bodies of those requests."""
MOST_KEPT = 8192
MOST_KEPT_BYTES = 256 * 2**20
"""Of answers that are kept for clients that fetch them again; the oldest go first."""

Answer = bytes | dict[str, Any]
"""Protocol buffers, or what is sent as JSON."""


@dataclass(slots=True, eq=False)
class _Entry:
    digest: bytes
    task: asyncio.Task[Answer]
    size: int
    is_counted: bool = False


def failed(error: Exception) -> dict[str, str]:
    """The answer to a request that failed, as the SDK reads it: `user` for what the client can mend."""
    told = refusal(error)
    is_mendable = isinstance(error, RefusedRequest | UnknownAdapter) or 400 <= told.status < 500
    return {"error": str(told), "category": "user" if is_mendable else "server"}


class Futures:
    """All requests of a server, in the order in which they came. `fetching`: how many answers are waited for now."""

    def __init__(self) -> None:
        self.fetching = 0
        self._entries: dict[str, _Entry] = {}
        self._pending = self._pending_bytes = 0
        self._bytes = 0
        self._closed = False

    def begin(self, key: str, body: bytes, work: Callable[[], Awaitable[Answer]], *, is_awaited: bool = False) -> str:
        """Carry out a request, unless it is there already; returns its key.

        Args:
            is_awaited: others may wait for this one; it is let in however many are under way.

        Raises:
            Refused: another request had this key, or too many are under way.
        """
        digest = hashlib.sha256(body).digest()
        if (known := self._entries.get(key)) is not None:
            if known.digest != digest:
                raise Refused(400, f"another request was sent as {key}: number requests by what they are, each once")
            return key
        if self._closed:
            raise Refused(503, "the server is closing", code="closing")
        is_full = self._pending >= MOST_PENDING or self._pending_bytes + len(body) > MOST_PENDING_BYTES
        if is_full and not is_awaited:
            raise Refused(429, f"{self._pending} requests are under way here: come again later", code="busy")
        self._pending += 1
        self._pending_bytes += len(body)
        task = asyncio.create_task(_answered(work), name=f"tinker-{key}")
        self._entries[key] = entry = _Entry(digest, task, len(body))
        task.add_done_callback(lambda _: self._ended(entry))
        return key

    async def fetch(self, key: str, wait_s: float) -> Answer | None:
        """The answer, None: there is none yet after so many seconds.

        Raises:
            Refused: status 410, there is no such request, or it was given up or fetched long ago.
        """
        entry = self._entries.get(key)
        if entry is None:
            raise Refused(410, f"no request {key[:200]!r} is kept here; its answer may have been dropped as an old one")
        self.fetching += 1
        try:
            await asyncio.wait([entry.task], timeout=wait_s)
        finally:
            self.fetching -= 1
        if not entry.task.done():
            return None
        return _stopped() if entry.task.cancelled() else entry.task.result()

    def cancel(self, key: str) -> None:
        """Stop a request, if it is under way."""
        if (entry := self._entries.get(key)) is not None:
            entry.task.cancel()

    async def close(self) -> None:
        """Stop all; nothing is begun any more."""
        self._closed = True
        tasks = [entry.task for entry in self._entries.values()]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _ended(self, entry: _Entry) -> None:
        self._pending -= 1
        self._pending_bytes -= entry.size
        self._bytes += _size(entry.task)
        entry.is_counted = True
        while self._bytes > MOST_KEPT_BYTES or len(self._entries) - self._pending > MOST_KEPT:
            oldest = next(((key, one) for key, one in self._entries.items() if one.is_counted), None)
            if oldest is None:
                return
            self._bytes -= _size(oldest[1].task)
            del self._entries[oldest[0]]


def _size(task: asyncio.Task[Answer]) -> int:
    answer = _stopped() if task.cancelled() else task.result()
    return len(answer) if isinstance(answer, bytes) else 256


def _stopped() -> Answer:
    return {"error": "the request was stopped before it had an answer", "category": "user"}


async def _answered(work: Callable[[], Awaitable[Answer]]) -> Answer:
    """The boundary: what fails is an answer that says so."""
    try:
        return await work()
    except Exception as error:  # noqa: BLE001 - logged by `refusal`; the client is told that it is the server's
        return dict(failed(error))


class OrderedTurns:
    """The requests of one model in the order of their numbers, whatever order they come in. `next`: whose turn it is.

    Args:
        first: the number that comes first.
    """

    def __init__(self, first: int) -> None:
        self.next = first
        self._waiting: dict[int, asyncio.Future[None]] = {}
        self._ended = ""

    async def begin(self, number: int) -> None:
        """Wait for the turn; whoever got it calls `end`.

        Raises:
            RefusedRequest: the turn was before, or there will be none.
        """
        if self._ended:
            raise RefusedRequest(self._ended)
        if number < self.next:
            raise RefusedRequest(f"request {number} was carried out before, and {self.next} comes next")
        if number > self.next:
            turn = self._waiting[number] = asyncio.get_running_loop().create_future()
            try:
                await turn
            finally:
                self._waiting.pop(number, None)

    def end(self) -> None:
        """The next one begins."""
        self.next += 1
        turn = self._waiting.get(self.next)
        if turn is not None and not turn.done():
            turn.set_result(None)

    def close(self, why: str) -> None:
        """Refuse all that wait and all that come."""
        self._ended = why
        for turn in self._waiting.values():
            if not turn.done():
                turn.set_exception(RefusedRequest(why))
