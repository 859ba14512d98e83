"""The part of the bus contract about answers that come in parts."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import pytest

from mas.bus.serve import EnvelopeFactory, serve
from mas.core.bus import Bus, Gap, Restart, Stream, Subscription
from mas.core.errors import Closed, ConfigError, Expired, NoRoute
from mas.core.messages import Delivery, Envelope, Note, Payload
from mas.testing.bus_suite import BusSuite, answer_to, is_blocked, start

Told = list[str | Gap | Restart]


def as_told(item: Envelope | Gap | Restart) -> str | Gap | Restart:
    """A part as its text, everything else as it is."""
    return item.payload.content if isinstance(item, Envelope) else item


async def rest(stream: Stream) -> Told:
    """All that is left to read."""
    return [as_told(item) async for item in stream]


def send_parts(bus: Bus, request: Envelope, texts: str) -> None:
    """One part per character."""
    for text in texts:
        assert bus.part(request, Note(text=text))


@asynccontextmanager
async def asked(
    bus: Bus, sender: EnvelopeFactory, *, queue: int = 256, visibility: frozenset[str] | None = None
) -> AsyncIterator[tuple[Subscription, Stream, Envelope]]:
    """A question that `b` has received, and the stream of its answer."""
    question = sender.new("b", Note(text="?"), visibility=visibility)
    async with bus.subscribe("b") as inbox, bus.stream(question, queue=queue) as stream:
        yield inbox, stream, await inbox.receive()


class PartsContract(BusSuite):
    """Parts are best effort and never silently less; the answer is as sure as any."""

    async def arrived(self, bus: Bus) -> None:
        """Wait until parts that were sent are with their readers."""
        for _ in range(2):
            await self.settled(bus)

    async def test_parts_come_in_order_and_then_the_answer(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with asked(bus, sender) as (inbox, stream, request):
            send_parts(bus, request, "abc")
            await bus.reply(request, answer_to(request, "abc!"))
            inbox.done(request)
            parts = [part async for part in stream if isinstance(part, Envelope)]
            answer = await stream.answer()
        assert [part.payload.content for part in parts] == ["a", "b", "c"]
        assert [(part.sequence, part.final) for part in parts] == [(0, False), (1, False), (2, False)]
        assert {(part.source, part.target, part.correlation) for part in parts} == {("b", "a", request.id)}
        assert (answer.payload.content, answer.sequence, answer.final) == ("abc!", 3, True)
        counts = bus.statistics().parts
        assert (counts.delivered, counts.dropped, counts.missing) == (3, 0, 0)

    async def test_a_part_is_read_before_the_next_one_is_sent(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with asked(bus, sender) as (_, stream, request):
            parts = aiter(stream)
            for text in "abc":
                send_parts(bus, request, text)
                assert as_told(await anext(parts)) == text

    async def test_who_wants_only_the_answer_gets_it(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with asked(bus, sender, queue=2) as (_, stream, request):
            send_parts(bus, request, "abcdefgh")
            await bus.reply(request, answer_to(request, "all"))
            for _ in range(2):
                assert (await stream.answer()).payload.content == "all"
        counts = bus.statistics().parts
        assert (counts.delivered, counts.dropped, counts.waiting) == (0, 8, 0)

    async def test_a_slow_reader_is_told_what_it_missed(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with asked(bus, sender, queue=2) as (_, stream, request):
            send_parts(bus, request, "abcde")
            await self.arrived(bus)
            parts = aiter(stream)
            assert [as_told(await anext(parts)) for _ in range(2)] == ["a", "b"]
            send_parts(bus, request, "fgh")
            await self.arrived(bus)
            await bus.reply(request, answer_to(request))
            assert await rest(stream) == [Gap(2, 4), "f", "g", Gap(7, 7)]
        counts = bus.statistics().parts
        assert (counts.delivered, counts.dropped, counts.missing) == (4, 4, 4)

    async def test_what_is_sent_to_nobody_is_counted(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b") as inbox:
            plain = start(bus.request(sender.new("b", Note(text="?"))))
            request = await inbox.receive()
            assert not bus.part(request, Note(text="a"))
            await bus.reply(request, answer_to(request))
            assert (await plain).sequence == 0
            inbox.done(request)
            await bus.publish(sender.new("b", Note(text="one way")))
            assert not bus.part(await inbox.receive(), Note(text="a"))
        assert bus.statistics().parts.dropped == 2

    async def test_no_part_comes_after_the_answer(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with asked(bus, sender) as (_, stream, request):
            send_parts(bus, request, "a")
            await bus.reply(request, answer_to(request))
            assert not bus.part(request, Note(text="b"))
            assert await rest(stream) == ["a"]

    async def test_leaving_cancels_the_handler(self, bus: Bus, sender: EnvelopeFactory) -> None:
        ended = asyncio.Event()

        async def handle(envelope: Envelope) -> Payload:
            try:
                bus.part(envelope, Note(text="a"))
                await asyncio.Event().wait()
            finally:
                ended.set()
            return envelope.payload

        async with serve(bus, "b", handle):
            async with bus.stream(sender.new("b", Note(text="?"))) as stream:
                async for part in stream:
                    assert as_told(part) == "a"
                    break
            await ended.wait()
        with pytest.raises(Closed, match="left before the answer"):
            await stream.answer()

    async def test_an_error_comes_after_the_parts_before_it(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with asked(bus, sender) as (_, stream, request):
            send_parts(bus, request, "a")
            await bus.fail(request, ConfigError("no such model"))
            parts = aiter(stream)
            assert as_told(await anext(parts)) == "a"
            for _ in range(2):
                with pytest.raises(ConfigError, match="no such model"):
                    await anext(parts)
            with pytest.raises(ConfigError, match="no such model"):
                await stream.answer()

    async def test_a_stream_that_cannot_be_asked_for_fails_as_a_request(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with bus.stream(sender.new("nowhere", Note(text="?"))) as stream:
            with pytest.raises(NoRoute, match="nowhere"):
                await rest(stream)
        async with bus.subscribe("b"), bus.stream(sender.new("b", Note(text="?")), timeout_s=self.patience_s) as stream:
            with pytest.raises(Expired):
                await rest(stream)

    async def test_close_wakes_a_reader(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with asked(bus, sender) as (_, stream, _):
            reading = start(rest(stream))
            assert await self.is_blocked(reading)
            await bus.close()
            with pytest.raises(Closed):
                await reading

    async def test_parts_of_a_private_answer_are_private_and_no_tap_sees_parts(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        seen: list[Envelope] = []
        bus.tap(seen.append, principal="b")
        async with asked(bus, sender, visibility=frozenset({"b"})) as (_, stream, request):
            send_parts(bus, request, "a")
            (part,) = [await anext(aiter(stream))]
            await bus.reply(request, answer_to(request, "answer"))
            answer = await stream.answer()
        assert isinstance(part, Envelope)
        assert part.visibility == answer.visibility == frozenset({"b", self.principal or "a"})
        assert [envelope.payload.content for envelope in seen] == ["?", "answer"]

    async def test_an_answer_begun_anew_makes_what_came_void(self, bus: Bus, sender: EnvelopeFactory) -> None:
        question = sender.new("b", Note(text="?"), delivery=Delivery.AT_LEAST_ONCE)
        async with AsyncExitStack() as leaving:
            leaves = await leaving.enter_async_context(bus.subscribe("b", credit=1))
            async with bus.stream(question) as stream:
                parts = aiter(stream)
                first = await leaves.receive()
                send_parts(bus, first, "ab")
                assert [as_told(await anext(parts)) for _ in range(2)] == ["a", "b"]
                async with bus.subscribe("b", credit=1) as stays:
                    await leaving.aclose()
                    again = await stays.receive()
                    send_parts(bus, again, "xyz")
                    assert not bus.part(first, Note(text="late"))
                    await bus.reply(again, answer_to(again, "xyz"))
                    assert await rest(stream) == [Restart(), "x", "y", "z"]
                    assert (await stream.answer()).sequence == 3

    async def test_an_answer_begun_anew_without_parts_makes_what_came_void(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with asked(bus, sender) as (inbox, stream, request):
            send_parts(bus, request, "ab")
            await anext(aiter(stream))
            inbox.nack(request)
            again = await inbox.receive()
            await bus.reply(again, answer_to(again))
            assert await rest(stream) == ["b", Restart()]

    async def test_a_queue_for_no_part_is_refused(self, bus: Bus, sender: EnvelopeFactory) -> None:
        with pytest.raises(ValueError, match="the queue of a stream is 0"):
            bus.stream(sender.new("b", Note(text="?")), queue=0)

    async def test_two_streams_of_one_handler_do_not_mix(self, bus: Bus, sender: EnvelopeFactory) -> None:
        both = [sender.new("b", Note(text=text)) for text in "12"]
        async with bus.subscribe("b") as inbox, bus.stream(both[0]) as one, bus.stream(both[1]) as two:
            requests = sorted([await inbox.receive(), await inbox.receive()], key=lambda request: request.id)
            for text in "abc":
                for request in requests:
                    send_parts(bus, request, request.payload.content + text)
            for request in requests:
                await bus.reply(request, answer_to(request))
            assert await rest(one) == list("1a1b1c")
            assert await rest(two) == list("2a2b2c")

    async def test_reading_waits_for_the_next_part(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with asked(bus, sender) as (_, stream, _):
            waiting = start(rest(stream))
            assert await is_blocked(waiting, self.patience_s)
            waiting.cancel()
            await asyncio.wait([waiting])
            answering = start(stream.answer())
            assert await self.is_blocked(answering), "a reader that gave up reading must not have ended the request"
            answering.cancel()
            await asyncio.wait([answering])
