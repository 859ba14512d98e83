"""Calls and answers where every message is expensive: those that are there at the same time travel together.

One exchange takes calls to the worker and comes back with answers, to these or to earlier calls, as soon as there is at
least one. The driver keeps an exchange under way for as long as calls are unanswered. So one call alone is one
exchange, many at once are few, and no answer waits for another.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import islice
from typing import Any

import msgspec

from mas.cluster.records import Done, Outcome
from mas.cluster.turns import Turns
from mas.cluster.worker_object import WorkerObject
from mas.core.errors import ClusterError, WorkerLost

_TOGETHER = 1 << 20
"""Bytes of payloads or answers that travel together; a larger one travels alone."""
Send = Callable[[bytes, Sequence[Any]], Awaitable[bytes]]
"""Sends calls with the references of their objects, and returns answers. Raises ClusterError."""


class SentCall(msgspec.Struct, frozen=True, array_like=True):
    """A call of an exchange. `objects`: how many of those of the exchange it gets, behind those of the calls before."""

    number: int
    method: str
    payload: bytes
    objects: int


class NumberedOutcome(msgspec.Struct, frozen=True, array_like=True):
    """The answer to the call of this number."""

    number: int
    outcome: Outcome


_calls: msgspec.msgpack.Decoder[list[SentCall]] = msgspec.msgpack.Decoder(list[SentCall])
_answers: msgspec.msgpack.Decoder[list[NumberedOutcome]] = msgspec.msgpack.Decoder(list[NumberedOutcome])


class CallServer:
    """The worker's side. Exchanges may arrive in any order; calls begin in the order of their numbers."""

    def __init__(self, served: WorkerObject) -> None:
        self._object = served
        self._turns = Turns()
        self._running: dict[int, asyncio.Task[None]] = {}
        self._ready: list[NumberedOutcome] = []
        self._news = asyncio.Event()

    async def exchange(self, calls: bytes, objects: Iterable[bytes]) -> bytes:
        """Begin calls; answers as soon as there are any, or none once nothing runs."""
        contents = iter(objects)
        for call in _calls.decode(calls):
            self._begin(call, [*islice(contents, call.objects)])
        while self._running and not self._ready:
            self._news.clear()
            await self._news.wait()
        return msgspec.msgpack.encode(self._taken())

    def cancel(self, number: int) -> None:
        """Cancel a call that runs, or that is still to come."""
        if number in self._running:
            self._running[number].cancel()
        else:
            self._turns.pass_on(number)

    def cancel_all(self) -> None:
        for task in self._running.values():
            task.cancel()

    def _begin(self, call: SentCall, objects: Sequence[bytes]) -> None:
        if self._turns.is_passed(call.number):
            return  # it was cancelled before it arrived, and its answer is not awaited
        task = self._running[call.number] = asyncio.create_task(self._run(call, objects), name=f"call-{call.number}")
        task.add_done_callback(lambda _: self._end(call.number))

    async def _run(self, call: SentCall, objects: Sequence[bytes]) -> None:
        await self._turns.wait(call.number)
        self._turns.pass_on(call.number)  # the next one runs when this one has begun and waits
        fetches = [partial(bytes, content) for content in objects]
        outcome = await self._object.invoke(call.method, call.payload, fetches)
        self._ready.append(NumberedOutcome(call.number, outcome))

    def _end(self, number: int) -> None:
        self._turns.pass_on(number)
        del self._running[number]
        self._news.set()

    def _taken(self) -> list[NumberedOutcome]:
        """The oldest answers, as many as travel together; the others stay for another exchange."""
        size = count = 0
        for answer in self._ready:
            size += len(answer.outcome.payload) if isinstance(answer.outcome, Done) else 0
            if count and size > _TOGETHER:
                break
            count += 1
        taken = self._ready[:count]
        del self._ready[:count]
        if self._ready:
            self._news.set()
        return taken


