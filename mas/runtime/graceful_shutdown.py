"""How an agent process ends: it finishes the requests that it has taken; at a second signal it stops at once."""

import asyncio
import signal
from collections.abc import Iterator
from contextlib import contextmanager

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.shutdown import shutdown_command
from mas.runtime.team import TeamRuntime

_LOOK_S = 0.1
_SIGNALS = (signal.SIGINT, signal.SIGTERM)


class ShutdownSignals:
    """How often this process got the signal to end: 0; 1: drain; 2 and more: stop at once. Never less than before.

    By SIGINT or SIGTERM, each time, and by a shutdown command on the bus (see `mas.bus.mqtt.shutdown`).
    """

    def __init__(self, bus: MqttBus) -> None:
        self._bus = bus
        self._times = 0

    @contextmanager
    def by_signals(self) -> Iterator[None]:
        """Count signals while this is entered. In the main thread's event loop; not on Windows."""
        loop = asyncio.get_running_loop()
        for one in _SIGNALS:
            loop.add_signal_handler(one, self._once_more)
        try:
            yield
        finally:
            for one in _SIGNALS:
                loop.remove_signal_handler(one)

    async def until(self, times: int) -> None:
        """Wait until it got the signal that often."""
        while True:
            order = shutdown_command(self._bus)
            if order is not None:
                self._times = max(self._times, 2 if order else 1)
            if self._times >= times:
                return
            await asyncio.sleep(_LOOK_S)

    def _once_more(self) -> None:
        self._times += 1


async def shut_down_in_order(runtime: TeamRuntime, told: ShutdownSignals) -> None:
    """Let the agents here finish what they have taken; at a second signal they stop at once, and callers get Closed."""
    leaving = asyncio.create_task(runtime.leave(), name="leave")
    again = asyncio.create_task(told.until(2), name="told again")
    try:
        await asyncio.wait((leaving, again), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in (leaving, again):
            task.cancel()
        await asyncio.wait((leaving, again))
    if not leaving.cancelled():
        leaving.result()
