"""Calls that travel together: none waits for another, none is lost, and they are few exchanges."""

import asyncio
import random
from collections.abc import Sequence
from typing import Any

import pytest

from mas.cluster.exchange import CallSender, CallServer
from mas.cluster.records import Done, FailedCall, Outcome
from mas.cluster.worker_object import WorkerObject
from mas.core.errors import ClusterError, WorkerLost

MIB = 1 << 20


class Served:
    """Answers when it is let."""

    def __init__(self) -> None:
        self.begun: list[bytes] = []
        self.cancelled: list[bytes] = []
        self.gate = asyncio.Event()

    async def echo(self, payload: bytes, *objects: bytes) -> bytes:
        self.begun.append(payload)
        return b"+".join((payload, *objects))

    async def wait(self, payload: bytes) -> bytes:
        self.begun.append(payload)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled.append(payload)
            raise
        return payload

    async def pause(self, payload: bytes, *objects: bytes) -> bytes:
        """Answers `payload` turns of the event loop later."""
        if not objects:  # those are fetched first
            self.begun.append(payload)
        for _ in range(int(payload.split(b":")[0])):
            await asyncio.sleep(0)
        return b"+".join((payload, *objects))

    async def large(self, payload: bytes) -> bytes:
        return bytes(int(payload))


class Wire:
    """Both sides in one process. `delays`: draws how many turns of the event loop a message takes."""

    def __init__(self, delays: random.Random | None = None) -> None:
        self.served = Served()
        served = WorkerObject(1 << 30)
        served._object = self.served
        self.server = CallServer(served)
        self.sender = CallSender("worker", self._send, self._cancel)
        self.sizes: list[int] = []
        self.error: ClusterError | None = None
        self._delays = delays
        self._cancels: set[asyncio.Task[None]] = set()

    async def call(self, method: str, payload: bytes, *objects: bytes) -> Outcome:
        return await self.sender.call(method, payload, objects)

    async def _send(self, calls: bytes, objects: Sequence[Any]) -> bytes:
        await self._delay()
        if self.error is not None and (objects or isinstance(self.error, WorkerLost)):
            raise self.error
        answer = await self.server.exchange(calls, objects)
        self.sizes.append(len(answer))
        await self._delay()
        return answer

    def _cancel(self, number: int) -> None:
        task = asyncio.create_task(self._cancel_later(number))
        self._cancels.add(task)
        task.add_done_callback(self._cancels.discard)

    async def _cancel_later(self, number: int) -> None:
        await self._delay()
        self.server.cancel(number)

    async def _delay(self) -> None:
        for _ in range(self._delays.randrange(12) if self._delays is not None else 0):
            await asyncio.sleep(0)


async def test_calls_made_at_once_are_few_exchanges_and_one_alone_is_one() -> None:
    wire = Wire()
    assert await wire.call("echo", b"alone") == Done(b"alone")
    assert len(wire.sizes) == 1
    numbers = [str(number).encode() for number in range(100)]
    assert await asyncio.gather(*(wire.call("echo", one) for one in numbers)) == [Done(one) for one in numbers]
    assert len(wire.sizes) < 5
    assert wire.served.begun == [b"alone", *numbers]


async def test_an_answer_waits_for_no_other_call() -> None:
    wire = Wire()
    slow = asyncio.create_task(wire.call("wait", b"slow"))
    assert await asyncio.wait_for(asyncio.gather(*(wire.call("echo", b"fast") for _ in range(3))), 5)
    together = [asyncio.create_task(wire.call(*words)) for words in (("wait", b"slow too"), ("echo", b"fast"))]
    assert await asyncio.wait_for(together[1], 5) == Done(b"fast")
    assert not slow.done()
    wire.served.gate.set()
    assert await asyncio.wait_for(slow, 5) == Done(b"slow")
    assert await asyncio.wait_for(together[0], 5) == Done(b"slow too")


async def test_whatever_the_order_of_messages_each_call_gets_its_answer_and_begins_in_turn() -> None:
    for seed in range(60):
        draw = random.Random(seed)
        wire = Wire(draw)
        tasks: dict[bytes, asyncio.Task[Outcome]] = {}
        for number in range(30):
            payload = f"{draw.randrange(20)}:{number}".encode()
            objects = [b"object"] * draw.choice((0, 0, 0, 2))
            tasks[payload] = asyncio.create_task(wire.call("pause", payload, *objects))
            for _ in range(draw.choice((0, 0, 1, 9))):
                await asyncio.sleep(0)
        cancelled = draw.sample(sorted(tasks), 5)
        for payload in cancelled:
            tasks[payload].cancel()
        answers = await asyncio.wait_for(asyncio.gather(*tasks.values(), return_exceptions=True), 20)
        for payload, answer in zip(tasks, answers, strict=True):
            if isinstance(answer, asyncio.CancelledError):
                assert payload in cancelled
            else:
                assert isinstance(answer, Done)
                assert answer.payload.split(b"+")[0] == payload
        begun = [int(payload.split(b":")[1]) for payload in wire.served.begun]
        assert begun == sorted(begun)
        assert len(begun) >= 10
        await wire.sender.close()


async def test_a_call_that_is_cancelled_is_cancelled_at_the_worker_also_before_it_came() -> None:
    wire = Wire()
    task = asyncio.create_task(wire.call("wait", b"begun"))
    await asyncio.wait_for(wire.call("echo", b"1"), 5)
    task.cancel()
    early = asyncio.create_task(wire.call("wait", b"never came"))
    await asyncio.sleep(0)
    early.cancel()
    await asyncio.wait_for(wire.call("echo", b"2"), 5)
    assert wire.served.cancelled == [b"begun"]
    assert b"never came" not in wire.served.begun or b"never came" in wire.served.cancelled


async def test_large_answers_travel_one_by_one() -> None:
    wire = Wire()
    answers = await asyncio.gather(*(wire.call("large", str(MIB).encode()) for _ in range(4)))
    assert [len(answer.payload) for answer in answers if isinstance(answer, Done)] == [MIB] * 4
    assert max(wire.sizes) < 1.1 * MIB


async def test_an_error_is_its_callers_and_the_end_of_the_worker_everybodys() -> None:
    wire = Wire()
    assert isinstance(await wire.call("none", b""), FailedCall)
    waiting = asyncio.create_task(wire.call("wait", b"1"))
    await wire.call("echo", b"2")
    wire.error = ClusterError("its object is gone")
    with pytest.raises(ClusterError, match="its object is gone"):
        await wire.call("echo", b"3", b"object")
    assert not waiting.done()
    wire.error = WorkerLost("it is gone")
    with pytest.raises(WorkerLost, match="it is gone"):
        await wire.call("echo", b"4")
    with pytest.raises(WorkerLost, match="it is gone"):
        await asyncio.wait_for(waiting, 5)
    await wire.sender.close()
