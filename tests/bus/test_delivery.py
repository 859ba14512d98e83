"""Dead letters of the memory bus, what becomes of them, and services that try again."""

import asyncio

import pytest

from mas.bus.counters import BusLimits
from mas.bus.memory import MemoryBus
from mas.bus.serve import Backoff, EnvelopeFactory, serve
from mas.core.errors import Closed, NoRoute
from mas.core.messages import Delivery, Envelope, Note
from mas.testing.bus_suite import adds_up, cancel, next_text, start


class Clock:
    """Time that passes when the test says so."""

    def __init__(self) -> None:
        self.time_s = 100.0

    def __call__(self) -> float:
        return self.time_s


@pytest.fixture
def sender() -> EnvelopeFactory:
    return EnvelopeFactory("a")


def note(sender: EnvelopeFactory, text: str, **fields) -> Envelope:
    return sender.new("b", Note(text=text), **fields)


def causes(bus: MemoryBus) -> dict[str, str]:
    return {letter.envelope.payload.content: letter.cause for letter in bus.dead_letters()}


@pytest.mark.parametrize("name", ["remembered", "max_attempts", "delayed"])
def test_limits_below_one_are_refused(name):
    with pytest.raises(ValueError, match=f"{name} is 0"):
        BusLimits(**{name: 0})
    with pytest.raises(ValueError, match="dead_letters is -1"):
        BusLimits(dead_letters=-1)


async def test_a_message_dies_of_its_attempts_of_rejection_and_of_its_deadline_each_with_its_cause(sender):
    clock = Clock()
    bus = MemoryBus(clock=clock, limits=BusLimits(max_attempts=2))
    async with bus.subscribe("b", credit=4) as inbox:
        for text in ("tried", "rejected"):
            await bus.publish(note(sender, text))
        tried, rejected = await inbox.receive(), await inbox.receive()
        inbox.nack(tried, cause="disk full")
        inbox.nack(await inbox.receive(), cause="disk still full")
        inbox.reject(rejected, cause="no such tool")
        await bus.publish(note(sender, "expired", deadline=105.0))
        clock.time_s = 105.0
        counts = bus.statistics()
    assert causes(bus) == {
        "tried": "disk still full",
        "rejected": "no such tool",
        "expired": "its deadline passed before it was received",
    }
    assert [letter.attempts for letter in bus.dead_letters()] == [2, 1, 0]
    assert (counts.dead, counts.expired, counts.redelivered) == (2, 1, 1)


async def test_what_nobody_is_left_to_take_when_the_bus_closes_is_a_dead_letter(sender):
    bus = MemoryBus()
    async with bus.subscribe("b"):
        await bus.publish(note(sender, "orphan"))
    async with bus.subscribe("c") as inbox:
        await bus.publish(sender.new("c", Note(text="in the queue")))
        await bus.close()
        assert await next_text(inbox) == "in the queue"
    assert list(causes(bus)) == ["orphan"]
    assert "the last listener at 'b' left" in causes(bus)["orphan"]
    assert bus.statistics().waiting == 0


async def test_only_what_was_promised_becomes_a_dead_letter(sender):
    bus = MemoryBus(limits=BusLimits(max_attempts=1))
    async with bus.subscribe("b", credit=2) as inbox:
        await bus.publish(note(sender, "effort", delivery=Delivery.BEST_EFFORT))
        inbox.nack(await inbox.receive())
        asked = start(bus.request(note(sender, "asked")))
        inbox.nack(await inbox.receive(), cause="no")
        await asyncio.wait([asked])
        for text in "12":
            await bus.publish(note(sender, text, delivery=Delivery.BEST_EFFORT))
        waiting = start(bus.publish(note(sender, "waits")))
        await asyncio.wait([waiting], timeout=0)
    with pytest.raises(NoRoute):
        await waiting
    asked.exception()
    assert bus.dead_letters() == ()
    assert bus.statistics().abandoned == 5


async def test_dead_letters_are_bounded_and_the_forgotten_ones_counted(sender):
    bus = MemoryBus(limits=BusLimits(dead_letters=2))
    async with bus.subscribe("b") as inbox:
        for text in "123":
            await bus.publish(note(sender, text))
            inbox.reject(await inbox.receive(), cause="no")
    assert list(causes(bus)) == ["2", "3"]
    assert (bus.statistics().dead, bus.statistics().forgotten) == (3, 1)


