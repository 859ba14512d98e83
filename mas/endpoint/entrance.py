"""Who may ask a server, and the signal that ends it. Free of torch."""

import asyncio
import signal
from collections.abc import Sequence
from dataclasses import dataclass

from mas.endpoint.address import LOCAL
from mas.endpoint.client_keys import ClientLimits


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrance:
    """Who may ask a server.

    Attributes:
        key: the owner's; None: without `clients` all processes on this machine may ask.
        clients: those with keys of their own.
        hosts: names that the server is known by, see `known_hosts`.
        origins: of web pages, see `known_origins`.
    """

    key: str | None = None
    clients: Sequence[ClientLimits] = ()
    hosts: frozenset[str] = LOCAL
    origins: frozenset[str] = frozenset()

    @property
    def has_key(self) -> bool:
        """Whether clients must send a key."""
        return self.key is not None or bool(self.clients)


def on_signal() -> asyncio.Event:
    """Set at the first SIGINT or SIGTERM. The next one has its default effect."""
    stopped, loop = asyncio.Event(), asyncio.get_running_loop()
    signals = (signal.SIGINT, signal.SIGTERM)

    def stop() -> None:
        stopped.set()
        for number in signals:
            loop.remove_signal_handler(number)

    for number in signals:
        loop.add_signal_handler(number, stop)
    return stopped
