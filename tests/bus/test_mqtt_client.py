"""The client reads all that has come, and leaves nothing behind that nobody would wake it for."""

import asyncio
import ssl
from typing import Any

from mas.bus.mqtt_client import Client
from mas.testing.bus_suite import LoopTurn


class Layer(ssl.SSLSocket):
    """A TLS layer that has taken everything from its socket already."""

    def pending(self) -> int:
        return self.left

    def read_one(self, *_: Any) -> int:
        if self.left:
            self.left -= 1
            self._client._heard += 1
        return 0


async def test_more_messages_than_are_taken_at_once_do_not_wait_in_the_tls_layer(monkeypatch):
    client = Client("127.0.0.1", 1883, hear=lambda topic, payload: None)
    layer = Layer.__new__(Layer)
    layer.left, layer._client = 150, client
    monkeypatch.setattr(client._client, "socket", lambda: layer)
    monkeypatch.setattr(client._client, "loop_read", layer.read_one)
    client._read()
    assert 0 < layer.left < 150, "others have their turn in between"
    async with asyncio.timeout(5.0):
        while layer.left:
            await LoopTurn()
