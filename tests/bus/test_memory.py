"""The memory bus keeps the contract of every bus, and its own promises."""

import asyncio
import time

import msgspec
import pytest

from mas.bus.envelopes import EnvelopeFactory
from mas.bus.memory import MemoryBus
from mas.core.bus import Bus, Subscription
from mas.core.errors import BusError, Closed, Denied, Dropped, NoRoute
from mas.core.messages import Delivery, Envelope, Note
from mas.testing.bus import BusContract
from mas.testing.bus_suite import answer_to, cancel, next_text, start


class TestMemoryBus(BusContract):
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


def test_the_memory_bus_and_its_subscriptions_fit_the_protocols():
    assert isinstance(MemoryBus(), Bus)
    assert isinstance(MemoryBus().subscribe("b"), Subscription)


@pytest.mark.parametrize("credit", [0, -1])
def test_credit_below_one_is_refused(credit):
    with pytest.raises(ValueError, match=f"credit .* is {credit}"):
        MemoryBus().subscribe("b", credit=credit)


def test_a_memory_of_no_ids_is_refused():
    with pytest.raises(ValueError, match="remembered is 0"):
        MemoryBus(remembered=0)


async def test_no_route_names_the_addresses_that_exist(sender):
    bus = MemoryBus()
    async with bus.subscribe("solver"), bus.subscribe("critic"):
        with pytest.raises(NoRoute, match=r"Did you mean 'solver'\? Possible: 'critic', 'solver'"):
            await bus.publish(sender.new("solvr", Note(text="x")))


async def test_ids_are_remembered_up_to_the_bound_and_the_oldest_is_forgotten_first(sender):
    bus = MemoryBus(remembered=2)
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


async def test_an_unanswered_request_is_counted(sender):
    bus = MemoryBus()
    async with bus.subscribe("b") as inbox:
        asked = start(bus.request(note(sender, "x")))
        inbox.done(await inbox.receive())
    with pytest.raises(Closed, match="left without an answer"):
        await asked
    assert bus.statistics().unanswered == 1


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
