"""What a server takes on: how many requests it has at once, and how long a text may be before anybody counts its
tokens.

Some requests run, some wait, the rest are sent away. A tokenizer takes seconds and gigabytes for megabytes of text,
all for one answer: too long. A token stands for no more characters than the longest of the vocabulary, so a text with
more than that for every token of the context is refused unread. What is left and not short is tokenized in a thread,
one text after the other, while the event loop goes on.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from typing import TypeVar

from starlette.types import Receive

from mas.endpoint.errors import Refused
from mas.endpoint.models import Served

MAX_HELD_BYTES = 256 * 2**20
"""Bytes of the bodies of all requests that are inside."""
_LAST_WORDS_S = 2.0
"""How long requests that were ended may take to say so."""


class Disconnected(Exception):
    """The client is gone; nobody waits for an answer."""


@asynccontextmanager
async def within(seconds: float | None) -> AsyncIterator[None]:
    """Work that may take so long; None: as long as it takes.

    Raises:
        Refused: status 504, it took longer.
    """
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            yield
    except TimeoutError:
        if not limit.expired():
            raise
        raise Refused(504, f"a request may take {seconds:g} s here", code="time_limit") from None


class ConnectionGate:
    """Counts requests from their first byte to their last.

    Args:
        running: completions that run at the same time, of one request or of as many.
        waiting: further requests that may wait for that; more are refused.
    """

    def __init__(self, *, running: int, waiting: int) -> None:
        self.limit = running + waiting
        self._bytes = 0
        self._places = asyncio.Semaphore(running)
        self._capacity = running
        self._turn = asyncio.Lock()
        self._inside = 0
        self.running = 0
        self.is_closing = False
        self._empty = asyncio.Event()
        self._works: set[asyncio.Timeout] = set()

    @property
    def waiting(self) -> int:
        """Requests that were let in and do not run."""
        return self._inside - self.running

    @contextmanager
    def entered(self) -> Iterator[None]:
        """Hold a request from here to its end.

        Raises:
            Refused: the server is closing, or too many are inside.
        """
        if self.is_closing:
            raise Refused(503, "the server is closing", code="closing")
        if self._inside >= self.limit:
            raise Refused(429, f"{self._inside} requests run or wait here already: come again later", code="busy")
        self._inside += 1
        try:
            yield
        finally:
            self._inside -= 1
            if not self._inside:
                self._empty.set()

    @contextmanager
    def holding(self) -> Iterator[Callable[[int], None]]:
        """Gives what must be told of every byte that a request's body takes, until the block ends.

        Raises:
            Refused: the bodies that are held have more than `MAX_HELD_BYTES`; from the call.
        """
        held = 0

        def take(count: int) -> None:
            nonlocal held
            if self._bytes + count > MAX_HELD_BYTES:
                raise Refused(429, "the requests that run or wait here fill its memory: come again later", code="busy")
            self._bytes += count
            held += count

        try:
            yield take
        finally:
            self._bytes -= held

    @asynccontextmanager
    async def places(self, count: int) -> AsyncIterator[None]:
        """Run so many completions, or as many as run at the same time; first come, first served."""
        taken = 0
        try:
            async with self._turn:  # one request at a time takes its places, or two might wait for each other's
                for _ in range(min(count, self._capacity)):
                    await self._places.acquire()
                    taken += 1
            self.running += 1
            try:
                yield
            finally:
                self.running -= 1
        finally:
            for _ in range(taken):
                self._places.release()

    @asynccontextmanager
    async def connected(self, receive: Receive) -> AsyncIterator[None]:
        """Work that ends early when the client leaves, or when the time for closing is over. Its body was read.

        Raises:
            Disconnected: the client left. Refused: the server could not wait any longer.
        """
        work = asyncio.timeout(None)
        is_gone = False

        async def watch() -> None:
            nonlocal is_gone
            while (await receive())["type"] != "http.disconnect":
                pass
            is_gone = True
            _stop(work)

        try:
            async with work:
                self._works.add(work)
                watcher = asyncio.create_task(watch(), name="disconnect")
                try:
                    yield
                finally:
                    self._works.discard(work)
                    watcher.cancel()
                    await asyncio.wait([watcher])
        except TimeoutError:
            if not work.expired():
                raise
            if is_gone:
                raise Disconnected from None
            raise Refused(503, "the server closed before the answer was complete", code="closing") from None

    async def drain(self, limit_s: float) -> None:
        """Let nobody in any more and wait until all are out; after `limit_s` seconds, end what still runs."""
        self.is_closing = True
        if await self._left(limit_s):
            return
        for work in tuple(self._works):
            _stop(work)
        await self._left(_LAST_WORDS_S)

    async def _left(self, limit_s: float) -> bool:
        """Whether all are out within a time: a client that does not read can keep its request inside for ever."""
        try:
            async with asyncio.timeout(limit_s):
                while self._inside:
                    self._empty.clear()
                    await self._empty.wait()
        except TimeoutError:
            return False
        return True


def _stop(work: asyncio.Timeout) -> None:
    """Cancel the work at the next moment, unless that was done already."""
    if not work.expired():
        work.reschedule(asyncio.get_running_loop().time())


T = TypeVar("T")
MAX_BODY_BYTES = 8 * 2**20
"""Bytes of the body of one request, at most, whatever the context of the model."""
_LEAST_BODY_BYTES = 256 * 2**10
"""Bytes that a body may always have, however short the context."""
_ESCAPED = 12
"""Bytes of a character in JSON, at most: two escapes of six."""
_SHORT = 2048
"""Characters that are tokenized at once: some ten milliseconds with the slowest tokenizer that was measured."""


class PromptReader:
    """Tokenizes the texts of one server's requests."""

    def __init__(self, served: Served) -> None:
        self._context = served.context
        self._encode = served.engine.tokenizer.encode
        self.longest = served.context * served.longest_token
        self._worker = ThreadPoolExecutor(1, thread_name_prefix="mas-prompts")

    @property
    def max_body(self) -> int:
        """Bytes of a request's body that a text of the longest length fits in, within what any server takes."""
        return min(max(self.longest * _ESCAPED, _LEAST_BODY_BYTES), MAX_BODY_BYTES)

    async def read(self, texts: Iterable[str], make: Callable[[], T], *, is_slow: bool = False) -> T:
        """What `make` makes of these texts.

        Args:
            is_slow: whether it takes long even if they are short, as where a grammar is read.

        Raises:
            Refused: they are longer than any prompt. Otherwise as `make`.
        """
        length = sum(len(text) for text in texts)
        if length > self.longest:
            raise self._too_long(f"{length} characters")
        if length <= _SHORT and not is_slow:
            return make()
        return await asyncio.get_running_loop().run_in_executor(self._worker, make)

    async def check(self, text: str) -> None:
        """Refuse a text that is no part of any prompt.

        Raises:
            Refused: it is too long.
        """
        if (count := await self.read([text], lambda: len(self._encode(text)))) > self._context:
            raise self._too_long(f"{count} tokens")

    def _too_long(self, what: str) -> Refused:
        return Refused(
            400,
            f"{what} of text exceed the context of {self._context} tokens: shorten it",
            code="context_length_exceeded",
        )
