"""The editor of teams while an answer of the server is on its way: keys that are pressed meanwhile are not lost."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import yaml
from studio_site import studio_over
from team_pages import ANSWER_MS, opened

pytestmark = [pytest.mark.nightly(of=16), pytest.mark.asyncio(loop_scope="session")]


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    async with studio_over(Path(tmp_path_factory.mktemp("keys"))) as address, httpx.AsyncClient(timeout=120) as client:
        await client.get(f"{address}/teams/edit")  # the process that checks teams takes seconds to start
        yield address


class HeldAnswers:
    """The server's answers to the page, each held back until `go`."""

    def __init__(self) -> None:
        self._asked: asyncio.Queue[asyncio.Event] = asyncio.Queue()

    async def hold(self, page: Any) -> None:
        """From now on, answers wait."""
        await page.locator("#state").get_by_text("No problems").wait_for(timeout=ANSWER_MS)
        await page.route("**/teams/check", self._held)

    async def _held(self, route: Any) -> None:
        answer, may_go = await route.fetch(), asyncio.Event()
        self._asked.put_nowait(may_go)
        await may_go.wait()
        await route.fulfill(response=answer)

    async def go(self, page: Any) -> None:
        """Let the oldest answer reach the page, and wait until the page has shown it."""
        async with asyncio.timeout(ANSWER_MS / 1000):
            may_go = await self._asked.get()
        async with page.expect_response("**/teams/check", timeout=ANSWER_MS):
            may_go.set()
        await page.evaluate("() => new Promise(done => setTimeout(done))")


async def _team(page: Any) -> Any:
    return yaml.safe_load(await page.locator("#text").input_value())


async def _rename(page: Any, name: str) -> None:
    """Ask for another name of the team; the answer is held."""
    await page.locator("#team-name").fill(name)
    await page.locator("#team-name").press("Enter")


@pytest.mark.parametrize("field", ["edge-0", "role-0-instructions"])
async def test_keys_before_and_after_a_redraw_are_one_text_with_the_caret_where_it_was(
    browser: Any, site: str, field: str
) -> None:
    async with opened(browser, site, "/teams/edit") as page:
        held = HeldAnswers()
        await held.hold(page)
        await page.locator("#role-0").click()
        await _rename(page, "other")
        await page.locator(f"#{field}").fill("ab")
        await page.keyboard.press("ArrowLeft")
        await page.keyboard.type("12")
        await held.go(page)
        assert (await _team(page))["name"] == "other"
        await page.keyboard.type("345")
        assert await page.locator(f"#{field}").input_value() == "a12345b"


async def test_what_was_typed_around_a_redraw_is_sent_when_the_field_is_left(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams/edit") as page:
        held = HeldAnswers()
        await held.hold(page)
        await _rename(page, "other")
        await page.locator("#edge-0").fill("start -> executor")
        await held.go(page)
        await page.keyboard.press("Tab")
        await held.go(page)
        assert (await _team(page))["edges"][0] == "start -> executor"


async def test_keys_choose_in_a_select_while_the_form_is_drawn_anew(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams/edit") as page:
        held = HeldAnswers()
        await held.hold(page)
        await _rename(page, "other")
        await page.locator("#new-source").focus()
        await page.keyboard.type("exe")
        await held.go(page)
        await page.keyboard.type("cu")
        assert await page.locator("#new-source").input_value() == "executor"
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.id") == "new-target"


async def test_each_key_in_a_select_counts_while_the_answer_to_the_first_is_on_its_way(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams/edit") as page:
        choices = await page.locator("#role-0-context option").evaluate_all("all => all.map(one => one.value)")
        held = HeldAnswers()
        await held.hold(page)
        await page.locator("#role-0").click()
        await page.locator("#role-0-context").focus()
        await page.keyboard.press("ArrowDown")
        await page.keyboard.press("ArrowDown")
        await held.go(page)
        await page.keyboard.press("ArrowDown")
        await held.go(page)
        await held.go(page)
        assert (await _team(page))["roles"]["planner"]["context"] == choices[3]


async def test_a_change_is_made_to_the_text_that_was_typed_while_it_was_asked_for(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams/edit") as page:
        held = HeldAnswers()
        await held.hold(page)
        await _rename(page, "other")
        await page.locator("#text").press("Control+End")
        await page.keyboard.type("max_messages: 7\n")
        for _ in range(3):  # the change, the change of the new text, and the check of the new text
            await held.go(page)
        team = await _team(page)
        assert (team["name"], team["max_messages"]) == ("other", 7)


async def test_a_role_with_another_name_keeps_its_fields_open_and_the_focus(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams/edit") as page:
        held = HeldAnswers()
        await held.hold(page)
        await page.locator("#role-0").click()
        await page.locator("#role-0-name").fill("thinker")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Tab")
        assert await page.evaluate("document.activeElement.id") == "role-0-instructions"
        await page.keyboard.press("Control+End")
        await page.keyboard.type("Do")
        await held.go(page)
        await page.keyboard.type(" it.")
        await page.keyboard.press("Tab")
        await held.go(page)
        assert (await _team(page))["roles"]["thinker"]["instructions"].endswith("Do it.")


async def test_a_new_edge_that_is_half_written_outlives_the_one_before(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams/edit") as page:
        held = HeldAnswers()
        await held.hold(page)
        await page.locator("#new-when").fill("accept")
        await page.keyboard.press("Enter")
        await page.locator("#new-when").fill("rej")
        await held.go(page)
        await page.keyboard.type("ect")
        assert await page.locator("#edge-3").input_value() == "start -> planner when accept"
        assert await page.locator("#new-when").input_value() == "reject"
