"""A page of the studio that may not err, for the tests of the pages about teams."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from studio_site import watched_page

ANSWER_MS = 90_000


@asynccontextmanager
async def opened(browser: Any, address: str, path: str, width: int = 1200, **options: Any) -> AsyncIterator[Any]:
    """A page; at the end nothing may be wrong with it, see `watched_page`."""
    async with watched_page(browser, viewport={"width": width, "height": 900}, **options) as (page, problems):
        await page.goto(address + path)
        yield page
        assert problems == []