async def test_a_redriven_letter_is_delivered_with_all_its_attempts_and_without_deadline(sender):
    clock = Clock()
    bus = MemoryBus(clock=clock, limits=BusLimits(max_attempts=2))
    async with bus.subscribe("b") as inbox:
        expired = note(sender, "expired", deadline=105.0)
        await bus.publish(expired)
        clock.time_s = 105.0
        await bus.publish(note(sender, "rejected"))
        inbox.reject(await inbox.receive(), cause="no")
        assert bus.redrive("unknown") == 0
        assert bus.redrive(expired.id) == 1
        again = await inbox.receive()
        assert (again.payload.content, again.deadline, again.attempt) == ("expired", None, 2)
        inbox.done(again)
        assert bus.redrive() == 1
        for _ in range(2):
            inbox.nack(await inbox.receive(), cause="still no")
        assert causes(bus) == {"rejected": "still no"}
        assert (bus.statistics().dead, bus.statistics().expired) == (1, 0)
    assert bus.redrive() == 1
    assert bus.statistics().waiting == 1
    async with bus.subscribe("b") as inbox:
        assert await next_text(inbox) == "rejected"
    await bus.close()
    with pytest.raises(Closed):
        bus.redrive()


async def test_an_expired_letter_that_was_sent_again_is_not_delivered_a_second_time(sender):
    clock = Clock()
    bus = MemoryBus(clock=clock)
    async with bus.subscribe("b") as inbox:
        first = note(sender, "x", deadline=105.0)
        await bus.publish(first)
        clock.time_s = 105.0
        bus.statistics()
        await bus.publish(Envelope(id=first.id, kind="note", source="a", target="b", payload=first.payload))
        assert bus.redrive() == 0
        assert await next_text(inbox) == "x"
        assert bus.statistics().duplicates == 1
        assert adds_up(bus)


async def test_an_id_stays_known_once_its_message_was_received_even_if_it_expires_later(sender):
    clock = Clock()
    bus = MemoryBus(clock=clock)
    async with bus.subscribe("b") as inbox:
        first = note(sender, "x", deadline=105.0)
        await bus.publish(first)
        inbox.nack(await inbox.receive())
        clock.time_s = 105.0
        assert bus.statistics().expired == 1
        await bus.publish(Envelope(id=first.id, kind="note", source="a", target="b", payload=first.payload))
        counts = bus.statistics()
    assert (counts.duplicates, counts.waiting) == (1, 0)


async def test_a_timer_that_fires_before_the_clock_waits_for_the_rest(sender, monkeypatch):
    clock = Clock()
    bus = MemoryBus(clock=clock)
    timers: list[tuple[float, tuple]] = []

    def fire() -> None:
        _, (callback, *arguments) = timers[-1]
        callback(*arguments)

    async with bus.subscribe("b") as inbox:
        await bus.publish(note(sender, "x"))
        taken = await inbox.receive()
        with monkeypatch.context() as patch:
            patch.setattr(asyncio.get_running_loop(), "call_later", lambda delay, *call: timers.append((delay, call)))
            inbox.nack(taken, delay_s=5.0)
            clock.time_s = 102.0
            fire()
            assert [delay for delay, _ in timers] == [5.0, 3.0]
            clock.time_s = 105.0
            fire()
            assert len(timers) == 2
        assert await next_text(inbox) == "x"


async def test_more_than_the_bound_of_delayed_messages_die_and_name_the_bound(sender):
    bus = MemoryBus(limits=BusLimits(delayed=1))
    async with bus.subscribe("b") as inbox:
        for text in "12":
            await bus.publish(note(sender, text))
        for envelope in [await inbox.receive(), await inbox.receive()]:
            inbox.nack(envelope, delay_s=60.0, cause="busy")
    assert causes(bus) == {"2": "busy; 1 others wait already to be delivered again"}


async def test_an_orphan_waits_for_a_listener_that_may_read_it(sender):
    bus = MemoryBus()
    async with bus.subscribe("b", principal="bob"):
        await bus.publish(note(sender, "for bob", visibility=frozenset({"bob"})))
    async with bus.subscribe("b", principal="eve"):
        assert bus.statistics().waiting == 1
    async with bus.subscribe("b", principal="bob") as inbox:
        assert await next_text(inbox) == "for bob"


async def test_a_redriven_private_letter_waits_for_a_listener_that_may_read_it(sender):
    bus = MemoryBus()
    async with bus.subscribe("b", principal="bob") as inbox:
        await bus.publish(note(sender, "for bob", visibility=frozenset({"bob"})))
        inbox.reject(await inbox.receive(), cause="no")
    async with bus.subscribe("b", principal="eve") as inbox:
        assert bus.redrive() == 1
        await bus.publish(note(sender, "for all"))
        assert await next_text(inbox) == "for all"
        assert bus.statistics().waiting == 1
    async with bus.subscribe("b", principal="bob") as inbox:
        assert await next_text(inbox) == "for bob"


