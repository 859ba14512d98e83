"""The client reads all that has come, and leaves nothing behind that nobody would wake it for."""

import asyncio
import ssl
from typing import Any

import pytest
from mosquitto import needs_mosquitto

from mas.bus.mqtt.client import Client
from mas.testing.bus_suite import LoopTurn


class Layer(ssl.SSLSocket):
    """A TLS layer that has taken everything from its socket already."""

    def pending(self) -> int:
        return self.left

    def read_one(self, *_: Any) -> int:
        if self.left:
            self.left -= 1
            self._client._received += 1
        return 0


async def test_more_messages_than_are_taken_at_once_do_not_wait_in_the_tls_layer(monkeypatch):
    client = Client("127.0.0.1", 1883, receive=lambda topic, payload: None)
    layer = Layer.__new__(Layer)
    layer.left, layer._client = 150, client
    monkeypatch.setattr(client._client, "socket", lambda: layer)
    monkeypatch.setattr(client._client, "loop_read", layer.read_one)
    client._read()
    assert 0 < layer.left < 150, "others have their turn in between"
    async with asyncio.timeout(5.0):
        while layer.left:
            await LoopTurn()


@needs_mosquitto
@pytest.mark.parametrize("call", ["subscribe", "unsubscribe"])
async def test_a_cancellation_that_comes_together_with_the_brokers_answer_is_not_forgotten(broker, call):
    async with Client("127.0.0.1", broker.port, receive=lambda topic, payload: None, timeout=5.0) as client:
        answered = getattr(client._client, f"on_{call}")

        def answer(*more: Any) -> None:
            answered(*more)
            task.cancel()

        setattr(client._client, f"on_{call}", answer)
        task = asyncio.create_task(getattr(client, call)("a"), name=call)
        await asyncio.wait([task])
        assert task.cancelled()
