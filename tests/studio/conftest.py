"""One browser for all tests of the studio, and one finished run.

Tests with the browser are coroutines of one event loop: `pytestmark = pytest.mark.asyncio(loop_scope="session")`.
"""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from mas.cli import main

CHROMIUM = Path("/usr/bin/chromium")
HAS_CHROMIUM = CHROMIUM.exists()


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def browser() -> AsyncIterator[Any]:
    """A headless Chromium, by playwright's asynchronous interface; without one the test is skipped."""
    if not HAS_CHROMIUM:
        pytest.skip(f"no browser: {CHROMIUM} is missing (make chromium installs it)")
    api = pytest.importorskip("playwright.async_api", reason="playwright is not installed")
    async with api.async_playwright() as playwright:
        chromium = await playwright.chromium.launch(executable_path=str(CHROMIUM), args=["--no-sandbox"])
        yield chromium
        await chromium.close()


@pytest.fixture(scope="session")
def finished_run(mas_cache: Path, small_overrides: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder `runs` with one finished run of the tiny base in it, `relay`."""
    runs = tmp_path_factory.mktemp("studio") / "runs"
    short = ("train.steps=6", "train.tasks_per_step=2", "train.eval_tasks=2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("sys.argv", ["mas", "train", "scenario=relay", *short, *small_overrides, f"run_dir={runs}/relay"])
        main_code = _code_of_main()
    assert main_code == 0
    return runs


def _code_of_main() -> int:
    try:
        main()
    except SystemExit as end:
        return int(end.code or 0)
    return 0
