"""A store of adapters above a host that scores by their weights alone."""

import pytest
from adapter_host import Host

from mas.serving.store import AdapterStore


@pytest.fixture
def host() -> Host:
    return Host()


@pytest.fixture
def store(host: Host) -> AdapterStore:
    return AdapterStore(host)