class CallSender:
    """The driver's side.

    Args:
        name: of the worker.
        cancel: cancels the call of a number at the worker, without waiting.
    """

    def __init__(self, name: str, send: Send, cancel: Callable[[int], None]) -> None:
        self._name, self._send, self._cancel = name, send, cancel
        self._next = 0
        self._waiting: dict[int, asyncio.Future[Outcome]] = {}
        self._left: set[int] = set()  # calls whose exchange came back without their answer
        self._unsent: list[tuple[SentCall, Sequence[Any]]] = []
        self._exchanges: dict[asyncio.Task[None], bool] = {}  # value: it carries objects, for which it may have to wait

    async def call(self, method: str, payload: bytes, objects: Sequence[Any]) -> Outcome:
        """Call a method with objects by reference. If this call is cancelled, the worker cancels the method.

        Raises:
            ClusterError: what `send` raises.
        """
        loop, number = asyncio.get_running_loop(), self._next
        self._next += 1
        answer: asyncio.Future[Outcome] = loop.create_future()
        self._waiting[number] = answer
        self._unsent.append((SentCall(number, method, payload, len(objects)), objects))
        if len(self._unsent) == 1:
            loop.call_soon(self._send_all)
        try:
            return await answer
        except BaseException:  # cancelled, or it was not sent: the method must not go on
            self._cancel(number)
            raise
        finally:
            del self._waiting[number]
            self._left.discard(number)

    async def close(self) -> None:
        for task in self._exchanges:
            task.cancel()
        await asyncio.gather(*self._exchanges, return_exceptions=True)

    def _send_all(self) -> None:
        """Send what was called since the last turn of the event loop."""
        unsent, self._unsent = self._unsent, []
        for batch in _batches(unsent):
            self._begin(batch)

    def _begin(self, batch: Sequence[tuple[SentCall, Sequence[Any]]]) -> None:
        objects = [one for _, own in batch for one in own]
        work = self._exchange([call for call, _ in batch], objects)
        task = asyncio.create_task(work, name=f"cluster-{self._name}-exchange")
        self._exchanges[task] = bool(objects)
        task.add_done_callback(self._done)

    async def _exchange(self, calls: Sequence[SentCall], objects: Sequence[Any]) -> None:
        numbers = {call.number for call in calls}
        try:
            content = await self._send(msgspec.msgpack.encode(calls), objects)
        except (
            ClusterError
        ) as error:  # an object is gone, and only what needs it fails; or answers may have gone with it
            self._fail(numbers if objects and not isinstance(error, WorkerLost) else [*self._waiting], error)
            return
        self._left |= numbers & self._waiting.keys()
        for answer in _answers.decode(content):
            self._left.discard(answer.number)
            waiting = self._waiting.get(answer.number)  # None: cancelled
            if waiting is not None and not waiting.done():
                waiting.set_result(answer.outcome)

    def _fail(self, numbers: Iterable[int], error: ClusterError) -> None:
        for number in numbers:
            waiting = self._waiting.get(number)
            if waiting is not None and not waiting.done():
                waiting.set_exception(type(error)(str(error)))

    def _done(self, task: asyncio.Task[None]) -> None:
        """Begin another exchange if calls are left that none is under way for."""
        del self._exchanges[task]
        if not task.cancelled() and self._left and all(self._exchanges.values()):
            self._begin([])


def _batches(calls: Sequence[tuple[SentCall, Sequence[Any]]]) -> Iterator[Sequence[tuple[SentCall, Sequence[Any]]]]:
    """Calls that travel together. One with objects, which it may have to wait for, travels alone."""
    batch: list[tuple[SentCall, Sequence[Any]]] = []
    size = 0
    for call, objects in calls:
        size += len(call.payload)
        if batch and (objects or batch[-1][1] or size > _TOGETHER):
            yield batch
            batch, size = [], len(call.payload)
        batch.append((call, objects))
    if batch:
        yield batch
