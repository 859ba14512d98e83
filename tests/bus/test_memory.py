"""The memory bus keeps the contract of every bus, and its own promises."""

import asyncio
import time

import pytest

from mas.bus.counters import BusLimits
from mas.bus.in_flight import InFlightMessage, Pending
from mas.bus.memory import MemoryBus
from mas.bus.mqtt.outgoing import OutgoingMessage
from mas.bus.mqtt.received import ReceivedMessage
from mas.bus.mqtt.topics import Peer
from mas.bus.serve import EnvelopeFactory
from mas.core.bus import Bus, Subscription
from mas.core.errors import BusError, Closed, Denied, NoRoute
from mas.core.messages import Envelope, Note
from mas.testing.bus import BusContract, OrphansContract, RedeliveryContract
from mas.testing.bus_suite import LoopTurn, cancel, next_text, start


class TestMemoryBus(BusContract, RedeliveryContract, OrphansContract):
    async def make_bus(self) -> Bus:
        return MemoryBus()


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.time_s = 100.0

    def __call__(self) -> float:
        return self.time_s


@pytest.fixture
def sender() -> EnvelopeFactory:
    return EnvelopeFactory("a")


def note(sender: EnvelopeFactory, text: str, *, key: str | None = None) -> Envelope:
    return sender.new("b", Note(text=text), key=key)


def test_what_an_event_loop_shows_of_a_message_in_flight_holds_nothing_of_what_was_said(
    sender: EnvelopeFactory,
) -> None:
    asked = note(sender, "secret")
    answered = ReceivedMessage((Peer("a", "p"), "t"), 1, "done", changed=lambda message, event: None, reply=b"secret")
    messages: list[Pending | ReceivedMessage] = [
        InFlightMessage(asked, ticket=1, is_request=False),
        OutgoingMessage(asked, ticket="t", mode="publish", deadline=None),
        answered,
    ]
    assert not [message for message in messages if "secret" in repr(message)]


def test_the_memory_bus_and_its_subscriptions_fit_the_protocols():
    assert isinstance(MemoryBus(), Bus)
    assert isinstance(MemoryBus().subscribe("b"), Subscription)


@pytest.mark.parametrize("credit", [0, -1])
def test_credit_below_one_is_refused(credit):
    with pytest.raises(ValueError, match=f"credit .* is {credit}"):
        MemoryBus().subscribe("b", credit=credit)


def test_a_memory_of_no_ids_is_refused():
    with pytest.raises(ValueError, match="remembered is 0"):
        MemoryBus(limits=BusLimits(remembered=0))


async def test_no_route_names_the_addresses_that_exist(sender):
    bus = MemoryBus()
    async with bus.subscribe("solver"), bus.subscribe("critic"):
        with pytest.raises(NoRoute, match=r"Did you mean 'solver'\? Possible: 'critic', 'solver'"):
            await bus.publish(sender.new("solvr", Note(text="x")))


async def test_ids_are_remembered_up_to_the_bound_and_the_oldest_is_forgotten_first(sender):
    bus = MemoryBus(limits=BusLimits(remembered=2))
    first, second, third = (note(sender, text) for text in "123")
    async with bus.subscribe("b") as inbox:
        for envelope in (first, second, third, second, third, first):
            await bus.publish(envelope)
        assert [await next_text(inbox) for _ in range(4)] == ["1", "2", "3", "1"]
    assert bus.statistics().duplicates == 2


async def test_two_waiting_senders_of_one_id_deliver_it_once(sender):
    bus = MemoryBus()
    twice = note(sender, "twice")
    async with bus.subscribe("b", credit=1) as inbox:
        await bus.publish(note(sender, "first"))
        tasks = [start(bus.publish(twice)), start(bus.publish(twice))]
        await asyncio.wait(tasks, timeout=0)
        assert [await next_text(inbox), await next_text(inbox)] == ["first", "twice"]
        await asyncio.gather(*tasks)
        assert bus.statistics().duplicates == 1


async def test_a_cancelled_id_may_be_sent_again(sender):
    bus = MemoryBus()
    again = note(sender, "again")
    async with bus.subscribe("b") as inbox:
        asked = start(bus.request(again))
        await asyncio.wait([asked], timeout=0)
        await cancel(asked)
        await bus.publish(again)
        assert await next_text(inbox) == "again"


