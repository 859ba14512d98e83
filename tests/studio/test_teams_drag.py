"""The editor's drawing: boxes are moved and edges are drawn with the pointer, boxes also with the keyboard."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from studio_site import obstacles_of, overflow_of, studio_over
from team_pages import ANSWER_MS, opened

pytestmark = pytest.mark.asyncio(loop_scope="session")
BOX = "svg.team [data-node={}] .box"


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with studio_over(Path(tmp_path_factory.mktemp("drag"))) as address, httpx.AsyncClient(timeout=120) as client:
        await client.get(f"{address}/teams/edit")  # the process that checks teams takes seconds to start
        yield address


async def checked(page: Any, words: str) -> None:
    await page.locator("#state").get_by_text(words).wait_for(timeout=ANSWER_MS)


async def middle(page: Any, selector: str) -> tuple[float, float]:
    box = await page.locator(selector).bounding_box()
    return box["x"] + box["width"] / 2, box["y"] + box["height"] / 2


async def drag(page: Any, begin: str, x: float, y: float) -> None:
    """From the middle of a part to a place of the window."""
    await page.mouse.move(*await middle(page, begin))
    await page.mouse.down()
    await page.mouse.move(x, y, steps=4)
    await page.mouse.up()


async def line(page: Any, source: str, target: str) -> str:
    found = page.locator(f"svg.team .edge[data-source={source}][data-target={target}] .line")
    return str(await found.get_attribute("d"))


async def test_a_box_follows_the_pointer_with_its_edges_and_the_text_stays(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams/edit", width=1400) as page:
        await checked(page, "No problems")
        text, before = await page.locator("#text").input_value(), await line(page, "planner", "executor")
        frame = await page.locator("svg.team").bounding_box()
        x, y = await middle(page, BOX.format("planner"))
        await drag(page, BOX.format("planner"), x + 30, frame["y"] + frame["height"] - 4)
        moved = await middle(page, BOX.format("planner"))
        assert moved[0] == pytest.approx(x + 30, abs=12)
        assert moved[1] > y + 10
        assert await line(page, "planner", "executor") != before
        assert await page.locator("#text").input_value() == text
        assert await page.locator("details[open]").count() == 0, "a drag opens no role"
        await page.locator("#text").fill(text.replace("my_team", "other"))
        await page.locator("#team-name[value=other]").wait_for(timeout=ANSWER_MS)
        kept = await page.locator("svg.team [data-node=planner]").get_attribute("transform")
        assert kept not in (None, "translate(0 0)"), "the next drawing has the box at its place"
        await page.get_by_role("button", name="Put the boxes back").click()
        assert await line(page, "planner", "executor") == before
        assert await page.get_by_role("button", name="Put the boxes back").is_disabled()


async def test_a_box_is_moved_with_the_arrow_keys_and_opens_its_role_with_enter(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams/edit") as page:
        await checked(page, "No problems")
        for _ in range(40):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.dataset?.node === 'executor'"):
                break
        for key in ("ArrowRight", "ArrowDown", "ArrowDown", "Shift+ArrowRight", "ArrowLeft"):
            await page.keyboard.press(key)
        node = page.locator("svg.team [data-node=executor]")
        assert await node.get_attribute("transform") == "translate(60 24)"
        assert float((await page.locator("svg.team").get_attribute("viewBox") or "").split()[3]) > 110
        await page.keyboard.press("Escape")
        assert await node.get_attribute("transform") == "translate(0 0)"
        await page.keyboard.press("Enter")
        assert await page.evaluate("document.activeElement.id") == "role-1"


async def test_an_edge_is_drawn_from_the_handle_of_a_box_to_another_one(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams/edit", width=1400) as page:
        await checked(page, "No problems")
        handle = "svg.team [data-node={}] .handle"
        await drag(page, handle.format("planner"), *await middle(page, BOX.format("done")))
        await page.locator("#edge-3[value='planner -> done']").wait_for(timeout=ANSWER_MS)
        await drag(page, handle.format("executor"), *await middle(page, BOX.format("planner")))
        assert await page.evaluate("document.activeElement.id") == "new-loop"
        assert "leads back" in await page.locator("#state").inner_text()
        await page.keyboard.type("2")
        await page.keyboard.press("Enter")
        await page.locator("#edge-4[value='executor -> planner loop 2']").wait_for(timeout=ANSWER_MS)
        frame = await page.locator("svg.team").bounding_box()
        await drag(page, handle.format("executor"), frame["x"] + 2, frame["y"] + 2)
        assert await page.locator("[data-edge]").count() == 5, "dropped beside every box: no edge"
        assert await page.locator("svg.team .drawn").count() == 0


async def test_edges_of_a_protocol_are_refused_with_the_reason(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams/edit?from=relay/team", width=1400) as page:
        await checked(page, "No problems")
        await drag(page, "svg.team [data-node=planner] .handle", *await middle(page, BOX.format("done")))
        await checked(page, "the edges are those of the team's protocol")


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_moved_boxes_are_accessible_and_fit(browser: Any, site: str, scheme: str) -> None:
    async with opened(browser, site, "/teams/edit", color_scheme=scheme) as page:
        await checked(page, "No problems")
        await page.locator("svg.team [data-node=done]").focus()
        for _ in range(6):
            await page.keyboard.press("Shift+ArrowRight")
        assert await obstacles_of(page) == []
        for width in (390, 800, 1400):
            await page.set_viewport_size({"width": width, "height": 900})
            assert await overflow_of(page) == 0, width
