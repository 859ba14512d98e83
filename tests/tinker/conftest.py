"""One server for all tests of this folder that need no server of their own."""

from collections.abc import Iterator

import pytest
from conftest import BaseFor

pytest.importorskip("tinker", reason="the package tinker is not installed: pip install 'mas[tinker]'")

import tinker
from tinker_server_thread import RunningTinker, closing_pools, running_tinker

from mas.serving.model import BaseModel


@pytest.fixture(scope="session")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay")


@pytest.fixture(scope="session")
def server(base: BaseModel, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningTinker]:
    with running_tinker(base, tmp_path_factory.mktemp("tinker"), models=64) as running:
        yield running


@pytest.fixture(autouse=True)
def _closed_pools() -> Iterator[None]:
    with closing_pools():
        yield


@pytest.fixture
def client(server: RunningTinker) -> Iterator[tinker.ServiceClient]:
    with server.client() as found:
        yield found
