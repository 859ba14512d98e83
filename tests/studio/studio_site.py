"""A studio on a free port of this machine, for tests."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from mas.endpoint.server import running
from mas.studio.app import build_app
from mas.studio.runs import Runs


@asynccontextmanager
async def studio_over(*places: Path) -> AsyncIterator[str]:
    """The address of a studio over these places while the block runs."""
    async with running(build_app(Runs(places)), drain_s=1.0) as address:
        yield address
