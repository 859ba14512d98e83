"""One life of a process that sends numbered messages to `work`, every third one way, all through one journal.

    python coordinator.py URL JOURNAL MESSAGES

Sends every message under its own id in each life, 16 at a time, and prints its number when it was accepted or answered.
Ends with 0 when all are, and nothing that went one way is left to do.
"""

import asyncio
import sys
from pathlib import Path

from mas.bus.journal import Journal
from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.options import MqttOptions
from mas.core.messages import Envelope, Note

IN_FLIGHT = 16


async def live(url: str, path: Path, messages: int) -> None:
    """Send everything and wait for it."""
    with Journal.open(path, keep=None) as journal:
        async with MqttBus.connect(url, journal=journal, options=MqttOptions(ack_s=0.2)) as bus:
            numbers = iter(range(messages))

            async def send() -> None:
                for number in numbers:
                    note = Note(text=str(number))
                    envelope = Envelope(id=f"m{number}", kind=note.kind, source="asker", target="work", payload=note)
                    if number % 3 == 0:
                        await bus.publish(envelope)
                    else:
                        assert (await bus.request(envelope, timeout_s=90.0)).payload == note
                    print(number, flush=True)

            async with asyncio.TaskGroup() as sending:
                for _ in range(IN_FLIGHT):
                    sending.create_task(send())
            async with asyncio.timeout(60.0):
                while bus.statistics().outbox > 0:  # noqa: ASYNC110 - what it waits for is in another process
                    await asyncio.sleep(0.05)


if __name__ == "__main__":
    asyncio.run(live(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3])))
