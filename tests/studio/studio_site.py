"""A studio on a free port of this machine, and what tests look at in a browser."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mas.endpoint.server import running
from mas.studio.app import build_app
from mas.studio.runs import Runs

WIDTHS = (390, 520, 768, 1400)


@asynccontextmanager
async def studio_over(*places: Path, key: str | None = None) -> AsyncIterator[str]:
    """The address of a studio over these places while the block runs."""
    async with running(build_app(Runs(places), key=key), drain_s=1.0) as address:
        yield address


@asynccontextmanager
async def watched_page(browser: Any, **options: Any) -> AsyncIterator[tuple[Any, list[str]]]:
    """A page, and what is wrong with it so far: errors on its console or in its scripts, and requests elsewhere.

    Args:
        options: of the browser's context, such as `color_scheme` and `viewport`.
    """
    problems: list[str] = []
    context = await browser.new_context(**options)
    page = await context.new_page()
    page.on("console", lambda said: problems.append(said.text) if said.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: problems.append(str(error)))
    page.on(
        "request",
        lambda made: None if made.url.startswith("http://127.0.0.1:") else problems.append(f"asked {made.url}"),
    )
    try:
        yield page, problems
    finally:
        await context.close()


async def overflow_of(page: Any) -> int:
    """Pixels that the page is wider than its window."""
    wider: int = await page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
    return wider


async def obstacles_of(page: Any) -> list[str]:
    """What axe finds that is serious or critical for people with disabilities."""
    from axe_playwright_python.async_playwright import Axe

    found = (await Axe().run(page)).response["violations"]
    return [
        f"{one['id']}: {node['html']}"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"]
    ]
