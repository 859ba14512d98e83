"""The part of the bus contract about credit, deadlines, cancellation and the end of subscriptions."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from mas.bus.serve import EnvelopeFactory, serve
from mas.core.bus import Bus
from mas.core.errors import Closed, Dropped, Expired, NoRoute
from mas.core.messages import Delivery, Envelope, Note, Payload
from mas.testing.bus_suite import BusSuite, answer_to, cancel, next_text, start


class FlowContract(BusSuite):
    """When senders wait, and what ends their waiting."""

    async def test_a_sender_waits_while_the_credit_is_used_up(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b", credit=2) as inbox:
            for text in "12":
                await bus.publish(sender.new("b", Note(text=text)))
            third = start(bus.publish(sender.new("b", Note(text="3"))))
            assert await self.is_blocked(third)
            first = await inbox.receive()
            assert await self.is_blocked(third), "a message that was received but is not done still holds its credit"
            inbox.done(first)
            await third
            assert [await next_text(inbox), await next_text(inbox)] == ["2", "3"]

    async def test_a_full_queue_drops_what_does_not_wait(self, bus: Bus, sender: EnvelopeFactory) -> None:
        again = sender.new("b", Note(text="2"))
        async with bus.subscribe("b", credit=1) as inbox:
            await bus.publish(sender.new("b", Note(text="1")))
            with pytest.raises(Dropped, match="b"):
                await bus.publish(again, wait=False)
            assert bus.statistics().dropped == 1
            inbox.done(await inbox.receive())
            await bus.publish(again, wait=False)
            assert await next_text(inbox) == "2"

    async def test_a_cancelled_sender_leaves_nothing_behind(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b", credit=1) as inbox:
            await bus.publish(sender.new("b", Note(text="1")))
            waiting = start(bus.publish(sender.new("b", Note(text="2"))))
            assert await self.is_blocked(waiting)
            await cancel(waiting)
            await self.settled(bus)
            inbox.done(await inbox.receive())
            await bus.publish(sender.new("b", Note(text="3")))
            assert await next_text(inbox) == "3"

    async def test_several_subscriptions_share_the_messages(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b", credit=2) as one, bus.subscribe("b", credit=2) as two:
            for text in "1234":
                await bus.publish(sender.new("b", Note(text=text)))
            texts = [await next_text(inbox) for inbox in (one, one, two, two)]
        assert sorted(texts) == list("1234")

    async def test_a_key_stays_with_one_subscription_while_a_message_of_it_is_not_done(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with bus.subscribe("b", credit=1) as one, bus.subscribe("b", credit=1) as two:
            receivers = {start(inbox.receive()): inbox for inbox in (one, two)}
            await bus.publish(sender.new("b", Note(text="1"), key="k"))
            (done, (other,)) = await asyncio.wait(receivers, return_when=asyncio.FIRST_COMPLETED)
            first = done.pop()
            second = start(bus.publish(sender.new("b", Note(text="2"), key="k")))
            assert await self.is_blocked(second), "the second message of the key overtook the first"
            assert not other.done()
            receivers[first].done(first.result())
            await second
            again = start(receivers[first].receive())
            (done, _) = await asyncio.wait([again, other], return_when=asyncio.FIRST_COMPLETED)
            assert [task.result().payload.content for task in done] == ["2"]
            await cancel(other if again in done else again)

    async def test_a_cancelled_request_is_never_seen_by_its_handler(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b") as inbox:
            asked = start(bus.request(sender.new("b", Note(text="cancelled"))))
            assert await self.is_blocked(asked)
            await cancel(asked)
            await bus.publish(sender.new("b", Note(text="next")))
            assert await next_text(inbox) == "next"
            assert bus.statistics().dropped == 1

    async def test_a_receiver_hears_when_a_request_that_it_took_is_cancelled_or_expires(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with bus.subscribe("b") as inbox:
            cancelled = start(bus.request(sender.new("b", Note(text="x"))))
            expiring = start(bus.request(sender.new("b", Note(text="y")), timeout_s=self.patience_s))
            gone = [asyncio.Event(), asyncio.Event()]
            for event in gone:
                inbox.on_abandoned(await inbox.receive(), event.set)
            assert not gone[0].is_set()
            await cancel(cancelled)
            await gone[0].wait()
            with pytest.raises(Expired):
                await expiring
            await gone[1].wait()

    async def test_a_receiver_that_answers_does_not_hear_that_it_was_abandoned(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        heard: list[str] = []
        async with bus.subscribe("b") as inbox:
            for text in ("answered", "failed"):
                asked = start(bus.request(sender.new("b", Note(text=text))))
                request = await inbox.receive()
                inbox.on_abandoned(request, lambda: heard.append("abandoned"))
                if text == "answered":
                    await bus.reply(request, answer_to(request))
                    await asked
                else:
                    await bus.fail(request, Closed("no"))
                    with pytest.raises(Closed):
                        await asked
                inbox.done(request)
            await bus.publish(sender.new("b", Note(text="one way")))
            note = await inbox.receive()
            inbox.on_abandoned(note, lambda: heard.append("abandoned"))
            inbox.done(note)
        assert not heard

    async def test_cancelling_a_request_cancels_its_handler(self, bus: Bus, sender: EnvelopeFactory) -> None:
        began, ended = asyncio.Event(), asyncio.Event()

        async def handle(envelope: Envelope) -> Payload:
            began.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            return envelope.payload

        async with serve(bus, "b", handle):
            asked = start(bus.request(sender.new("b", Note(text="x"))))
            await began.wait()
            await cancel(asked)
            await ended.wait()
            again = start(bus.request(sender.new("b", Note(text="y")), timeout_s=self.patience_s))
            with pytest.raises(Expired):
                await again

    async def test_an_answer_that_nobody_waits_for_is_counted(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b") as inbox:
            asked = start(bus.request(sender.new("b", Note(text="x"))))
            request = await inbox.receive()
            await cancel(asked)
            await self.settled(bus)
            await bus.reply(request, answer_to(request))
            assert bus.statistics().dropped == 1

    async def test_a_request_without_an_answer_expires(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b") as inbox:
            asked = start(bus.request(sender.new("b", Note(text="x")), timeout_s=self.patience_s))
            request = await inbox.receive()
            assert request.deadline is not None
            with pytest.raises(Expired):
                await asked
            await bus.reply(request, answer_to(request))
            assert bus.statistics().dropped == 1

    async def test_a_request_that_nobody_took_expires_and_is_not_delivered(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with bus.subscribe("b") as inbox:
            with pytest.raises(Expired):
                await bus.request(sender.new("b", Note(text="x"), deadline=bus.now() + self.patience_s))
            await bus.publish(sender.new("b", Note(text="next")))
            assert await next_text(inbox) == "next"
            assert bus.statistics().expired == 1

    async def test_a_waiting_sender_expires(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b", credit=1):
            await bus.publish(sender.new("b", Note(text="1")))
            with pytest.raises(Expired):
                await bus.publish(sender.new("b", Note(text="2"), deadline=bus.now() + self.patience_s))
            assert bus.statistics().expired == 1

    async def test_a_message_whose_deadline_has_passed_is_refused(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b"):
            with pytest.raises(Expired):
                await bus.publish(sender.new("b", Note(text="x"), deadline=bus.now() - 1.0))

    async def test_close_wakes_every_waiter(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b", credit=1) as busy, bus.subscribe("c") as idle:
            asked = start(bus.request(sender.new("b", Note(text="1"))))
            await busy.receive()
            publishing = start(bus.publish(sender.new("b", Note(text="2"))))
            receiving = start(idle.receive())
            assert await self.is_blocked(publishing)
            await bus.close()
            await bus.close()
            for task in (asked, publishing, receiving):
                with pytest.raises(Closed):
                    await task
            with pytest.raises(Closed):
                await bus.publish(sender.new("b", Note(text="3")))

    async def test_iteration_ends_when_the_bus_closes_and_the_queue_is_empty(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with bus.subscribe("b") as inbox:
            await bus.publish(sender.new("b", Note(text="last")))
            await bus.close()
            assert [envelope.payload.content async for envelope in inbox] == ["last"]

    async def test_no_sender_hangs_when_its_listener_leaves(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b", credit=2) as inbox:
            taken = start(bus.request(sender.new("b", Note(text="1"))))
            await inbox.receive()
            queued = start(bus.request(sender.new("b", Note(text="2"))))
            waiting = start(bus.publish(sender.new("b", Note(text="3"))))
            assert await self.is_blocked(waiting)
        for task, error in ((taken, Closed), (queued, NoRoute), (waiting, NoRoute)):
            with pytest.raises(error):
                await task

    async def test_what_a_leaving_listener_did_not_take_goes_to_the_others(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with bus.subscribe("b", credit=4) as stays:
            async with bus.subscribe("b", credit=4):
                for text in "1234":
                    await bus.publish(sender.new("b", Note(text=text)))
            assert sorted([await next_text(stays) for _ in range(4)]) == list("1234")

    async def test_who_withdraws_handles_what_it_has_and_the_others_take_what_comes(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with bus.subscribe("b", credit=1) as stays, AsyncExitStack() as leaving:
            leaves = await leaving.enter_async_context(bus.subscribe("b", credit=1))
            asked = [start(bus.request(sender.new("b", Note(text=text)))) for text in "12"]
            held = [await leaves.receive(), await stays.receive()]
            third = start(bus.request(sender.new("b", Note(text="3"))))
            assert await self.is_blocked(third)
            await leaves.withdraw()
            await bus.reply(held[0], answer_to(held[0]))
            leaves.done(held[0])
            assert await self.is_blocked(third), "its credit is not used again"
            assert [envelope async for envelope in leaves] == []
            await leaving.aclose()
            for number in range(2):
                envelope = held[1] if number == 0 else await stays.receive()
                await bus.reply(envelope, answer_to(envelope))
                stays.done(envelope)
            assert sorted([(await task).payload.content for task in (*asked, third)]) == list("123")

    async def test_at_least_once_delivers_again_what_was_not_done(self, bus: Bus, sender: EnvelopeFactory) -> None:
        leaving = AsyncExitStack()
        leaves = await leaving.enter_async_context(bus.subscribe("b", credit=1))
        await bus.publish(sender.new("b", Note(text="x"), delivery=Delivery.AT_LEAST_ONCE))
        assert (await leaves.receive()).attempt == 1
        async with bus.subscribe("b", credit=1) as stays:
            await leaving.aclose()
            assert (await stays.receive()).attempt == 2

    async def test_at_least_once_another_listener_answers_for_the_one_that_left(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with AsyncExitStack() as leaving:
            leaves = await leaving.enter_async_context(bus.subscribe("b", credit=1))
            asked = start(bus.request(sender.new("b", Note(text="x"), delivery=Delivery.AT_LEAST_ONCE)))
            await leaves.receive()
            async with bus.subscribe("b", credit=1) as stays:
                await leaving.aclose()
                again = await stays.receive()
                await bus.reply(again, answer_to(again, "done"))
                assert (await asked).payload.content == "done"

    async def test_at_least_once_another_service_answers_for_the_one_that_left(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        came = asyncio.Event()

        async def hang(request: Envelope) -> Payload:
            came.set()
            return await asyncio.Future()

        async def shout(request: Envelope) -> Payload:
            return Note(text="done")

        async with AsyncExitStack() as leaving:
            await leaving.enter_async_context(serve(bus, "b", hang))
            asked = start(bus.request(sender.new("b", Note(text="x"), delivery=Delivery.AT_LEAST_ONCE)))
            await came.wait()
            async with serve(bus, "b", shout):
                await leaving.aclose()
                assert (await asked).payload.content == "done"

    async def test_the_earlier_of_deadline_and_timeout_holds(self, bus: Bus, sender: EnvelopeFactory) -> None:
        near, far = bus.now() + 50.0, bus.now() + 500.0
        async with bus.subscribe("b") as inbox:
            first = start(bus.request(sender.new("b", Note(text="x"), deadline=near), timeout_s=200.0))
            assert (await inbox.receive()).deadline == pytest.approx(near, abs=self.slack_s, rel=0)
            second = start(bus.request(sender.new("b", Note(text="y"), deadline=far), timeout_s=200.0))
            deadline = (await inbox.receive()).deadline
            assert deadline is not None
            assert near < deadline < far
            await cancel(first)
            await cancel(second)

    async def test_a_duplicate_does_not_wait_for_room(self, bus: Bus, sender: EnvelopeFactory) -> None:
        twice = sender.new("b", Note(text="x"))
        async with bus.subscribe("b", credit=1):
            await bus.publish(twice)
            assert not await self.is_blocked(start(bus.publish(twice)))
