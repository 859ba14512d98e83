"""A broker for the tests of a module, and a space of its own on it for each."""

from collections.abc import Iterator

import pytest
from mosquitto import Mosquitto, running_mosquitto


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    with running_mosquitto(tmp_path_factory.mktemp("mosquitto")) as broker:
        yield broker


@pytest.fixture
def url(broker: Mosquitto, request: pytest.FixtureRequest) -> str:
    """A space of its own for each test."""
    return broker.url("alice", str(abs(hash(request.node.name))))
