"""The bus over MQTT keeps the contract of every bus, within one process and between two."""

from collections.abc import AsyncIterator, Callable, Iterator
from typing import ClassVar

import pytest
import pytest_asyncio
from mosquitto import Mosquitto, needs_mosquitto, running_mosquitto

from mas.bus.mqtt import MqttBus
from mas.core.bus import Bus, BusStatistics, Subscription
from mas.core.messages import Envelope
from mas.testing.bus import BusContract

pytestmark = needs_mosquitto


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with running_mosquitto(tmp_path_factory.mktemp("mosquitto")) as broker:
        yield broker


class OverMqtt(BusContract):
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


class TestMqttBus(OverMqtt):
    async def make_bus(self) -> Bus:
        return await MqttBus.connect(self.broker.url("tester")).__aenter__()
