"""The contract of every bus, as a test class: subclass `BusContract`, say how to make a bus, and run pytest.

    class TestMyBus(BusContract):
        async def make_bus(self) -> Bus:
            return MyBus()

Needs pytest and pytest-asyncio in auto mode. No test sleeps: a short wait asserts that something does not happen.
"""

import pytest

from mas.bus.serve import EnvelopeFactory
from mas.core.bus import Bus
from mas.core.errors import ConfigError, Denied, NoRoute, RemoteError
from mas.core.messages import Delivery, Envelope, Note, Plan
from mas.testing.bus_flow import FlowContract
from mas.testing.bus_parts import PartsContract
from mas.testing.bus_suite import answer_to, next_text, start


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
