"""The studio's pages in a real browser: readable by everybody, at every width, with nothing from elsewhere."""

from pathlib import Path
from typing import Any

import pytest
from studio_site import WIDTHS, obstacles_of, overflow_of, studio_over, watched_page

from mas.config.stored_run import load_run_config
from mas.observe.metrics import read_metrics
from mas.observe.progress import format_number
from mas.runs.report import build_report
from mas.runs.resolve import resolve
from mas.studio.runs import Runs

pytestmark = pytest.mark.asyncio(loop_scope="session")


def views_of(folder: Path) -> dict[str, str]:
    """Name of a view -> its address below the studio's."""
    (run,) = Runs([folder]).all()
    return {
        "list": "/",
        "run": f"/runs/{run.key}",
        "tokens": f"/runs/{run.key}?x=tokens",
        "metrics": f"/runs/{run.key}/metrics",
        "choice": "/compare",
        "comparison": f"/compare?run={run.key}&metric=reward",
    }


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_view_is_accessible_and_fits_every_width(browser: Any, finished_run: Path, scheme: str) -> None:
    pytest.importorskip("axe_playwright_python", reason="axe-playwright-python is not installed")
    async with (
        studio_over(finished_run) as address,
        watched_page(browser, color_scheme=scheme, reduced_motion="reduce") as (page, problems),
    ):
        for view, path in views_of(finished_run).items():
            await page.goto(address + path)
            if view in ("run", "tokens", "comparison"):
                await page.locator("figure svg").first.wait_for()
                await page.locator("figure summary").first.click()
                await page.locator("figure table").first.wait_for()
            for width in WIDTHS:
                await page.set_viewport_size({"width": width, "height": 900})
                assert await overflow_of(page) <= 0, (view, width)
            assert await obstacles_of(page) == [], view
        assert problems == []


async def test_the_keyboard_alone_reaches_every_view(browser: Any, finished_run: Path) -> None:
    views = views_of(finished_run)
    async with studio_over(finished_run) as address, watched_page(browser) as (page, problems):

        async def follow(name: str) -> None:
            for _ in range(80):
                await page.keyboard.press("Tab")
                if await page.evaluate("document.activeElement.textContent.trim()") == name:
                    await page.keyboard.press("Enter")
                    return
            raise AssertionError(f"{name} cannot be reached")

        await page.goto(address)
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.textContent") == "Skip to the content"
        for link, view in (("relay", "run"), ("tokens", "tokens"), ("Metrics", "metrics"), ("Compare", "choice")):
            await follow(link)
            await page.wait_for_url(address + views[view])
        for _ in range(80):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.name") == "run":
                break
        await page.keyboard.press("Space")
        await follow("Compare")
        await page.wait_for_url(f"{address}/compare?run=*")
        await page.locator("figure svg").first.wait_for()
        assert problems == []


async def test_the_run_page_says_what_was_measured(browser: Any, finished_run: Path) -> None:
    (run,) = Runs([finished_run]).all()
    columns = run.columns()
    async with studio_over(finished_run) as address, watched_page(browser) as (page, problems):
        await page.goto(f"{address}/runs/{run.key}")
        assert await page.locator(".badge").inner_text() == "finished"
        assert "6 of 6" in await page.locator(".where").inner_text()
        figure = page.locator("figure", has=page.get_by_role("heading", name="Reward of each role"))
        await figure.locator("summary").click()
        rows = [await row.locator("td").all_inner_texts() for row in await figure.locator("tbody tr").all()]
        planner = dict(columns.points("roles/planner/reward"))
        assert [int(step) for step, *_ in rows] == list(planner) == [1, 2, 3, 4, 5, 6]
        assert [float(cells[1]) for cells in rows] == pytest.approx(list(planner.values()), abs=1e-3)
        assert await figure.locator(".line").count() == 2
        assert "planner from" in (await figure.locator("svg").get_attribute("aria-label") or "")
        assert "mas train scenario=relay" in await page.locator("#command").inner_text()
        assert await page.locator("#adapters tbody tr").count() == 2
        assert await page.locator("#adapters tbody tr td").nth(1).inner_text() == "6", "a version for every step"
        assert problems == []


async def test_the_list_is_filtered_and_leads_to_a_comparison(browser: Any, finished_run: Path) -> None:
    async with studio_over(finished_run) as address, watched_page(browser) as (page, problems):
        await page.goto(address)
        row = page.locator("#runs tbody tr")
        await page.get_by_label("Filter").fill("no such run")
        assert not await row.is_visible()
        await page.get_by_label("Filter").fill("RELAY finished")
        assert await row.is_visible()
        await page.get_by_label("compare relay").check()
        await page.get_by_role("button", name="Compare chosen runs").click()
        assert await page.locator("#chosen tbody tr").count() == 1
        await page.get_by_role("heading", name="Over tokens").first.wait_for()
        assert problems == []


async def test_numbers_of_the_editor_stand_beside_their_lines(browser: Any, finished_run: Path) -> None:
    async with studio_over(finished_run) as address, watched_page(browser) as (page, problems):
        await page.goto(f"{address}/teams/edit")
        await page.locator("#numbers div").nth(1).wait_for()
        first, second = [(await page.locator("#numbers div").nth(number).bounding_box())["y"] for number in (0, 1)]
        line = await page.locator("#text").evaluate("text => parseFloat(getComputedStyle(text).lineHeight)")
        assert second - first == pytest.approx(line, abs=0.5)
        assert problems == []


async def test_the_run_page_and_the_report_show_the_same_speed_of_sampling(browser: Any, finished_run: Path) -> None:
    (run,) = Runs([finished_run]).all()
    lines = [line for line in read_metrics(run.file("metrics.jsonl")) if "sample" in line.get("seconds", {})]
    counts = [line["completion_tokens"] for line in lines]
    assert sorted(set(counts)) == counts, "the metric counts from the beginning"
    rate = f"{format_number(round(counts[-1] / sum(line['seconds']['sample'] for line in lines)))}/s"
    async with studio_over(finished_run) as address, watched_page(browser) as (page, _):
        await page.goto(f"{address}/runs/{run.key}")
        card = page.locator(".number", has=page.get_by_text("throughput", exact=True))
        shown = (await card.inner_text()).split()
    config = load_run_config(run.path)
    report = build_report(run.path, config, resolve(config).plan)
    (number,) = [one for one in report.numbers if one.label == "throughput"]
    assert shown == [number.label, number.after, *number.note.split()]
    assert number.after == rate
