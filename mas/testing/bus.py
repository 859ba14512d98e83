"""The contract of every bus, as test classes: subclass `BusContract` and `RedeliveryContract`, say how to make a bus,
and run pytest.

    class TestMyBus(BusContract, RedeliveryContract):
        async def make_bus(self) -> Bus:
            return MyBus()

`RedeliveryContract` is about messages that were received and not handled; a bus that keeps what nobody is left to take
passes `OrphansContract` as well. Needs pytest and pytest-asyncio in auto mode. No test sleeps: a short wait asserts
that something does not happen.
"""

from contextlib import AsyncExitStack

import pytest

from mas.bus.serve import EnvelopeFactory
from mas.core.bus import Bus
from mas.core.errors import BusError, ConfigError, Denied, NoRoute, RemoteError
from mas.core.messages import Delivery, Envelope, Note, Plan
from mas.testing.bus_flow import FlowContract
from mas.testing.bus_parts import PartsContract
from mas.testing.bus_suite import BusSuite, answer_to, cancel, is_blocked, next_text, start


class BusContract(FlowContract, PartsContract):
    """What every implementation of `Bus` must do."""

    async def test_a_published_message_arrives_unchanged(self, bus: Bus, sender: EnvelopeFactory) -> None:
        sent = sender.new("b", Plan(text="go"), key="k", turn=3, visibility=frozenset({"b"}))
        async with bus.subscribe("b") as inbox:
            await bus.publish(sent)
            assert await inbox.receive() == sent

    async def test_messages_of_one_key_arrive_in_order(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b") as inbox:
            for number in range(20):
                await bus.publish(sender.new("b", Note(text=str(number)), key="k"))
            assert [await next_text(inbox) for _ in range(20)] == [str(number) for number in range(20)]

    async def test_an_unknown_target_is_no_route(self, bus: Bus, sender: EnvelopeFactory) -> None:
        with pytest.raises(NoRoute, match="nowhere"):
            await bus.publish(sender.new("nowhere", Note(text="x")))
        with pytest.raises(NoRoute, match="nowhere"):
            await bus.request(sender.new("nowhere", Note(text="x")))

    async def test_an_address_is_no_route_after_its_last_subscription_ended(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with bus.subscribe("b"):
            assert bus.statistics().subscriptions == 1
        assert bus.statistics().subscriptions == 0
        with pytest.raises(NoRoute):
            await bus.publish(sender.new("b", Note(text="x")))

    async def test_a_request_gets_its_own_answer(self, bus: Bus, sender: EnvelopeFactory) -> None:
        first, second = (sender.new("b", Note(text=text)) for text in ("first", "second"))
        async with bus.subscribe("b") as inbox:
            asked = [start(bus.request(first)), start(bus.request(second))]
            taken = [await inbox.receive(), await inbox.receive()]
            assert all(request.reply_to is not None for request in taken)
            for request in reversed(taken):
                await bus.reply(request, answer_to(request))
                inbox.done(request)
            answers = [await task for task in asked]
        assert [answer.payload.content for answer in answers] == ["first", "second"]
        assert [answer.correlation for answer in answers] == [first.id, second.id]

    async def test_the_bus_writes_the_request_into_the_answer(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b") as inbox:
            asked = start(bus.request(sender.new("b", Note(text="x"))))
            request = await inbox.receive()
            await bus.reply(request, EnvelopeFactory("b").new("a", Note(text="y")))
            assert (await asked).correlation == request.id

    async def test_a_mas_error_of_the_handler_is_raised_as_it_is(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b") as inbox:
            asked = start(bus.request(sender.new("b", Note(text="x"))))
            await bus.fail(await inbox.receive(), ConfigError("no such model"))
            with pytest.raises(ConfigError, match="no such model"):
                await asked

    async def test_any_other_error_of_the_handler_becomes_a_remote_error(
        self, bus: Bus, sender: EnvelopeFactory
    ) -> None:
        async with bus.subscribe("b") as inbox:
            asked = start(bus.request(sender.new("b", Note(text="x"))))
            await bus.fail(await inbox.receive(), ZeroDivisionError("by nought"))
            with pytest.raises(RemoteError, match="ZeroDivisionError: by nought"):
                await asked

    async def test_a_duplicate_id_is_delivered_once(self, bus: Bus, sender: EnvelopeFactory) -> None:
        twice = sender.new("b", Note(text="once"))
        async with bus.subscribe("b") as inbox:
            await bus.publish(twice)
            await bus.publish(twice)
            await bus.publish(sender.new("b", Note(text="end")))
            assert [await next_text(inbox), await next_text(inbox)] == ["once", "end"]
            assert bus.statistics().dropped == 1

    async def test_one_id_may_go_to_several_addresses(self, bus: Bus) -> None:
        note = Note(text="x")
        async with bus.subscribe("b") as one, bus.subscribe("c") as two:
            for target, inbox in (("b", one), ("c", two)):
                await bus.publish(Envelope(id="same", kind=note.kind, source="a", target=target, payload=note))
                assert (await inbox.receive()).target == target

    async def test_best_effort_does_not_look_for_duplicates(self, bus: Bus, sender: EnvelopeFactory) -> None:
        twice = sender.new("b", Note(text="x"), delivery=Delivery.BEST_EFFORT)
        async with bus.subscribe("b") as inbox:
            await bus.publish(twice)
            await bus.publish(twice)
            taken = [await inbox.receive(), await inbox.receive()]
            for envelope in taken:
                inbox.done(envelope)
            assert taken == [twice, twice]

    async def test_a_private_message_is_denied_to_a_stranger(self, bus: Bus, sender: EnvelopeFactory) -> None:
        async with bus.subscribe("b", principal="bob") as inbox:
            with pytest.raises(Denied, match=r"'bob'.* not in its visibility: 'b', 'eve'$"):
                await bus.publish(sender.new("b", Note(text="secret"), visibility=frozenset({"eve", "b"})))
            with pytest.raises(Denied, match="bob"):
                await bus.request(sender.new("b", Note(text="secret"), visibility=frozenset()))
            await bus.publish(sender.new("b", Note(text="for bob"), visibility=frozenset({"bob"})))
            assert await next_text(inbox) == "for bob"

    async def test_a_tap_sees_messages_and_answers_but_nothing_private(self, bus: Bus, sender: EnvelopeFactory) -> None:
        stranger: list[Envelope] = []
        reader: list[Envelope] = []
        ends = [bus.tap(stranger.append), bus.tap(reader.append, principal="b")]
        async with bus.subscribe("b") as inbox:
            await bus.publish(sender.new("b", Plan(text="secret"), visibility=frozenset({"b"})))
            asked = start(bus.request(sender.new("b", Note(text="open"))))
            assert await next_text(inbox) == "secret"
            request = await inbox.receive()
            await bus.reply(request, answer_to(request, "answer"))
            await asked
            for end in ends:
                end()
            await bus.publish(sender.new("b", Note(text="after")))
        assert [envelope.payload.content for envelope in stranger] == ["[private]", "open", "answer"]
        assert [envelope.payload.content for envelope in reader] == ["secret", "open", "answer"]
        assert stranger[0].kind == "note", "the kind must be that of the payload"


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
