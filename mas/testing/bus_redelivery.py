"""What a bus does with messages that were received and not handled; a part of the contract of every bus.

class TestMyBus(BusContract, RedeliveryContract): ...

A bus that keeps what nobody is left to take passes `OrphansContract` as well.
"""

from contextlib import AsyncExitStack

import pytest

from mas.bus.serve import EnvelopeFactory
from mas.core.bus import Bus
from mas.core.errors import BusError, NoRoute, RemoteError
from mas.core.messages import Delivery, Note
from mas.testing.bus_suite import BusSuite, answer_to, cancel, is_blocked, next_text, start

PROMISED = (Delivery.AT_LEAST_ONCE, Delivery.EFFECTIVELY_ONCE)


class RedeliveryContract(BusSuite):
    """Nothing that was promised is lost while the bus lives."""

    @pytest.mark.parametrize("delivery", PROMISED)
    async def test_a_message_given_back_comes_again_until_it_is_done(
        self, bus: Bus, sender: EnvelopeFactory, delivery: Delivery
    ) -> None:
        async with bus.subscribe("b", credit=1) as inbox:
            await bus.publish(sender.new("b", Note(text="x"), delivery=delivery))
            for attempt in (1, 2, 3):
                envelope = await inbox.receive()
                assert envelope.attempt == attempt
                if attempt < 3:
                    inbox.nack(envelope, cause="not now")
            inbox.done(envelope)
            again = start(inbox.receive())
            assert await is_blocked(again)
            await cancel(again)

    async def test_a_message_given_back_may_go_to_another_subscription(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b", credit=1) as one:
            await bus.publish(sender.new("b", Note(text="x")))
            envelope = await one.receive()
            waiting = start(bus.publish(sender.new("b", Note(text="waited"))))
            assert await is_blocked(waiting)
            async with bus.subscribe("b", credit=1) as two:
                one.nack(envelope)
                assert {await next_text(one), await next_text(two)} == {"x", "waited"}
            await waiting

    async def test_a_delay_passes_before_it_comes_again_and_other_messages_come_first(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with bus.subscribe("b") as inbox:
            await bus.publish(sender.new("b", Note(text="late")))
            inbox.nack(await inbox.receive(), delay_s=0.05)
            await bus.publish(sender.new("b", Note(text="first")))
            assert [await next_text(inbox), await next_text(inbox)] == ["first", "late"]

    async def test_a_delay_passes_though_its_listener_leaves(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b") as leaves:
            for text in ("late", "behind"):
                await bus.publish(sender.new("b", Note(text=text), key="k"))
            leaves.nack(await leaves.receive(), delay_s=self.patience_s)
        async with bus.subscribe("b") as comes:
            await bus.publish(sender.new("b", Note(text="first")))
            assert [await next_text(comes) for _ in range(3)] == ["first", "late", "behind"]

    async def test_later_messages_of_the_key_wait_behind_the_one_given_back(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with bus.subscribe("b", credit=2) as inbox:
            for text in "12":
                await bus.publish(sender.new("b", Note(text=text), key="k"))
            waiting = start(bus.publish(sender.new("b", Note(text="3"), key="k")))
            inbox.nack(await inbox.receive(), delay_s=0.05)
            await bus.publish(sender.new("b", Note(text="free")))
            assert [await next_text(inbox) for _ in range(4)] == ["free", "1", "2", "3"]
            await waiting

    async def test_what_was_received_behind_it_can_be_given_back_untried(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with bus.subscribe("b") as inbox:
            for text in "12":
                await bus.publish(sender.new("b", Note(text=text), key="k"))
            first, second = await inbox.receive(), await inbox.receive()
            inbox.nack(first, delay_s=0.02)
            inbox.nack(second, is_tried=False)
            assert [await next_text(inbox), await next_text(inbox)] == ["1", "2"]

    async def test_it_is_given_up_in_the_end(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b") as inbox:
            await bus.publish(sender.new("b", Note(text="never")))
            while bus.statistics().dead == 0:
                inbox.nack(await inbox.receive(), cause="never")
            await bus.publish(sender.new("b", Note(text="rejected")))
            inbox.reject(await inbox.receive(), cause="no use")
            assert bus.statistics().dead == 2
            assert bus.statistics().waiting == 0

    async def test_a_request_that_is_rejected_fails_with_the_cause(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b") as inbox:
            asked = start(bus.request(sender.new("b", Note(text="x"))))
            inbox.reject(await inbox.receive(), cause="no use")
            with pytest.raises(RemoteError, match="no use"):
                await asked

    async def test_a_request_given_back_is_answered_on_its_next_delivery(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with bus.subscribe("b") as inbox:
            asked = start(bus.request(sender.new("b", Note(text="x"))))
            inbox.nack(await inbox.receive())
            again = await inbox.receive()
            await bus.reply(again, answer_to(again, "late"))
            inbox.done(again)
            assert (await asked).payload.content == "late"

    async def test_best_effort_is_delivered_once_and_dropped_where_there_is_no_room(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with bus.subscribe("b", credit=1) as inbox:
            for text in "12":
                await bus.publish(sender.new("b", Note(text=text), delivery=Delivery.BEST_EFFORT))
            inbox.nack(await inbox.receive())
            assert bus.statistics().dropped == 2
            assert bus.statistics().waiting == 0

    async def test_a_message_is_given_back_once(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with AsyncExitStack() as leaving:
            inbox = await leaving.enter_async_context(bus.subscribe("b"))
            await bus.publish(sender.new("b", Note(text="x")))
            envelope = await inbox.receive()
            with pytest.raises(ValueError, match="delay_s"):
                inbox.nack(envelope, delay_s=-1.0)
            inbox.reject(envelope, cause="no use")
            for give_back in (inbox.nack, inbox.done):
                with pytest.raises(BusError, match="not held"):
                    give_back(envelope)


class OrphansContract(BusSuite):
    """Of buses that keep what nobody is left to take."""

    @pytest.mark.parametrize("delivery", PROMISED)
    async def test_what_the_last_listener_left_waits_for_the_next_one(
        self, bus: Bus, sender: EnvelopeFactory, delivery: Delivery
    ) -> None:
        async with bus.subscribe("b") as leaves:
            for text in "12":
                await bus.publish(sender.new("b", Note(text=text), delivery=delivery))
            await leaves.receive()
        with pytest.raises(NoRoute):
            await bus.publish(sender.new("b", Note(text="3")))
        assert bus.statistics().waiting == 2
        async with bus.subscribe("b") as comes:
            again = [await comes.receive(), await comes.receive()]
            assert [(envelope.payload.content, envelope.attempt) for envelope in again] == [("1", 2), ("2", 1)]
