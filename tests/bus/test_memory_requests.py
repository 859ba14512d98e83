"""What becomes of requests on the memory bus: answered once, refused, cancelled, or given up, and always counted."""

import asyncio
from contextlib import AsyncExitStack

import msgspec
import pytest

from mas.bus.memory import MemoryBus
from mas.bus.serve import EnvelopeFactory
from mas.core.errors import Closed, Denied, Dropped, RemoteError
from mas.core.messages import Delivery, Envelope, Note
from mas.testing.bus_suite import answer_to, next_text, start


@pytest.fixture
def sender() -> EnvelopeFactory:
    return EnvelopeFactory("a")


def note(sender: EnvelopeFactory, text: str) -> Envelope:
    return sender.new("b", Note(text=text))


async def test_a_duplicate_request_is_refused_while_the_first_goes_on(sender):
    bus = MemoryBus()
    twice = note(sender, "x")
    async with bus.subscribe("b") as inbox:
        first = start(bus.request(twice))
        request = await inbox.receive()
        with pytest.raises(Dropped, match="before"):
            await bus.request(twice)
        await bus.reply(request, answer_to(request))
        assert (await first).payload.content == "x"


async def test_best_effort_requests_of_one_id_get_an_answer_each(sender):
    bus = MemoryBus()
    same = sender.new("b", Note(text="x"), delivery=Delivery.BEST_EFFORT)
    async with bus.subscribe("b") as inbox:
        asked = [start(bus.request(same)), start(bus.request(same))]
        for text in "12":
            request = await inbox.receive()
            await bus.reply(request, answer_to(request, text))
        assert [(await task).payload.content for task in asked] == ["1", "2"]


async def test_a_second_answer_is_late(sender):
    bus = MemoryBus()
    async with bus.subscribe("b") as inbox:
        asked = start(bus.request(note(sender, "x")))
        request = await inbox.receive()
        await bus.reply(request, answer_to(request, "first"))
        await bus.fail(request, ValueError("second"))
        assert (await asked).payload.content == "first"
    assert bus.statistics().late == 1


async def test_an_answer_that_the_requester_may_not_read_is_denied_and_the_request_still_waits(sender):
    bus = MemoryBus()
    async with bus.subscribe("b") as inbox:
        asked = start(bus.request(note(sender, "x")))
        request = await inbox.receive()
        private = msgspec.structs.replace(answer_to(request, "y"), visibility=frozenset({"b"}))
        with pytest.raises(Denied, match="'a'"):
            await bus.reply(request, private)
        assert not asked.done()
        await bus.reply(request, msgspec.structs.replace(private, visibility=frozenset({"a"})))
        assert (await asked).payload.content == "y"


async def test_a_request_is_withheld_from_the_moment_of_its_cancellation(sender):
    bus = MemoryBus()
    async with bus.subscribe("b") as inbox:
        asked = start(bus.request(note(sender, "cancelled")))
        await asyncio.wait([asked], timeout=0)
        await bus.publish(note(sender, "next"))
        asked.cancel()  # its task has not run since
        assert await next_text(inbox) == "next"
    assert bus.statistics().cancelled == 1


async def test_a_request_cancelled_just_before_its_listener_leaves_counts_as_cancelled(sender):
    bus = MemoryBus()
    async with bus.subscribe("b"):
        asked = start(bus.request(note(sender, "x")))
        await asyncio.wait([asked], timeout=0)
        asked.cancel()
    assert (bus.statistics().cancelled, bus.statistics().abandoned) == (1, 0)


async def test_a_request_that_was_answered_is_not_delivered_again(sender):
    bus = MemoryBus()
    leaving = AsyncExitStack()
    leaves = await leaving.enter_async_context(bus.subscribe("b"))
    asked = start(bus.request(sender.new("b", Note(text="x"), delivery=Delivery.AT_LEAST_ONCE)))
    request = await leaves.receive()
    await bus.reply(request, answer_to(request))
    async with bus.subscribe("b"):
        await leaving.aclose()
        await asked
    assert bus.statistics().accepted == 2, "the request and its answer"


async def test_at_least_once_without_another_listener_tells_the_requester(sender):
    bus = MemoryBus()
    async with bus.subscribe("b") as inbox:
        asked = start(bus.request(sender.new("b", Note(text="x"), delivery=Delivery.AT_LEAST_ONCE)))
        await inbox.receive()
    with pytest.raises(Closed):
        await asked
    assert bus.statistics().dropped == 0


async def test_a_remote_error_keeps_its_cause(sender):
    bus = MemoryBus()
    cause = ValueError("x")
    async with bus.subscribe("b") as inbox:
        asked = start(bus.request(note(sender, "x")))
        await bus.fail(await inbox.receive(), cause)
        with pytest.raises(RemoteError) as caught:
            await asked
    assert caught.value.__cause__ is cause


async def test_requests_leave_neither_timers_nor_entries(sender, monkeypatch):
    bus = MemoryBus()
    loop = asyncio.get_running_loop()
    timers: list[asyncio.TimerHandle] = []
    call_later = loop.call_later

    def noted(delay, callback, *arguments):
        timers.append(call_later(delay, callback, *arguments))
        return timers[-1]

    monkeypatch.setattr(loop, "call_later", noted)
    async with bus.subscribe("b") as inbox:
        asked = start(bus.request(note(sender, "x"), timeout_s=1000.0))
        request = await inbox.receive()
        await bus.reply(request, answer_to(request))
        await asked
    assert [timer.cancelled() for timer in timers] == [True]
    assert bus._pending == {}


async def test_an_unanswered_request_is_counted(sender):
    bus = MemoryBus()
    async with bus.subscribe("b") as inbox:
        asked = start(bus.request(note(sender, "x")))
        inbox.done(await inbox.receive())
    with pytest.raises(Closed, match="left without an answer"):
        await asked
    assert bus.statistics().unanswered == 1
