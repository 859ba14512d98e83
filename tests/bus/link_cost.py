"""What a message costs, in one process and between two over a link in memory.

    PYTHONPATH=.:tests python tests/bus/link_cost.py

The link loses nothing, costs no system call and waits in virtual time: what is counted is the two sides of the state
machine between processes, their frames, and a broker of a few dozen lines. docs/architecture.md quotes the ratio.
"""

import asyncio
import random
import time
from unittest.mock import patch

from memory_broker import MemoryBroker, run_virtual

from mas.bus.memory import MemoryBus
from mas.bus.mqtt import node as nodes
from mas.bus.mqtt.bus import MqttBus, limits_of
from mas.bus.mqtt.frames import Codec
from mas.bus.mqtt.options import MqttOptions, parse_broker
from mas.bus.mqtt.presence import any_address
from mas.bus.serve import EnvelopeFactory
from mas.core.bus import Bus
from mas.core.messages import Note

MESSAGES = 2_000
ROUNDS = 5
NOTE = Note(text="x")


async def cost_us(sends: Bus, receives: Bus, process: str | None = None) -> float:
    """Microseconds of the processor for one message that is published, received and done."""
    envelopes = EnvelopeFactory("a", process=process)
    async with receives.subscribe("b") as subscription:
        for _ in range(100):  # to be warm
            await sends.publish(envelopes.new("b", NOTE))
            subscription.done(await subscription.receive())
        begun = time.process_time()
        for _ in range(MESSAGES):
            await sends.publish(envelopes.new("b", NOTE))
            subscription.done(await subscription.receive())
        return (time.process_time() - begun) / MESSAGES * 1e6


async def in_one_process() -> float:
    bus = MemoryBus()
    return await cost_us(bus, bus)


async def between_two() -> float:
    link = MemoryBroker(random.Random(0))
    options, clock = MqttOptions(), asyncio.get_running_loop().time

    def process(name: str) -> MqttBus:
        local = MemoryBus(clock=clock, limits=limits_of(options))
        return MqttBus(
            nodes.MqttNode(
                parse_broker(f"mqtt://{name}@memory/lab"),
                local=local,
                codec=Codec(),
                options=options,
                process=name,
                store=None,
                journal=None,
                owns=any_address,
            )
        )

    with patch.object(nodes, "Connection", link.connect):
        sends, receives = process("sends"), process("receives")
    async with sends, receives:
        return await cost_us(sends, receives, "sends")


def main() -> None:
    pairs = [(asyncio.run(in_one_process()), run_virtual(between_two())) for _ in range(ROUNDS)]
    local, linked = (min(costs) for costs in zip(*pairs, strict=True))
    print(f"in one process {local:.1f} us, between two {linked:.1f} us: {linked / local:.0f} times")


if __name__ == "__main__":
    main()
