"""Whatever happens on a bus, its journal knows at any moment what a next bus must deliver, and what not."""

import asyncio
from pathlib import Path
from tempfile import TemporaryDirectory

from bus_machine import BEST_EFFORT, Machine, Step, steps
from hypothesis import given, settings

from mas.bus.counters import BusLimits
from mas.bus.journal import Journal
from mas.bus.journal_tables import State, read_records
from mas.bus.memory import MemoryBus
from mas.core.messages import Delivery
from mas.testing.bus_suite import adds_up


async def killed(script: list[Step], path: Path) -> tuple[Machine, int]:
    """Play a script and stop in the middle: the bus is not closed, nobody leaves. Returns how many messages wait."""
    with Journal.open(path, durability="async", keep=None) as journal:
        machine = Machine(journal)
        await machine.start()
        for verb, number in script:
            await machine.do(verb, number)
        await machine.settle()
        machine.check()
        for task in (*machine.calls, *machine.receivers):
            task.cancel()
        await machine.settle()
        return machine, machine.bus.statistics().waiting


@settings(max_examples=60, deadline=None)
@given(steps)
def test_the_next_bus_has_what_was_promised_and_neither_finished_nor_dead(script):
    with TemporaryDirectory() as directory:
        path = Path(directory) / "bus.sqlite"
        machine, waiting = asyncio.run(killed([step for step in script if step[1] != BEST_EFFORT], path))
        rows = read_records(path)
        open_ids = {row.id for row in rows if row.state is State.OPEN and row.promised}
        dead_ids = [row.id for row in rows if row.state in (State.DEAD, State.EXPIRED)]
        once = {envelope.id for envelope in machine.sent if envelope.delivery is Delivery.EFFECTIVELY_ONCE}
        assert not open_ids & once & set(machine.finished)
        assert sorted(dead_ids) == sorted(letter.envelope.id for letter in machine.bus.dead_letters())
        left = sum(row.state is State.OPEN and row.promised for row in rows)
        held = sum(envelope.reply_to is None for envelope, _ in machine.held)
        assert left == held + waiting
        with Journal.open(path, keep=None) as journal:
            bus = MemoryBus(journal=journal, limits=BusLimits(max_attempts=3))
            assert bus.statistics().waiting == left
            assert adds_up(bus)
