"""Waiting until the processes of a team's agents are on the bus."""

import asyncio
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress

from mas.bus.mqtt import MqttBus
from mas.core.concurrency import together
from mas.core.errors import NoRoute
from mas.core.naming import listed
from mas.runtime.processes import who_is_there
from mas.training.base import Note
from mas.training.distributed import LOOK_S


class AgentPresence:
    """Who is on the bus, waited for.

    Args:
        wait_s: how long an agent may be gone; note: told when somebody is waited for, and when it is there.
    """

    def __init__(self, bus: MqttBus, *, wait_s: float, note: Note) -> None:
        self._bus = bus
        self._wait_s = wait_s
        self._note = note
        self._waiting: Counter[str] = Counter()

    async def until_there(self, address: str) -> bool:
        """Wait until somebody listens at the address; False: nobody came in time. Says so once, however many wait."""
        if self._is_there(address):
            return True
        self._waiting[address] += 1
        if self._waiting[address] == 1:
            agent = address.partition("/")[2]
            self._note(f"no process serves {address}: waiting {self._wait_s:g} s for `mas agent {agent} --bus URL`")
        try:
            with suppress(TimeoutError):
                async with asyncio.timeout(self._wait_s):
                    while not self._is_there(address):  # noqa: ASYNC110 - presence comes from the network and sets no event
                        await asyncio.sleep(LOOK_S)
        finally:
            self._waiting[address] -= 1
        is_there = self._is_there(address)
        if not self._waiting[address]:
            self._note(f"{address} is there" if is_there else f"{address} did not come")
        return is_there

    async def until_all(self, addresses: Iterable[str]) -> None:
        """Wait for somebody at each of them.

        Raises:
            NoRoute: somebody did not come in time.
        """
        wanted = list(addresses)
        there = await together((self.until_there(address) for address in wanted), "presence")
        missing = [address for address, is_there in zip(wanted, there, strict=True) if not is_there]
        if missing:
            raise NoRoute(
                f"after {self._wait_s:g} s no process serves {listed(missing)} on this bus "
                f"({who_is_there(self._bus)}): start each with `mas agent NAME --bus URL`"
            )

    def _is_there(self, address: str) -> bool:
        return any(presence.takes(address) for presence in self._bus.processes().values())
