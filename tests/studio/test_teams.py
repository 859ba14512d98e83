"""The pages about teams in a real browser: messages that move on the drawing, and the editor."""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
import yaml
from studio_site import obstacles_of, overflow_of, studio_over
from team_pages import ANSWER_MS, opened

from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.roles import build_roles

pytestmark = [pytest.mark.nightly(of=16), pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(180)]

HOSTILE = "<img src=x onerror=\"document.title='hit'\">\x1b[31m</pre><script>document.title='hit'</script>"
TEAM = """\
name: checked
roles:
  planner: {type: planner}
  executor: {type: executor}
  verifier: {type: verifier}
edges:
- start -> planner
- planner -> executor
- executor -> verifier
- verifier -> done when accept
- verifier -> executor when reject loop 2
joins: {executor: any}
output: executor
"""


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run, written by hand: a loop is taken once, and what is said is hostile."""
    folder = tmp_path_factory.mktemp("team-runs")
    run = folder / "checked"
    run.mkdir()
    (run / "config.yaml").write_text("scenario: {name: relay}\n")
    (run / "metrics.jsonl").write_text("")
    (run / "team.yaml").write_text(TEAM)
    said = [("planner", HOSTILE), ("executor", "7"), ("verifier", "reject"), ("executor", "8"), ("verifier", "accept")]
    lines = [{"turn": 0, "agent": agent, "prompt": f"asked {agent}", "text": text} for agent, text in said]
    scenes = [{"turn": -1, "event": "", "world": "a goal"}, {"turn": 0, "event": "it is solved", "world": "the end"}]
    sample = {
        "step": 3,
        "source": "greedy",
        "task": "eval-0",
        "success": True,
        "cause": None,
        "rewards": {"solved": 1.0},
    }
    (run / "samples.jsonl").write_text(json.dumps({**sample, "lines": lines, "scenes": scenes}) + "\n")
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(runs: Path) -> AsyncIterator[str]:
    """The address of one studio for all tests: its process that checks teams takes seconds to start."""
    async with studio_over(runs) as address:
        yield address


async def _key(page: Any) -> str:
    """The address of the one run's page about its team."""
    return str(await page.locator(".gallery a").first.get_attribute("href"))


async def _lit(page: Any) -> list[str]:
    edges = await page.locator("svg.team .edge.lit").evaluate_all("all => all.map(one => one.dataset.edges)")
    return sorted(edges)


async def _state(page: Any, words: str) -> None:
    """Wait until the editor says this of the team; `problems`: any number of them."""
    said = re.compile(r"^[0-9]+ problem" if words == "problems" else f"^{re.escape(words)}")
    await page.locator("#state").get_by_text(said).wait_for(timeout=ANSWER_MS)


async def _written(page: Any, words: str) -> None:
    """Wait until the text of the editor has these words."""
    await page.wait_for_function(
        "words => document.getElementById('text').value.includes(words)", arg=words, timeout=ANSWER_MS
    )


