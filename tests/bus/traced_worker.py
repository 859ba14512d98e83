"""A traced process that answers at the address `work` with the text it is sent, or fails where that is `fail`.

python traced_worker.py URL DIRECTORY
"""

import asyncio
import sys
from pathlib import Path

from mas.bus.mqtt import MqttBus
from mas.bus.serve import serve
from mas.core.messages import Envelope, Payload
from mas.core.tracing import phase
from mas.observe.tracing import open_tracing


async def answer(envelope: Envelope) -> Payload:
    with phase("inside"):
        if envelope.payload.content == "fail":
            raise ValueError("the secret is 7")
        return envelope.payload


async def work(url: str) -> None:
    async with MqttBus.connect(url) as bus, serve(bus, "work", answer):
        print("ready", flush=True)
        await asyncio.to_thread(sys.stdin.readline)


if __name__ == "__main__":
    with open_tracing(Path(sys.argv[2]), process="worker", most=99):
        asyncio.run(work(sys.argv[1]))
