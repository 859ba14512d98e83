"""A process that serves the address `work`: notes every message that it handles in a file, and answers with its text.

python worker.py URL NOTES
"""

import asyncio
import sys
from pathlib import Path

from mas.bus.mqtt import MqttBus
from mas.bus.serve import serve
from mas.core.messages import Envelope, Payload


async def work(url: str, notes: Path) -> None:
    with notes.open("a", encoding="utf-8", buffering=1) as lines:

        async def handle(envelope: Envelope) -> Payload:
            lines.write(f"{envelope.payload.content}\n")
            return envelope.payload

        async with MqttBus.connect(url) as bus, serve(bus, "work", handle) as service:
            print("ready", flush=True)
            await service.ended()


if __name__ == "__main__":
    asyncio.run(work(sys.argv[1], Path(sys.argv[2])))