async def test_a_message_that_entered_the_queue_in_time_stays_when_its_timer_comes_after(sender, monkeypatch):
    clock = Clock()
    bus = MemoryBus(clock=clock)
    fire: list[tuple] = []
    async with bus.subscribe("b", credit=1) as inbox:
        await bus.publish(note(sender, "1"))
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "call_later", lambda delay, *call: fire.append(call))
            waiting = start(bus.publish(sender.new("b", Note(text="2"), deadline=105.0)))
            await LoopTurn()
        await next_text(inbox)
        clock.time_s = 106.0
        (callback, *arguments) = fire[0]
        callback(*arguments)
        clock.time_s = 104.0
        await waiting
        assert await next_text(inbox) == "2"


async def test_subscriptions_of_one_address_have_one_principal():
    bus = MemoryBus()
    async with bus.subscribe("b", principal="bob"):
        with pytest.raises(Denied, match="'eve' cannot listen at 'b'"):
            async with bus.subscribe("b", principal="eve"):
                pass
    async with bus.subscribe("b", principal="eve"):
        assert bus.statistics().subscriptions == 1


async def test_a_closed_bus_takes_no_subscription():
    bus = MemoryBus()
    await bus.close()
    with pytest.raises(Closed):
        async with bus.subscribe("b"):
            pass


async def test_done_twice_is_an_error_and_after_the_end_it_is_none(sender):
    bus = MemoryBus()
    async with bus.subscribe("b") as inbox:
        for text in "12":
            await bus.publish(note(sender, text))
        first, second = await inbox.receive(), await inbox.receive()
        inbox.done(first)
        with pytest.raises(BusError, match="not held"):
            inbox.done(first)
    inbox.done(second)


async def test_messages_that_expire_in_the_queue_are_counted_and_make_room(sender):
    clock = Clock()
    bus = MemoryBus(clock=clock)
    async with bus.subscribe("b", credit=2) as inbox:
        for _ in range(2):
            await bus.publish(sender.new("b", Note(text="old"), deadline=105.0))
        clock.time_s = 105.0
        await bus.publish(note(sender, "new"), wait=False)
        assert bus.statistics().expired == 2
        assert await next_text(inbox) == "new"
        await bus.publish(sender.new("b", Note(text="old"), deadline=106.0))
        clock.time_s = 106.0
        assert bus.statistics().expired == 3


async def test_an_expired_message_is_passed_over_by_its_receiver(sender):
    clock = Clock()
    bus = MemoryBus(clock=clock)
    async with bus.subscribe("b") as inbox:
        await bus.publish(sender.new("b", Note(text="old"), deadline=105.0))
        await bus.publish(note(sender, "new"))
        clock.time_s = 105.0
        assert await next_text(inbox) == "new"


async def test_a_cancelled_receiver_loses_no_message(sender):
    bus = MemoryBus()
    async with bus.subscribe("b") as inbox:
        receivers = [start(inbox.receive()), start(inbox.receive())]
        await asyncio.wait(receivers, timeout=0)
        await bus.publish(note(sender, "x"))
        await cancel(receivers[0])
        assert (await receivers[1]).payload.content == "x"


async def test_a_tap_that_raises_is_reported_and_stops_no_delivery(sender):
    bus = MemoryBus()
    reported: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context["message"]))
    bus.tap(lambda envelope: 1 // 0)
    async with bus.subscribe("b") as inbox:
        await bus.publish(note(sender, "x"))
        assert await next_text(inbox) == "x"
    assert len(reported) == 1
    assert "tap failed" in reported[0]


async def test_a_round_trip_costs_a_few_bare_futures_and_no_timer(sender, monkeypatch):
    """Seen: 2 to 4 times a bare queue and future. The bound of 15 is for noisy machines."""
    loop = asyncio.get_running_loop()
    timers: list[object] = []
    monkeypatch.setattr(loop, "call_at", lambda *arguments, **named: timers.append(arguments))
    rounds = 2_000
    bus = MemoryBus()

    async def answer(inbox: Subscription) -> None:
        async for request in inbox:
            await bus.reply(request, request)
            inbox.done(request)

    async def bare(queue: asyncio.Queue[asyncio.Future[None] | None]) -> None:
        while (future := await queue.get()) is not None:
            future.set_result(None)

    queue: asyncio.Queue[asyncio.Future[None] | None] = asyncio.Queue()
    floor = start(bare(queue))
    begin = time.process_time()
    for _ in range(rounds):
        future = loop.create_future()
        await queue.put(future)
        await future
    floor_s = time.process_time() - begin
    await queue.put(None)
    await floor

    async with bus.subscribe("b") as inbox:
        answering = start(answer(inbox))
        begin = time.process_time()
        for _ in range(rounds):
            await bus.request(note(sender, "x"))
        cost_s = time.process_time() - begin
        await bus.close()
        await answering
    assert timers == []
    assert cost_s < 15 * floor_s
