"""A journal keeps what a bus accepted beyond its process, and stays small."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from mas.bus.counters import BusLimits
from mas.bus.journal import Journal
from mas.bus.journal_tables import State, read_records, redrive
from mas.bus.memory import MemoryBus
from mas.bus.serve import EnvelopeFactory
from mas.core.bus import Bus
from mas.core.errors import ConfigError, JournalError, Malformed
from mas.core.messages import Delivery, Envelope, Note, Payload
from mas.testing.bus import BusContract, OrphansContract, RedeliveryContract
from mas.testing.bus_suite import adds_up, answer_to, cancel, next_text, start


class TestMemoryBusWithJournal(BusContract, RedeliveryContract, OrphansContract):
    """The same promises with every message written down."""

    @pytest.fixture(autouse=True, params=["group", "async"])
    def journal(self, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[None]:
        with Journal.open(tmp_path / "bus.sqlite", durability=request.param) as self.opened:
            yield

    async def make_bus(self) -> Bus:
        return MemoryBus(journal=self.opened)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.sqlite"


@pytest.fixture
def sender() -> EnvelopeFactory:
    return EnvelopeFactory("a")


def note(sender: EnvelopeFactory, text: str, **fields) -> Envelope:
    return sender.new("b", Note(text=text), **fields)


def states(path: Path) -> list[tuple[str, str]]:
    return [(record.envelope.payload.content, record.state.value) for record in read_records(path)]


async def test_a_message_is_in_the_file_when_publish_returns(path, sender):
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b"):
            await bus.publish(note(sender, "x"))
            assert states(path) == [("x", "open")]


async def test_the_next_bus_delivers_what_was_not_processed_and_nothing_else(path, sender):
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b") as inbox:
            for text in ("done", "taken", "queued"):
                await bus.publish(note(sender, text))
            await bus.publish(note(sender, "effort", delivery=Delivery.BEST_EFFORT))
            inbox.done(await inbox.receive())
            await inbox.receive()
            asked = start(bus.request(note(sender, "asked")))
            await asyncio.wait([asked], timeout=0)
            await cancel(asked)
            await bus.close()
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal)
        assert bus.statistics().waiting == 2
        async with bus.subscribe("b") as inbox:
            again = [await inbox.receive(), await inbox.receive()]
            assert [envelope.payload.content for envelope in again] == ["taken", "queued"]
            assert all(envelope.attempt > 1 for envelope in again)
            for envelope in again:
                inbox.done(envelope)
            assert adds_up(bus)
        await bus.close()
    assert states(path) == [
        ("done", "processed"), ("taken", "processed"), ("queued", "processed"), ("effort", "failed"),
        ("asked", "failed"),
    ]  # fmt: skip


async def test_ids_are_remembered_across_restarts_unless_nobody_received_them(path, sender):
    once, expired = note(sender, "once"), note(sender, "expired", deadline=0.0)
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal, clock=iter([-1.0] * 4 + [1.0] * 50).__next__)
        async with bus.subscribe("b") as inbox:
            await bus.publish(once)
            inbox.done(await inbox.receive())
            await bus.publish(expired)
            while not bus.statistics().expired:
                pass
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b") as inbox:
            await bus.publish(once)
            assert bus.statistics().duplicates == 1
            await bus.publish(Envelope(id=expired.id, kind="note", source="a", target="b", payload=expired.payload))
            assert await next_text(inbox) == "expired"


async def test_requests_answers_and_errors_are_recorded_in_order(path, sender):
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b") as inbox:
            for text in ("good", "bad"):
                asked = start(bus.request(note(sender, text)))
                request = await inbox.receive()
                if text == "good":
                    await bus.reply(request, answer_to(request, "fine"))
                else:
                    await bus.fail(request, ConfigError("no such key"))
                inbox.done(request)
                await asyncio.wait([asked])
                asked.exception()
        await bus.close()
    records = read_records(path)
    assert [(record.way, record.state) for record in records] == [
        ("request", State.ANSWERED), ("answer", State.ANSWERED), ("request", State.FAILED),
    ]  # fmt: skip
    assert records[2].cause == "ConfigError: no such key"


async def test_a_deadline_goes_on_in_the_next_process_and_dead_letters_stay(path, sender):
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b") as inbox:
            await bus.publish(note(sender, "late", deadline=bus.now() + 50.0))
            await bus.publish(note(sender, "dead"))
            first = await inbox.receive()
            inbox.reject(await inbox.receive(), cause="no use")
            inbox.nack(first)
        await bus.close()
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal, clock=lambda: 1_000.0)
        (letter,) = bus.dead_letters()
        assert (letter.cause, letter.attempts, letter.envelope.payload.content) == ("no use", 1, "dead")
        async with bus.subscribe("b") as inbox:
            envelope = await inbox.receive()
            assert envelope.deadline is not None
            assert 1_030.0 < envelope.deadline <= 1_050.0
            assert bus.redrive() == 1
            assert await next_text(inbox) == "dead"
    assert states(path)[1] == ("dead", "processed")


async def test_attempts_count_across_restarts(path, sender):
    limits = BusLimits(max_attempts=3)
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal, limits=limits)
        async with bus.subscribe("b") as inbox:
            await bus.publish(note(sender, "x"))
            for _ in range(2):
                inbox.nack(await inbox.receive(), cause="no")
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal, limits=limits)
        async with bus.subscribe("b") as inbox:
            inbox.nack(await inbox.receive(), cause="no")
            assert bus.statistics().dead == 1


async def test_letters_marked_in_the_file_are_delivered_by_the_next_bus(path, sender):
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b") as inbox:
            for text in "12":
                await bus.publish(note(sender, text))
                inbox.reject(await inbox.receive(), cause="no")
            await bus.close()
    assert redrive(path, "unknown") == 0
    assert redrive(path, read_records(path)[1].id) == 1
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal)
        assert [letter.envelope.payload.content for letter in bus.dead_letters()] == ["1"]
        async with bus.subscribe("b") as inbox:
            assert await next_text(inbox) == "2"


async def test_an_effect_is_kept_with_its_message_and_only_with_a_journal(path, sender):
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b") as inbox:
            await bus.publish(note(sender, "x"))
            inbox.done(await inbox.receive(), effect=b"42")
            await bus.close()
    assert read_records(path)[0].effect == b"42"
    bus = MemoryBus()
    async with bus.subscribe("b") as inbox:
        await bus.publish(note(sender, "x"))
        envelope = await inbox.receive()
        with pytest.raises(JournalError, match="takes a journal"):
            inbox.done(envelope, effect=b"42")
        inbox.done(envelope)


async def test_a_payload_that_cannot_be_written_is_refused_before_it_is_accepted(path):
    class Odd(Payload):
        kind = "journal test odd"
        what: object

    odd = Odd(what=object())
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b"):
            for call in (bus.publish, bus.request):
                with pytest.raises(Malformed, match="Odd cannot be written"):
                    await call(Envelope(id="1", kind=odd.kind, source="a", target="b", payload=odd))
        assert bus.statistics().accepted == 0
