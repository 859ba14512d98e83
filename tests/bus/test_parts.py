"""Whatever a wire does to parts, a reader is told each number once: as a part, or in a gap."""

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from mas.bus.parts import PartCounters, PartStream, part_of
from mas.bus.serve import EnvelopeFactory
from mas.core.bus import Gap, Restart
from mas.core.messages import Envelope, Note

QUESTION = EnvelopeFactory("a").new("b", Note(text="?"))
HUGE = 2**53


def part(sequence: int, attempt: int = 1) -> Envelope:
    return part_of(QUESTION, Note(text=str(sequence)), sequence=sequence, attempt=attempt, principal="b")


class Read:
    """A stream that is fed by hand, and all that its reader is told."""

    def __init__(self, queue: int = 256) -> None:
        self.counters = PartCounters()
        self.answer: asyncio.Future[Envelope] = asyncio.get_running_loop().create_future()
        self.stream = PartStream(QUESTION, lambda _: self.answer, queue=queue, counters=self.counters)
        self.told: list[Envelope | Gap | Restart] = []

    def take(self, *parts: Envelope, sending: int = 1) -> None:
        for one in parts:
            self.counters.accepted += 1
            if not self.stream.take(one, sending):
                self.counters.dropped += 1

    def answered(self, sequence: int, attempt: int = 1) -> None:
        note = Note(text="!")
        self.answer.set_result(
            Envelope(id="1", kind="note", source="b", target="a", payload=note, sequence=sequence, attempt=attempt)
        )

    async def next(self, number: int) -> None:
        parts = aiter(self.stream)
        self.told += [await anext(parts) for _ in range(number)]

    async def rest(self) -> None:
        self.told += [item async for item in self.stream]

    @property
    def numbers(self) -> list[int | Gap | Restart]:
        return [item.sequence if isinstance(item, Envelope) else item for item in self.told]

    @property
    def adds_up(self) -> bool:
        counts = self.counters.freeze()
        return counts.accepted == counts.delivered + counts.passed + counts.dropped + counts.waiting


arrivals = st.lists(st.tuples(st.integers(1, 2), st.integers(1, 2), st.integers(0, 8)), max_size=30)


@settings(max_examples=300, deadline=None)
@given(arrivals, st.integers(1, 4), st.lists(st.integers(0, 30), max_size=6), st.integers(9, 12))
async def test_every_number_is_told_once_in_order_whatever_comes_twice_late_or_never(came, queue, pauses, number):
    read = Read(queue)
    async with read.stream:
        for position, (sending, attempt, sequence) in enumerate(came):
            read.take(part(sequence, attempt), sending=sending)
            if position in pauses and read.counters.waiting:
                await read.next(1)
        read.stream.sending = max([sending for sending, _, _ in came], default=1)
        attempts = [attempt for sending, attempt, _ in came if sending == read.stream.sending]
        read.answered(number, attempt=max(attempts, default=1))
        await read.rest()
        assert read.adds_up
    runs: list[list[int]] = [[]]
    for item in read.numbers:
        match item:
            case Restart():
                runs.append([])
            case Gap(first, last):
                runs[-1] += range(first, last + 1)
            case _:
                runs[-1].append(item)
    assert runs[-1] == list(range(number)), "the attempt that was answered is told whole"
    assert all(run == list(range(len(run))) for run in runs), "and so is what was told of the others before"
    assert len([item for item in read.told if isinstance(item, Envelope)]) == read.counters.delivered


async def test_a_hostile_number_costs_one_gap():
    read = Read()
    async with read.stream:
        read.take(part(0), part(HUGE), part(1), part(HUGE, attempt=HUGE), part(2))
        read.answered(HUGE)
        await read.next(1)
        read.take(part(5, attempt=3))
        assert read.counters.dropped == 5
        assert read.adds_up


async def test_what_a_reader_leaves_unread_is_dropped():
    read = Read()
    async with read.stream:
        read.take(part(0), part(1))
    read.take(part(2))
    counts = read.counters.freeze()
    assert (counts.waiting, counts.dropped, counts.delivered) == (0, 3, 0)


async def test_an_error_that_nobody_asks_for_is_no_loud_one():
    read = Read()
    async with read.stream:
        read.answer.set_exception(OSError("gone"))
        await asyncio.wait([read.stream._asking])
