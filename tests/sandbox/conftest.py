"""A sandbox for the tests of this folder; skipped with the reason where a machine offers none."""

import os
from collections.abc import Iterator

import pytest

from mas.core.errors import SandboxError
from mas.sandbox.box import Sandbox
from mas.sandbox.mechanism import Mechanism, probe
from mas.sandbox.outcome import SandboxLimits


@pytest.fixture(scope="session")
def walls() -> Mechanism:
    """The mechanism under test: what MAS_SANDBOX_WALLS names, or the one that is taken here."""
    wanted = os.environ.get("MAS_SANDBOX_WALLS")
    try:
        return probe(wanted).mechanism
    except SandboxError as error:
        if wanted is not None:
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def sandbox(walls: Mechanism) -> Iterator[Sandbox]:
    with Sandbox(SandboxLimits(time_s=5.0, memory_mib=160), mechanism=walls) as box:
        yield box


@pytest.fixture(scope="session")
def hasty(walls: Mechanism) -> Iterator[Sandbox]:
    """One that ends programs soon."""
    with Sandbox(SandboxLimits(time_s=0.5 if walls == "namespaces" else 2.0), mechanism=walls) as box:
        yield box
