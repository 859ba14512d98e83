"""What the tests of the pages about teams share: a page that may not err, and what axe says of it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import pytest

ANSWER_MS = 90_000


@asynccontextmanager
async def opened(browser: Any, address: str, path: str, width: int = 1200, **options: Any) -> AsyncIterator[Any]:
    """A page without a console error, an uncaught one, or a request outside loopback."""
    context = await browser.new_context(viewport={"width": width, "height": 900}, **options)
    page, wrong = await context.new_page(), []
    page.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("request", lambda asked: None if _is_near(asked.url) else wrong.append(asked.url))
    await page.goto(address + path)
    yield page
    assert wrong == []
    await context.close()


def _is_near(url: str) -> bool:
    return urlsplit(url).hostname == "127.0.0.1" or url.startswith(("data:", "blob:http://127.0.0.1"))


async def accessibility_problems(page: Any) -> list[str]:
    axe = pytest.importorskip("axe_playwright_python.async_playwright", reason="axe-playwright-python is not installed")
    found = await axe.Axe().run(page)
    return [
        f"{one['id']}: {[node['html'][:120] for node in one['nodes']]}"
        for one in found.response["violations"]
        if one["impact"] in ("serious", "critical")
    ]
