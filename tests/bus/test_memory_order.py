"""Who gets which message on the memory bus: turns, keys, and the order of waiting senders."""

import asyncio

import pytest

from mas.bus.memory import MemoryBus
from mas.bus.serve import EnvelopeFactory
from mas.core.messages import Envelope, Note
from mas.testing.bus_suite import LoopTurn, cancel, next_text, start


@pytest.fixture
def sender() -> EnvelopeFactory:
    return EnvelopeFactory("a")


def note(sender: EnvelopeFactory, text: str, *, key: str | None = None) -> Envelope:
    return sender.new("b", Note(text=text), key=key)


async def test_equal_subscriptions_take_turns_and_the_one_with_more_credit_gets_more(sender):
    bus = MemoryBus()
    async with bus.subscribe("b", credit=3) as one, bus.subscribe("b", credit=3) as two:
        for text in "1234":
            await bus.publish(note(sender, text))
        assert [await next_text(one), await next_text(one)] == ["2", "4"]
        assert [await next_text(two), await next_text(two)] == ["1", "3"]
    async with bus.subscribe("b", credit=1) as small, bus.subscribe("b", credit=4) as large:
        for text in "12345":
            await bus.publish(note(sender, text))
        # free credit 1:4, 1:3, 1:2, then 1:1, where the small one's turn has come, then 0:1
        assert await next_text(small) == "4"
        assert [await next_text(large) for _ in range(4)] == ["1", "2", "3", "5"]


async def test_a_keyed_message_waits_for_its_subscription_and_others_pass_it(sender):
    bus = MemoryBus()
    async with bus.subscribe("b", credit=1) as one:
        await bus.publish(note(sender, "k1", key="k"))
        first = await one.receive()
        async with bus.subscribe("b", credit=1) as two:
            keyed, free = start(bus.publish(note(sender, "k2", key="k"))), start(bus.publish(note(sender, "free")))
            await free
            assert await next_text(two) == "free"
            assert not keyed.done()
            one.done(first)
            await keyed
            assert await next_text(one) == "k2"


async def test_the_same_key_from_two_sources_is_two_orders(sender):
    bus = MemoryBus()
    other = EnvelopeFactory("other")
    async with bus.subscribe("b", credit=1) as one, bus.subscribe("b", credit=1) as two:
        await bus.publish(note(sender, "1", key="k"))
        await bus.publish(note(other, "2", key="k"), wait=False)
        assert {await next_text(one), await next_text(two)} == {"1", "2"}


async def test_a_key_is_free_again_when_its_last_message_is_done(sender):
    bus = MemoryBus()
    async with bus.subscribe("b", credit=1) as one, bus.subscribe("b", credit=1) as two:
        await bus.publish(note(sender, "1", key="k"))
        was, free = (one, two) if one.queue else (two, one)
        await next_text(was)
        await bus.publish(note(sender, "2"))
        await bus.publish(note(sender, "3"))
        await next_text(free)
        await bus.publish(note(sender, "4", key="k"), wait=False)
        assert await next_text(free) == "4"


@pytest.mark.parametrize("why", ["cancelled", "duplicate"])
async def test_a_keyed_sender_that_never_got_in_does_not_bind_its_key(sender, why):
    bus = MemoryBus()
    async with bus.subscribe("b", credit=1) as one:
        await bus.publish(note(sender, "k1", key="k"))
        first = await one.receive()
        async with bus.subscribe("b", credit=1) as two:
            k2 = note(sender, "k2", key="k")
            waiting = [start(bus.publish(k2))] + ([start(bus.publish(k2))] if why == "duplicate" else [])
            await LoopTurn()
            if why == "cancelled":
                await cancel(waiting[0])
            one.done(first)
            if why == "duplicate":
                await next_text(one)
                await asyncio.gather(*waiting)
            for text in ("fill", "fill"):
                await bus.publish(note(sender, text), wait=False)
            await next_text(two)
            await bus.publish(note(sender, "k3", key="k"), wait=False)
            assert await next_text(two) == "k3"


async def test_a_key_keeps_its_order_when_its_senders_waited_before_it_was_bound(sender):
    bus = MemoryBus()
    async with bus.subscribe("b", credit=1) as one, bus.subscribe("b", credit=1) as two:
        for _ in range(2):
            await bus.publish(note(sender, "fill"))
        held = await two.receive()
        waiting = [start(bus.publish(note(sender, text, key="k"))) for text in ("k1", "k2")]
        await LoopTurn()
        await next_text(one)
        waiting.append(start(bus.publish(note(sender, "k3", key="k"))))
        await LoopTurn()
        two.done(held)
        assert not two.queue, "the key is bound to the other subscription"
        assert [await next_text(one) for _ in range(3)] == ["k1", "k2", "k3"]
        await asyncio.gather(*waiting)


async def test_a_keyed_sender_is_served_before_one_that_came_later(sender):
    bus = MemoryBus()
    async with bus.subscribe("b", credit=1) as inbox:
        await bus.publish(note(sender, "k1", key="k"))
        waiting = [start(bus.publish(note(sender, "k2", key="k"))), start(bus.publish(note(sender, "free")))]
        await LoopTurn()
        assert [await next_text(inbox) for _ in range(3)] == ["k1", "k2", "free"]
        await asyncio.gather(*waiting)


async def test_what_a_leaving_listener_held_comes_before_what_waits(sender):
    bus = MemoryBus()
    async with bus.subscribe("b", credit=1) as stays:
        await bus.publish(note(sender, "1"))
        async with bus.subscribe("b", credit=2):
            for text in "23":
                await bus.publish(note(sender, text))
            waiting = start(bus.publish(note(sender, "4")))
            await LoopTurn()
        assert [await next_text(stays) for _ in range(4)] == list("1234")
        await waiting
