"""The studio's pages in a real browser."""

from pathlib import Path
from typing import Any

import pytest
from studio_site import studio_over

pytestmark = pytest.mark.asyncio(loop_scope="session")


async def test_a_run_is_listed(browser: Any, finished_run: Path) -> None:
    async with studio_over(finished_run) as address:
        page = await browser.new_page()
        await page.goto(address)
        await page.get_by_role("link", name="relay", exact=True).click()
        assert await page.get_by_role("heading", level=1).inner_text() == "relay"
        await page.close()