async def test_a_message_that_ends_every_listener_is_a_dead_letter_after_its_attempts(sender):
    bus = MemoryBus(limits=BusLimits(max_attempts=2))
    async with bus.subscribe("b") as inbox:
        await bus.publish(note(sender, "poison"))
        await inbox.receive()
    assert bus.statistics().waiting == 1
    async with bus.subscribe("b") as inbox:
        await inbox.receive()
    assert causes(bus) == {"poison": "its listener at 'b' left before it was done"}
    assert bus.statistics().waiting == 0


async def test_a_crashed_receiver_leaves_its_message_to_another_one(sender):
    bus = MemoryBus()

    async def crash() -> None:
        async with bus.subscribe("b", credit=1) as inbox:
            await inbox.receive()
            raise ZeroDivisionError

    crashing = start(crash())
    await asyncio.wait([crashing], timeout=0)
    await bus.publish(note(sender, "x"))
    await asyncio.wait([crashing])
    with pytest.raises(ZeroDivisionError):
        crashing.result()
    async with bus.subscribe("b") as inbox:
        assert (await inbox.receive()).attempt == 2


async def test_a_service_tries_a_one_way_message_again_and_keeps_the_order_of_its_key(sender):
    bus, handled = MemoryBus(), []

    async def handle(envelope: Envelope) -> None:
        handled.append((envelope.payload.content, envelope.attempt))
        if envelope.payload.content == "1" and envelope.attempt < 3:
            raise ValueError("not yet")

    async with serve(bus, "b", handle, retry=Backoff(first_s=0.001)):
        for text in "123":
            await bus.publish(note(sender, text, key="k"))
        while bus.statistics().processed < 3:
            await asyncio.wait([start(asyncio.sleep(0.002))])
    assert [text for text, _ in handled] == ["1", "1", "1", "2", "3"]
    assert [attempt for text, attempt in handled if text == "1"] == [1, 2, 3]
    assert bus.dead_letters() == ()


async def test_a_service_that_never_succeeds_leaves_a_dead_letter_with_the_error(sender):
    bus = MemoryBus(limits=BusLimits(max_attempts=3))

    async def handle(envelope: Envelope) -> None:
        raise ValueError("broken")

    async with serve(bus, "b", handle, retry=Backoff(first_s=0.0)):
        await bus.publish(note(sender, "x", key="k"))
        await bus.publish(note(sender, "y"))
        while bus.statistics().dead < 2:
            await asyncio.wait([start(asyncio.sleep(0.001))])
    assert causes(bus) == {"x": "ValueError: broken", "y": "ValueError: broken"}


async def test_without_retry_a_failed_one_way_message_is_handled_and_its_error_counted(sender):
    bus = MemoryBus()

    async def handle(envelope: Envelope) -> None:
        raise ValueError("broken")

    async with serve(bus, "b", handle) as service:
        await bus.publish(note(sender, "x"))
        await bus.close()
        await service.ended()
    assert (bus.statistics().processed, bus.statistics().late) == (1, 1)


async def test_what_a_service_had_in_hand_when_it_was_left_is_delivered_again(sender):
    bus, began = MemoryBus(), asyncio.Event()

    async def handle(envelope: Envelope) -> None:
        began.set()
        await asyncio.Event().wait()

    async with serve(bus, "b", handle):
        for text in "12":
            await bus.publish(note(sender, text, key="k"))
        await began.wait()
    async with bus.subscribe("b") as inbox:
        assert [await next_text(inbox), await next_text(inbox)] == ["1", "2"]


def test_backoff_grows_to_its_bound():
    backoff = Backoff(first_s=0.5, factor=2.0, most_s=3.0)
    assert [backoff.delay_s(attempt) for attempt in (1, 2, 3, 4, 5000)] == [0.5, 1.0, 2.0, 3.0, 3.0]
    with pytest.raises(ValueError, match=r"factor is 0\.5"):
        Backoff(factor=0.5)


async def test_a_request_cancelled_after_it_was_given_back_leaves_nothing(sender):
    bus = MemoryBus()
    async with bus.subscribe("b") as inbox:
        asked = start(bus.request(note(sender, "x")))
        inbox.nack(await inbox.receive(), delay_s=60.0)
        await cancel(asked)
        assert bus.statistics().waiting == 0
        assert adds_up(bus)
