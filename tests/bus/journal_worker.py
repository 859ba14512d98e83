"""One life of a process that sends numbered messages and handles them, all through one journal.

    python journal_worker.py JOURNAL MESSAGES DURABILITY

Sends every message under its own id in each life, 16 at a time, and prints `ID ATTEMPT` for each one that it handles,
before it is done. Ends with 0 when nothing is left to do.
"""

import asyncio
import sys

from mas.bus.journal import Durability, Journal
from mas.bus.memory import MemoryBus
from mas.core.messages import Envelope, Note

IN_FLIGHT = 16


def message(number: int) -> Envelope:
    """The message with this number: the same in every life."""
    note = Note(text=str(number))
    return Envelope(id=f"m{number}", kind=note.kind, source="a", target="b", payload=note)


async def live(path: str, messages: int, durability: Durability) -> None:
    """Send and handle until everything is done."""
    with Journal.open(path, durability=durability, keep=None) as journal:
        bus = MemoryBus(journal=journal)
        numbers = iter(range(messages))

        async def send() -> None:
            for number in numbers:
                await bus.publish(message(number))

        async def handle() -> None:
            async for envelope in inbox:
                print(envelope.id, envelope.attempt, flush=True)
                inbox.done(envelope, effect=envelope.payload.content.encode())

        async with bus.subscribe("b", credit=IN_FLIGHT) as inbox:
            handling = asyncio.create_task(handle())
            await asyncio.gather(*(send() for _ in range(IN_FLIGHT)))
            await bus.close()
            await handling


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
