"""A broker for the tests of a module, a space of its own on it for each, and processes there."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from between import QUICK, as_user
from mosquitto import Mosquitto, running_mosquitto
from process_lives import Lives, lives

from mas.bus.mqtt import MqttBus


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with running_mosquitto(tmp_path_factory.mktemp("mosquitto")) as broker:
        yield broker


@pytest.fixture
def url(broker: Mosquitto, request: pytest.FixtureRequest) -> str:
    """A space of its own for each test."""
    return broker.url("alice", str(abs(hash(request.node.name))))


@pytest.fixture
async def process(url: str, tmp_path: Path) -> AsyncIterator[Lives]:
    """A process with a journal."""
    async with lives(url, tmp_path / "alice.sqlite") as process:
        yield process


@pytest.fixture
async def other(url: str) -> AsyncIterator[MqttBus]:
    """A process of somebody else, without a journal."""
    async with MqttBus.connect(as_user(url, "bob"), options=QUICK) as bus:
        yield bus
