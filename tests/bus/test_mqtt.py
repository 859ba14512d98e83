"""The bus over MQTT keeps the contract of every bus, in one process and between two; a default run takes the latter."""

from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import ClassVar

import msgspec
import pytest
from mosquitto import Mosquitto, needs_mosquitto, running_mosquitto

from mas.bus.journal import Journal
from mas.bus.mqtt import MqttBus
from mas.core.bus import Bus, BusStatistics, PartStatistics, Stream, Subscription
from mas.core.messages import Envelope, Payload
from mas.testing.bus import BusContract, RedeliveryContract

pytestmark = needs_mosquitto


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with running_mosquitto(tmp_path_factory.mktemp("mosquitto")) as broker:
        yield broker


class OverMqtt(BusContract, RedeliveryContract):
    """What a wire changes for the suite."""

    patience_s: ClassVar[float] = 0.3
    slack_s: ClassVar[float] = 1.0
    principal: ClassVar[str | None] = "tester"
    broker: Mosquitto

    @pytest.fixture(autouse=True)
    def _broker(self, broker: Mosquitto) -> None:
        self.broker = broker

    async def settled(self, bus: Bus) -> None:
        await bus.flush()


@pytest.mark.nightly
class TestMqttBus(OverMqtt):
    async def make_bus(self) -> Bus:
        return await MqttBus.connect(self.broker.url("tester")).__aenter__()


@pytest.mark.nightly
class TestMqttBusWithJournal(OverMqtt):
    @pytest.fixture(autouse=True)
    def _journal(self, tmp_path: Path) -> Iterator[None]:
        with Journal.open(tmp_path / "bus.sqlite") as self.journal:
            yield

    async def make_bus(self) -> Bus:
        return await MqttBus.connect(self.broker.url("tester"), journal=self.journal).__aenter__()


class Between:
    """One process listens, the other one sends: a bus for the suite, made of two."""

    def __init__(self, listens: MqttBus, sends: MqttBus) -> None:
        self.listens = listens
        self.sends = sends

    def now(self) -> float:
        return self.sends.now()

    async def publish(self, envelope: Envelope, *, wait: bool = True) -> None:
        await self.sends.publish(envelope, wait=wait)

    async def request(self, envelope: Envelope, *, timeout_s: float | None = None) -> Envelope:
        return await self.sends.request(envelope, timeout_s=timeout_s)

    def stream(
        self, envelope: Envelope, *, timeout_s: float | None = None, queue: int = 256
    ) -> AbstractAsyncContextManager[Stream]:
        return self.sends.stream(envelope, timeout_s=timeout_s, queue=queue)

    def part(self, request: Envelope, payload: Payload) -> bool:
        return self.listens.part(request, payload)

    async def reply(self, request: Envelope, answer: Envelope) -> None:
        await self.listens.reply(request, answer)

    async def fail(self, request: Envelope, error: Exception) -> None:
        await self.listens.fail(request, error)

    def subscribe(self, address: str, *, principal: str | None = None, credit: int = 64) -> Subscription:
        return self.listens.subscribe(address, principal=principal, credit=credit)

    def tap(self, watch: Callable[[Envelope], None], *, principal: str | None = None) -> Callable[[], None]:
        return self.listens.tap(watch, principal=principal)

    def statistics(self) -> BusStatistics:
        """What was received by the one that listens, and the parts of both."""
        counts, others = self.listens.statistics(), self.sends.statistics().parts
        parts = {name: getattr(others, name) + getattr(counts.parts, name) for name in others.__struct_fields__}
        return msgspec.structs.replace(counts, parts=PartStatistics(**parts))

    async def flush(self) -> None:
        await self.sends.flush()
        await self.listens.flush()

    async def close(self) -> None:
        await self.listens.close()
        await self.sends.close()


class TestBetweenTwoProcesses(OverMqtt):
    async def make_bus(self) -> Bus:
        listens = await MqttBus.connect(self.broker.url("other")).__aenter__()
        return Between(listens, await MqttBus.connect(self.broker.url("tester")).__aenter__())
