"""The episode player in a real browser: on runs of the tiny base, on one that trains, with the keyboard alone, and in
every width."""

import asyncio
import re
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest
from large_runs import large_run, plain_run
from studio_site import studio_over

from mas.config.load import load_config
from mas.observe.files import JsonLines
from mas.observe.turn_records import DECISION, HEAD, EpisodeHead, RecordedDecision, step_file
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel

pytestmark = [pytest.mark.nightly(of=16), pytest.mark.asyncio(loop_scope="session")]

SHORT = (
    "scenario=relay", "train.steps=2", "train.tasks_per_step=2", "train.eval_tasks=2", "train.eval_every=2",
    "train.record_every=1", "algorithm.sampler.candidates=3",
)  # fmt: skip
Train = Callable[..., None]


@pytest.fixture(scope="session")
def train(small_overrides: tuple[str, ...], base_for: Callable[..., BaseModel]) -> Train:
    """Train a run of the tiny base in this process."""
    base_for("relay")

    def go(run: Path, *overrides: str) -> None:
        config = load_config([*SHORT, *small_overrides, f"run_dir='{run}'", *overrides])
        train_in_directory(config, build_scenario(config.scenario))

    return go


@pytest.fixture(scope="session")
def recorded(train: Train, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with two runs, `tree` and `parallel`, whose turns are recorded."""
    runs = tmp_path_factory.mktemp("recorded")
    train(runs / "tree")
    train(runs / "parallel", "algorithm=parallel_grpo")
    return runs


@asynccontextmanager
async def watched(browser: Any, width: int = 1400) -> AsyncIterator[Any]:
    """A page that may report nothing on its console and ask nobody but this machine."""
    page = await browser.new_page(viewport={"width": width, "height": 900})
    said: list[str] = []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    yield page
    await page.close()
    assert said == []
    assert asked
    assert [url for url in asked if not url.startswith("http://127.0.0.1:")] == []


async def open_list(page: Any, address: str, run: str) -> None:
    await page.goto(address)
    await page.get_by_role("link", name=run, exact=True).first.click()
    await page.get_by_role("link", name="Episodes", exact=True).click()
    await page.locator(".filters").wait_for()


async def shown(page: Any, number: int) -> None:
    """Wait until the message with this number is on the page."""
    await page.locator(f"#goto[value='{number}']").wait_for()


def records(run: Path, step: int) -> tuple[list[EpisodeHead], list[RecordedDecision]]:
    lines = step_file(run, step).read_bytes().splitlines()
    heads = [msgspec.json.decode(line, type=dict[str, EpisodeHead])["episode"] for line in lines if line[:11] == HEAD]
    return heads, [
        msgspec.json.decode(line, type=dict[str, RecordedDecision])["decision"]
        for line in lines
        if line[:12] == DECISION
    ]


async def test_candidates_stand_side_by_side_with_the_numbers_of_the_file(browser: Any, recorded: Path) -> None:
    heads, decisions = records(recorded / "tree", 2)
    first = decisions[0]
    async with studio_over(recorded) as address, watched(browser) as page:
        await open_list(page, address, "tree")
        await page.locator(".episodes a").first.click()
        await page.locator("#stage").wait_for()
        assert await page.get_by_role("heading", level=2).inner_text() == heads[0].task
        cards = page.locator(".candidates > li")
        assert await cards.count() == len(first.candidates) == 3
        for number, candidate in enumerate(first.candidates):
            card = cards.nth(number)
            text = await card.inner_text()
            assert (await card.get_attribute("class") == "chosen") == ("✓ chosen" in text) == candidate.chosen
            for shown in (candidate.returned, abs(candidate.advantage or 0)):
                assert (f"{shown:.0f}" if shown == shown // 1 else f"{shown:.3f}") in text
            assert f"{candidate.adapter}" in text
            assert candidate.finish in text
            tokens = await card.get_by_role("option").all_inner_texts()
            assert len(tokens) == len(candidate.tokens) == len(candidate.logprobs) > 0
            assert [one.strip() for one in tokens] == [
                one.replace("\n", "⏎").strip() or one or "∅" for one in candidate.tokens
            ]
        assert await page.locator(".prompt pre").inner_text() == first.prompt
        places = [await cards.nth(number).bounding_box() for number in range(2)]
        assert places[0]["y"] == places[1]["y"]


async def test_the_keyboard_alone_plays_an_episode_and_reads_the_probability_of_a_token(
    browser: Any, recorded: Path
) -> None:
    _, decisions = records(recorded / "tree", 2)
    async with studio_over(recorded) as address, watched(browser) as page:
        await open_list(page, address, "tree")
        for _ in range(60):  # past the navigation and the filter
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.matches('.episodes a')"):
                break
        await page.keyboard.press("Enter")
        await page.locator("#goto").wait_for()
        await page.wait_for_load_state("networkidle")
        last = int(await page.locator("#goto").get_attribute("max"))
        for key, number in (("ArrowRight", 2), ("ArrowLeft", 1), ("End", last), ("Home", 1)):
            await page.keyboard.press(key)
            await shown(page, number)
            assert page.url.endswith(f"?at={number}")
        for _ in range(last - 1):  # faster than the answers come
            await page.keyboard.press("ArrowRight")
        await shown(page, last)
        assert f"turn {decisions[last - 1].turn}" in await page.locator("#now").text_content()
        await page.keyboard.press("Home")
        await shown(page, 1)
        for _ in range(60):
            await page.keyboard.press("Tab")
            if await page.evaluate("document.activeElement.getAttribute('role') === 'option'"):
                break
        token = decisions[0].candidates[0].logprobs[0]
        assert f"log-probability {token:.3f}" in await page.locator("#readout").inner_text()
        await page.keyboard.press("ArrowRight")  # moves to the next token, and not to the next message
        assert "token 2" in await page.locator("#readout").inner_text() or len(decisions[0].candidates[0].tokens) == 1
        assert await page.locator("#goto").input_value() == "1"
        await page.keyboard.press("Escape")
        assert await page.locator("#readout").is_hidden()


async def test_buttons_the_strip_and_the_browsers_back_button_change_the_message(browser: Any, recorded: Path) -> None:
    async with studio_over(recorded) as address, watched(browser) as page:
        await open_list(page, address, "tree")
        await page.locator(".episodes a").first.click()
        await page.wait_for_load_state("networkidle")
        await page.locator("#next").click()
        await shown(page, 2)
        assert (
            await page.evaluate("document.activeElement.id") == "next"
            or await page.locator("#next[aria-disabled]").count()
        )
        await page.locator("#at-1").click()
        await shown(page, 1)
        await page.go_back()
        await shown(page, 2)
        await page.locator("#goto").fill("1")
        await page.keyboard.press("Enter")
        await shown(page, 1)


async def test_the_world_stands_beside_the_messages(browser: Any, recorded: Path) -> None:
    async with studio_over(recorded) as address, watched(browser) as page:
        for run in ("tree", "parallel"):
            await open_list(page, address, run)
            await page.locator(".episodes a").first.click()
            await page.locator("#stage").wait_for()
            worlds = page.locator(".world")
            assert "World before turn 0" in await worlds.nth(0).inner_text()
            assert len(await worlds.nth(0).locator("pre").inner_text()) > 0
            assert "turn 0: the team" in await worlds.nth(1).inner_text()


async def test_parallel_episodes_of_a_task_are_compared_turn_by_turn(browser: Any, recorded: Path) -> None:
    heads, _ = records(recorded / "parallel", 2)
    async with studio_over(recorded) as address, watched(browser) as page:
        await open_list(page, address, "parallel")
        await page.locator(".episodes a").first.click()
        await page.locator("#stage").wait_for()
        of = sum(head.task == heads[0].task for head in heads)
        assert await page.locator(".siblings a").count() == of == 3
        assert await page.locator(".candidates > li").count() == 3
        assert "✓ this episode" in await page.locator(".candidates > li").nth(0).inner_text()
        await page.get_by_role("link", name="episode 2", exact=True).click()
        await page.wait_for_load_state("load")
        assert "✓ this episode" in await page.locator(".candidates > li").nth(1).inner_text()


async def test_the_list_is_filtered_by_role_outcome_step_kind_and_flat_groups(browser: Any, recorded: Path) -> None:
    both = [head for step in (1, 2) for head in records(recorded / "tree", step)[0]]
    async with studio_over(recorded) as address, watched(browser) as page:
        await open_list(page, address, "tree")

        async def count(**query: str) -> int:
            await page.goto(re.sub(r"\?.*", "", page.url) + "?" + "&".join(f"{k}={v}" for k, v in query.items()))
            found: int = await page.locator(".episodes > li").count()
            return found

        assert await count(source="recorded") == len(both) == 4
        assert await count(source="recorded", step="2") == 2
        assert await count(source="recorded", flat="1") == sum(head.flat > 0 for head in both)
        assert await count(source="recorded", role="planner") == sum("planner" in head.roles for head in both)
        assert await count(source="recorded", outcome="solved") == sum(head.success for head in both)
        assert await count(role="nobody") == 0
        await page.get_by_role("link", name="show all").click()
        await page.get_by_label("Kind").select_option("greedy evaluation")
        await page.get_by_role("button", name="Show").click()
        await page.wait_for_url("**source=greedy**")
        assert await page.locator(".episodes > li").count() == 4  # two tasks, before and after training


async def test_a_group_without_variance_is_marked_in_the_list_and_at_its_message(browser: Any, tmp_path: Path) -> None:
    large_run(tmp_path / "run", steps=1, episodes=1)  # its second group is flat
    async with studio_over(tmp_path) as address, watched(browser) as page:
        await open_list(page, address, "run")
        assert "1 of 5 groups without variance" in await page.locator(".episodes").inner_text()
        await page.locator(".episodes a").first.click()
        assert await page.locator(".flat-note").count() == 0
        await page.locator("#next").click()
        await shown(page, 2)
        said = await page.locator(".flat-note").inner_text()
        assert "All 4 returns of this group are equal, and its advantages are 0" in said


async def test_text_of_conversations_alone_says_what_is_not_recorded(browser: Any, recorded: Path) -> None:
    async with studio_over(recorded) as address, watched(browser) as page:
        await open_list(page, address, "tree")
        await page.get_by_text("greedy evaluation").last.click()
        await page.locator("#stage").wait_for()
        assert "Text only." in await page.locator(".hint").inner_text()
        assert await page.locator(".candidates > li").count() == 1
        assert await page.locator(".candidates dl, [data-tokens]").count() == 0


async def test_a_large_run_scrolls_and_its_pages_can_be_turned(browser: Any, tmp_path: Path) -> None:
    large_run(tmp_path / "run", steps=20)
    async with studio_over(tmp_path) as address, watched(browser) as page:
        await open_list(page, address, "run")
        assert await page.locator(".episodes > li").count() == 50
        await page.keyboard.press("End")
        await page.wait_for_function("() => scrollY > 1000")
        await page.get_by_role("link", name="older").click()
        await page.wait_for_url("**page=2")
        await page.get_by_role("link", name="last", exact=True).click()
        await page.get_by_text("page 40 of 40").wait_for()
        assert "step 1" in await page.locator(".episodes a").last.inner_text()


async def test_new_episodes_of_a_run_that_goes_on_are_announced(browser: Any, tmp_path: Path) -> None:
    run = plain_run(tmp_path / "run")
    samples = JsonLines(run / "samples.jsonl")
    sample = {"source": "training", "task": "first", "success": True, "lines": []}
    samples.append(1, sample)
    async with studio_over(tmp_path) as address, watched(browser) as page:
        await open_list(page, address, "run")
        assert await page.locator(".episodes > li").count() == 1
        samples.append(2, sample | {"task": "second"})
        with (run / "samples.jsonl").open("ab") as file:
            file.write(b'{"step":3,"source":"training","task":"half')
        await page.get_by_role("link", name="show 1 new").click()
        await page.get_by_text("second").wait_for()
        assert await page.locator(".episodes > li").count() == 2
    samples.close()


async def test_a_run_is_watched_while_it_trains(
    browser: Any, train: Train, tmp_path_factory: pytest.TempPathFactory
) -> None:
    runs = tmp_path_factory.mktemp("live")
    training = asyncio.create_task(asyncio.to_thread(train, runs / "live", "train.steps=8"), name="training")
    async with studio_over(runs) as address, watched(browser) as page:
        while not (runs / "live" / "config.yaml").exists():
            assert not training.done()
            await asyncio.sleep(0.05)
        await open_list(page, address, "live")
        new = page.get_by_role("link", name=re.compile(r"show \d+ new"))
        await new.wait_for(timeout=60_000)
        await new.click()
        await page.locator(".episodes a").first.click()
        await page.locator("#stage .candidates").wait_for()
        await training
        await page.get_by_role("link", name="← all episodes").click()
        await page.get_by_text("step 8").first.wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_every_page_is_accessible_and_fits_from_390_to_1400_pixels(
    browser: Any, recorded: Path, scheme: str
) -> None:
    axe = pytest.importorskip("axe_playwright_python.async_playwright", reason="axe-playwright-python is missing").Axe()
    async with studio_over(recorded) as address, watched(browser) as page:
        await page.emulate_media(color_scheme=scheme)
        await open_list(page, address, "tree")
        listed = page.url
        await page.locator(".episodes a").first.click()
        await page.locator("#stage").wait_for()
        whole = page.url
        await page.goto(f"{listed}?source=greedy")
        await page.locator(".episodes a").first.click()
        await page.locator("#stage").wait_for()
        for url in (listed, whole, page.url):
            await page.goto(url)
            for width in (390, 700, 1000, 1400):
                await page.set_viewport_size({"width": width, "height": 900})
                assert await page.evaluate("document.documentElement.scrollWidth") <= width, (url, width)
                if width in (390, 1400):
                    found = (await axe.run(page)).response["violations"]
                    serious = [one for one in found if one["impact"] in ("serious", "critical")]
                    assert [(one["id"], [node["html"] for node in one["nodes"]][:3]) for one in serious] == []