async def test_each_message_lights_the_edges_that_it_took(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams") as page:
        await page.goto(site + await _key(page))
        shown = [await _lit(page)]
        for _ in range(6):
            await page.get_by_role("button", name="Next").click()
            shown.append(await _lit(page))
        assert shown == [["0"], ["1"], ["2"], ["4"], ["2"], ["3"], []]
        assert await page.locator(".where").inner_text() == "7 of 7"
        assert "it is solved" in await page.locator(".message:not([hidden])").inner_text()


async def test_arrow_keys_step_and_what_models_said_is_text(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams") as page:
        await page.goto(site + await _key(page))
        await page.keyboard.press("ArrowRight")
        visible = page.locator(".message:not([hidden])")
        assert await visible.locator("pre").first.inner_text() == HOSTILE.replace("\x1b", "\\x1b")
        assert await page.title() == "Team of checked · mas studio"
        assert await page.locator("svg.team .speaks").get_attribute("data-node") == "planner"
        await page.keyboard.press("End")
        assert await page.locator(".where").inner_text() == "7 of 7"
        await page.keyboard.press("ArrowLeft")
        await page.keyboard.press("Home")
        assert await page.locator(".where").inner_text() == "1 of 7"
        await page.get_by_label("all messages").check()
        assert await page.locator(".message:visible").count() == 7


async def test_the_dot_moves_and_rests_where_less_motion_is_preferred(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams") as page:
        await page.goto(site + await _key(page))
        await page.keyboard.press("ArrowRight")
        assert await page.locator("svg.team .courier.moves").count() == 1
        await page.locator("svg.team .courier.moves").wait_for(state="detached")
    async with opened(browser, site, "/teams", reduced_motion="reduce") as page:
        await page.goto(site + await _key(page))
        await page.keyboard.press("ArrowRight")
        assert await page.locator("svg.team .courier.moves").count() == 0
        assert await _lit(page) == ["1"]


async def test_a_real_run_shows_its_episodes_on_its_team(browser: Any, finished_run: Path) -> None:
    async with studio_over(finished_run) as address, opened(browser, address, "/") as page:
        await page.get_by_role("link", name="relay", exact=True).click()
        await page.get_by_role("link", name="Team", exact=True).click()
        await page.locator(".controls").wait_for()
        await page.keyboard.press("ArrowRight")
        assert await _lit(page) == ["1"]
        assert await page.locator(".message:not([hidden]) b").inner_text() == "planner"
        count = await page.locator("#episode option").count()
        assert count >= 2
        await page.locator("#episode").select_option(index=count - 1)
        await page.get_by_role("button", name="Show").click()
        assert "episode=0" in page.url


async def test_a_team_is_made_with_the_keyboard_alone_and_its_file_is_one_for_mas(
    browser: Any, site: str, tmp_path: Path
) -> None:
    async with opened(browser, site, "/teams/edit") as page:
        await _state(page, "No problems")
        await _tab_to(page, "new-role")
        await page.keyboard.type("verifier")
        await page.keyboard.press("Tab")
        await page.keyboard.type("verifier")
        await page.keyboard.press("Tab")
        await page.keyboard.press("Enter")
        await _written(page, "verifier")
        await _state(page, "problems")
        await _tab_to(page, "edge-2")
        await page.keyboard.press("Control+a")
        await page.keyboard.type("executor -> verifier")
        await page.keyboard.press("Enter")
        for target, when, loop in (("done", "accept", ""), ("executor", "reject", "2")):
            await _tab_to(page, "new-source")
            await page.keyboard.type("verifier")
            await page.keyboard.press("Tab")
            await page.keyboard.type(target)
            await page.keyboard.press("Tab")
            await page.keyboard.type(when)
            await page.keyboard.press("Tab")
            await page.keyboard.type(loop)
            count = await page.locator("[data-edge]").count()
            await page.keyboard.press("Enter")
            await page.locator(f"#edge-{count}").wait_for(timeout=ANSWER_MS)
        await _tab_to(page, "join-1")
        await page.keyboard.press("Control+a")
        await page.keyboard.type("any")
        await page.keyboard.press("Enter")
        await _state(page, "No problems")
        await _tab_to(page, "download")
        async with page.expect_download() as coming:
            await page.keyboard.press("Enter")
        path = tmp_path / (await coming.value).suggested_filename
        await (await coming.value).save_as(path)
    assert path.name == "my_team.yaml"
    team = load_team(path)
    compile_team(team, build_roles(team))
    assert [edge.loop for edge in team.edges if edge.source == "verifier"] == [None, 2]


async def _tab_to(page: Any, wanted: str) -> None:
    """Press Tab until the element with this id has the focus."""
    for _ in range(80):
        if await page.evaluate("document.activeElement.id") == wanted:
            return
        await page.keyboard.press("Tab")
    raise AssertionError(f"Tab never comes to #{wanted}")


async def test_text_is_checked_as_it_is_written_and_a_problem_leads_to_its_line(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams/edit") as page:
        await _state(page, "No problems")
        before = await page.locator("#text").input_value()
        await page.locator("#text").fill(before.replace("planner -> executor", "planner -> executr"))
        await _state(page, "problems")
        assert "unknown agent 'executr'" in await page.locator("#problems").inner_text()
        assert await page.locator("#numbers .wrong").first.inner_text() == "10"
        await page.locator("#problems button").first.click()
        selected = "t => t.value.slice(t.selectionStart, t.selectionEnd)"
        assert await page.locator("#text").evaluate(selected) == "  - planner -> executr"
        await page.locator("#text").fill("name: [")
        await page.locator("#problems").get_by_text("not YAML").wait_for(timeout=ANSWER_MS)
        assert await page.locator("#team-name").is_disabled()
        await page.get_by_role("button", name="Undo").click()
        await page.get_by_role("button", name="Undo").click()
        await _state(page, "No problems")
        assert await page.locator("#text").input_value() == before


async def test_a_role_is_changed_renamed_and_removed_in_the_form(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams/edit") as page:
        await _state(page, "No problems")
        await page.locator("svg.team [data-node=planner]").click()
        assert await page.evaluate("document.activeElement.id") == "role-0"
        await page.locator("#role-0-instructions").fill("Line one.\nLine two: <b>")
        await page.locator("#role-0-instructions").blur()
        await _written(page, "Line two: <b>")
        await page.locator("#role-0-name").fill("thinker")
        await page.locator("#role-0-name").press("Enter")
        await page.locator("svg.team [data-node=thinker]").wait_for(timeout=ANSWER_MS)
        team = yaml.safe_load(await page.locator("#text").input_value())
        assert team["roles"]["thinker"]["instructions"] == "Line one.\nLine two: <b>"
        assert team["edges"] == ["start -> thinker", "thinker -> executor", "executor -> done"]
        assert await page.evaluate("document.activeElement.id") == "role-0-name"
        await page.get_by_role("button", name="Remove thinker", exact=True).click()
        await page.locator("svg.team [data-node=thinker]").wait_for(state="detached", timeout=ANSWER_MS)
        await _state(page, "problems")
        await page.locator("#new-role").fill("executor")
        await page.get_by_role("button", name="Add the role").click()
        await _state(page, "there is a role 'executor' already")


async def test_the_edges_of_a_shipped_teams_protocol_are_written_out(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams") as page:
        await page.get_by_label("Begin with").select_option("relay/team")
        await page.get_by_role("button", name="Open in the editor").click()
        await _state(page, "No problems")
        await page.get_by_role("button", name="Write the edges out").click()
        await page.locator("#edge-2").wait_for(timeout=ANSWER_MS)
        await _state(page, "No problems")
        assert "protocol" not in await page.locator("#text").input_value()


async def test_the_team_of_a_run_opens_in_the_editor(browser: Any, site: str) -> None:
    async with opened(browser, site, "/teams") as page:
        await page.goto(site + await _key(page))
        await page.get_by_role("link", name="Open the team in the editor").click()
        await _state(page, "No problems")
        assert await page.locator("#text").input_value() == TEAM


@pytest.mark.matrix("scheme", ["light", "dark"], default=["light"])
async def test_the_pages_are_accessible_and_fit_from_390_to_1400_pixels(browser: Any, site: str, scheme: str) -> None:
    async with opened(browser, site, "/teams", color_scheme=scheme) as page:
        paths = ["/teams", await _key(page), "/teams/edit?from=workflow/flow"]
        for path in paths:
            await page.goto(site + path)
            if "edit" in path:
                await _state(page, "No problems")
                await page.locator("details.role").first.locator("summary").click()
            assert await obstacles_of(page) == []
            for width in (390, 800, 1400):
                await page.set_viewport_size({"width": width, "height": 900})
                assert await overflow_of(page) == 0, (path, width)


async def test_only_pages_of_this_studio_may_ask_for_a_check_and_within_bounds(site: str) -> None:
    question = {"text": TEAM}
    async with httpx.AsyncClient(base_url=site, timeout=120) as client:
        own = {"origin": site}
        assert (await client.post("/teams/check", json=question)).status_code == 403
        evil = {"origin": "http://evil.example"}
        assert (await client.post("/teams/check", json=question, headers=evil)).status_code == 403
        assert (await client.get("/teams/check")).status_code == 405
        plain = own | {"content-type": "text/plain"}
        assert (await client.post("/teams/check", content=json.dumps(question), headers=plain)).status_code == 415
        long = {"text": "x" * 300_000}
        assert (await client.post("/teams/check", json=long, headers=own)).status_code == 413
        for wrong in (b"{", b"[]", b'{"text": 1}', b'{"text": "", "change": {"do": "rm"}}', b"\xff", b"[" * 100_000):
            kind = own | {"content-type": "application/json"}
            assert (await client.post("/teams/check", content=wrong, headers=kind)).status_code == 400
        done = await client.post("/teams/check", json=question, headers=own)
        assert (done.status_code, done.json()["problems"]) == (200, [])
        assert (await client.get("/teams/edit?from=../../core/team")).status_code == 404
        assert (await client.get("/teams/edit?run=nothing")).status_code == 404


async def test_damaged_runs_are_shown_as_far_as_possible(runs: Path, tmp_path: Path) -> None:
    for name, team, samples in (
        ("bomb", "a: &a [x]\nb: *a\nroles: /etc/passwd\n", "not json\n{}\n"),
        ("empty", "", ""),
        ("odd", TEAM, json.dumps({"step": 1, "lines": [{"turn": "x"}], "scenes": 3}) + "\n"),
        ("number", TEAM, json.dumps({"step": 1, "lines": 3, "rewards": [], "task": HOSTILE}) + "\n"),
        ("foreign", TEAM.replace("type: planner", "type: 'evil.py:P'"), ""),
    ):
        run = tmp_path / name
        run.mkdir()
        (run / "config.yaml").write_text("{}\n")
        (run / "team.yaml").write_text(team)
        (run / "samples.jsonl").write_text(samples)
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "config.yaml").write_text("{}\n")
    (tmp_path / "linked" / "team.yaml").symlink_to(runs / "checked" / "team.yaml")
    async with studio_over(tmp_path) as address, httpx.AsyncClient(base_url=address, timeout=120) as client:
        listed = (await client.get("/teams")).text
        for name, status, said in (
            ("bomb", 422, "damaged"),
            ("empty", 200, "a mapping of keys"),
            ("odd", 200, "planner"),
            ("number", 200, "&lt;img src=x"),
            ("foreign", 200, "does not import"),
            ("linked", 422, "link"),
        ):
            path = listed.partition(f"/runs/{name}-")[2].partition('"')[0]
            page = await client.get(f"/runs/{name}-{path}")
            assert (page.status_code, said in page.text) == (status, True), page.text
