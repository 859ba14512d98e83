"""A broker, its connections and time itself in memory: what a real one does to frames, decided by a seed.

The broker knows what `mas.bus.mqtt` relies on: topics with share groups, retained payloads, wills, reason codes, frames
in order. Between processes it may lose, repeat and delay frames; connections may be cut, the broker may forget all, and
processes may die. Time jumps to the next timer, so that waiting costs nothing and every run of a seed is equal.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, TypeVar

from virtual_time import VirtualLoop

from mas.bus.mqtt.client import NOBODY, Acknowledge
from mas.bus.mqtt.options import Broker, MqttOptions
from mas.core.errors import Unreachable

T = TypeVar("T")
_LATENCY_S = 0.001


def run_virtual(main: Coroutine[Any, Any, T], is_busy: Callable[[], bool] = lambda: False) -> T:
    """Run to the end in virtual time; processes that died may leave tasks. `is_busy`: see `VirtualLoop`."""
    with asyncio.Runner(loop_factory=partial(VirtualLoop, is_busy)) as runner:
        return runner.run(main)


class MemoryBroker:
    """The broker.

    Args:
        lost, repeated, delayed: which part of the frames between processes; presences and echoes pass as they are.
    """

    def __init__(
        self, random_: random.Random, *, lost: float = 0.0, repeated: float = 0.0, delayed: float = 0.0
    ) -> None:
        self.random = random_
        self.connections: list[MemoryConnection] = []
        self._lost, self._repeated, self._delayed = lost, repeated, delayed
        self._retained: dict[str, bytes] = {}

    def connect(self, broker: Broker, options: MqttOptions, *, identity: str, will: str) -> "MemoryConnection":
        """As `Connection(...)`."""
        return MemoryConnection(self, identity=identity, will=will)

    def publish(self, topic: str, payload: bytes, *, retain: bool, is_sure: bool) -> int:
        """Deliver to all that listen; the reason code."""
        if retain:
            self._retained.pop(topic, None)
            if payload:
                self._retained[topic] = payload
        receivers = [one for one in self.connections if any(_matches(name, topic) for name in one.plain)]
        groups: dict[str, list[MemoryConnection]] = {}
        for connection in self.connections:
            for name in connection.shared:
                if _matches(name.split("/", 2)[2], topic):
                    groups.setdefault(name, []).append(connection)
        receivers += [self.random.choice(members) for members in groups.values()]
        for connection in receivers:
            for _ in range(1 if is_sure else self._copies()):
                is_late = not is_sure and self.random.random() < self._delayed
                delay_s = self.random.uniform(_LATENCY_S, 0.15) if is_late else _LATENCY_S
                connection.receive_later(delay_s, topic, payload)
        return 0 if receivers else NOBODY

    def subscribed(self, connection: "MemoryConnection", name: str) -> None:
        """What is retained comes first."""
        for topic, payload in self._retained.items():
            if _matches(name, topic):
                connection.receive_later(_LATENCY_S, topic, payload)

    def restart(self) -> None:
        """Kill the broker and start it again: it has forgotten everything."""
        self._retained.clear()
        for connection in tuple(self.connections):
            connection.cut(has_will=False)

    def _copies(self) -> int:
        draw = self.random.random()
        return 0 if draw < self._lost else 2 if draw < self._lost + self._repeated else 1


class MemoryConnection:
    """As `mas.bus.mqtt.connection.Connection`: made again when it breaks, until `die` or `close`."""

    def __init__(self, broker: MemoryBroker, *, identity: str, will: str) -> None:
        self.reconnects = 0
        self.longest: int | None = None
        self.noticed: Callable[[bool], object] = lambda is_up: None
        self.is_up = False
        self.is_behind = False
        self._broker = broker
        self._will = will
        self._filters: dict[str, int] = {}
        self._number = 0
        self._is_over = False

    @property
    def plain(self) -> list[str]:
        return [name for name in self._filters if not name.startswith("$share/")]

    @property
    def shared(self) -> list[str]:
        return [name for name in self._filters if name.startswith("$share/")]

    async def open(self, received: Callable[[str, bytes], None], connected: Callable[[], object]) -> None:
        self._received, self._connected = received, connected
        await asyncio.sleep(_LATENCY_S)
        if self._is_over:
            raise Unreachable("it died before it was connected")
        self._up()

    async def close(self) -> None:
        self._is_over = True
        self._down()

    def die(self) -> None:
        """The process is killed: the broker publishes its will."""
        self._is_over = True
        self.cut()

    def cut(self, *, has_will: bool = True) -> None:
        """Break the connection; it is made again after a while."""
        if not self.is_up:
            return
        self._down()
        if has_will:
            self._broker.publish(self._will, b"", retain=True, is_sure=True)
        if not self._is_over:
            self.noticed(False)
            asyncio.get_running_loop().call_later(self._broker.random.uniform(0.01, 0.5), self._again)

    def publish(
        self,
        topic: str,
        payload: bytes,
        *,
        qos: int = 1,
        retain: bool = False,
        remaining_s: float | None = None,
        acknowledge: Acknowledge | None = None,
    ) -> bool:
        if not self.is_up:
            return False
        kind = topic.split("/")[2]
        is_sure = kind == "presence" or (kind == "back" and self._is_own(topic))
        code = self._broker.publish(topic, payload, retain=retain, is_sure=is_sure)
        if acknowledge is not None:
            asyncio.get_running_loop().call_later(_LATENCY_S, self._acknowledged, self._number, acknowledge, code)
        return True

    async def subscribe(self, topic: str, *, qos: int = 1) -> None:
        self._filters[topic] = qos
        await asyncio.sleep(_LATENCY_S)
        if self.is_up:
            self._broker.subscribed(self, topic)

    async def unsubscribe(self, topic: str) -> None:
        self._filters.pop(topic, None)
        await asyncio.sleep(_LATENCY_S)

    def forget(self, topic: str) -> None:
        self._filters.pop(topic, None)

    def receive_later(self, delay_s: float, topic: str, payload: bytes) -> None:
        asyncio.get_running_loop().call_later(delay_s, self._receive, self._number, topic, payload)

    def _receive(self, number: int, topic: str, payload: bytes) -> None:
        if self.is_up and number == self._number:
            self._received(topic, payload)

    def _acknowledged(self, number: int, acknowledge: Acknowledge, code: int) -> None:
        if self.is_up and number == self._number:
            acknowledge(code)

    def _is_own(self, topic: str) -> bool:
        return any(_matches(name, topic) for name in self.plain)

    def _up(self) -> None:
        self.is_up = True
        self._number += 1
        self._broker.connections.append(self)

    def _down(self) -> None:
        self.is_up = False
        if self in self._broker.connections:
            self._broker.connections.remove(self)

    def _again(self) -> None:
        if self._is_over:
            return
        self._up()
        self.reconnects += 1
        for name in self.plain:
            self._broker.subscribed(self, name)
        self._connected()
        self.noticed(True)


def _matches(name: str, topic: str) -> bool:
    """Whether a filter without `#` matches a topic."""
    levels, parts = name.split("/"), topic.split("/")
    return len(levels) == len(parts) and all(level in ("+", part) for level, part in zip(levels, parts, strict=True))
