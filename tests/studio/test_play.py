"""A person plays a seat of a game in the browser, against players of a league and against baselines."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio
from leagues import TIC_TAC_TOE, make_league
from studio_site import WIDTHS, obstacles_of, overflow_of
from team_pages import ANSWER_MS, opened

from mas.config.load import load_config
from mas.endpoint.server import running
from mas.league.match import LeagueMember
from mas.league.pool import GateTerms, enter
from mas.league.store import LeagueStore
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario
from mas.studio.app import build_app
from mas.studio.leagues import Leagues
from mas.studio.runs import Runs

pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (extra open-spiel)")
pytestmark = pytest.mark.asyncio(loop_scope="session")
KUHN = "two_player:kuhn_poker"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("play")
    make_league(made / "league.db", games=2)
    with closing(LeagueStore.open(made / "league.db")) as store:
        far = "openai:model@http://10.0.0.1:1/v1"
        store.begin("gate: far", {"game": TIC_TAC_TOE, "players": {"far": far}})
        store.enter(LeagueMember(name="tree", source="mcts:20"))
    return made


@asynccontextmanager
async def playing_over(folder: Path) -> AsyncIterator[str]:
    async with running(build_app(Runs([folder]), plays=True), drain_s=1.0) as address:
        yield address


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(folder: Path) -> AsyncIterator[str]:
    async with playing_over(folder) as address:
        yield address


def key_of(folder: Path) -> str:
    return Leagues([folder]).all()[0].key


async def tab_to(page: Any, wanted: str) -> None:
    for _ in range(80):
        await page.keyboard.press("Tab")
        if await page.evaluate("wanted => document.activeElement.matches(wanted)", wanted):
            return
    raise AssertionError(f"{wanted} cannot be reached")


async def settled(page: Any) -> bool:
    """Wait for the person's move, or the end; whether it is over."""
    await page.locator("[data-move], #result").first.wait_for(timeout=ANSWER_MS)
    return bool(await page.locator("#result").count())


async def test_a_game_is_played_to_its_end_with_the_keyboard_alone(browser: Any, site: str, folder: Path) -> None:
    async with opened(browser, site, f"/leagues/{key_of(folder)}") as page:
        await page.locator(".ladder a", has_text="play").first.click()
        assert await page.locator("#opponent").input_value() == "best"
        await tab_to(page, "[data-begin] button")
        await page.keyboard.press("Enter")
        await page.wait_for_url("**/play/*")
        moves = 0
        while not await settled(page):
            assert "Your move" in await page.locator("#stage").inner_text()
            if not moves:
                await tab_to(page, "[data-move]")
            assert await page.evaluate("document.activeElement.matches('[data-move]')"), (
                "the focus stays with the moves"
            )
            before = await page.locator("[data-version]").get_attribute("data-version")
            await page.keyboard.press("Enter")
            moves += 1
            await page.wait_for_function(
                "before => document.querySelector('[data-version]')?.dataset.version !== before", arg=before
            )
        assert 3 <= moves <= 5
        assert await page.locator("#result").inner_text() in ("You lost", "Drawn"), "minimax never loses"
        assert await page.evaluate("document.activeElement.id") == "result"
        await page.keyboard.press("End")
        shown = page.locator(".message:not([hidden])")
        assert (await shown.locator(".board").inner_text()).count("x") >= 3
        await page.get_by_role("button", name="Play again").click()
        await page.locator("[data-move]").first.wait_for(timeout=ANSWER_MS)
        await page.get_by_role("button", name="Give up").click()
        await page.get_by_text("the game was broken off").wait_for(timeout=ANSWER_MS)


async def test_baselines_play_games_that_come_with_mas(browser: Any, site: str) -> None:
    async with opened(browser, site, "/play") as page:
        await page.get_by_role("link", name=KUHN).click()
        assert await page.locator("#opponent option").all_inner_texts() == ["solver", "random"]
        await page.locator("#opponent").select_option("solver")
        await page.locator("#seat").select_option("player_1")
        await page.get_by_role("button", name="Begin").click()
        while not await settled(page):
            await page.locator("[data-move]").last.click()
            await page.locator("[data-thinks], #result, [data-move]").first.wait_for()
        assert await page.locator("#result").inner_text() in ("You won", "You lost")
        assert "solver" in await page.locator(".results").inner_text()


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_pages_are_accessible_and_fit_every_width(browser: Any, site: str, folder: Path, scheme: str) -> None:
    async with opened(browser, site, f"/play?league={key_of(folder)}&game={TIC_TAC_TOE}", color_scheme=scheme) as page:

        async def check() -> None:
            for width in WIDTHS:
                await page.set_viewport_size({"width": width, "height": 900})
                assert await overflow_of(page) <= 0, (page.url, width)
            assert await obstacles_of(page) == [], page.url

        await check()
        await page.get_by_role("button", name="Begin").click()
        assert not await settled(page)
        await check()
        while not await settled(page):
            await page.locator("[data-move]").first.click()
            await page.locator("[data-thinks], #result, [data-move]").first.wait_for()
        await check()


class Client:
    """A page of the studio without a browser."""

    def __init__(self, client: httpx.AsyncClient, site: str, token: str) -> None:
        self.client = client
        self.headers = {"origin": site, "x-studio-token": token, "content-type": "application/json"}

    async def send(self, path: str, body: object, **headers: str) -> httpx.Response:
        return await self.client.post(path, content=json.dumps(body), headers={**self.headers, **headers})

    async def begin(self, **wish: str) -> Any:
        return (await self.send("/play/begin", wish)).json()

    async def stage(self, path: str, after: int = -1) -> str:
        return (await self.client.get(f"{path}/stage?after={after}")).text


@asynccontextmanager
async def client_of(site: str) -> AsyncIterator[Client]:
    async with httpx.AsyncClient(base_url=site, timeout=60) as client:
        page = (await client.get(f"/play?game={KUHN}")).text
        yield Client(client, site, page.partition('data-token="')[2].partition('"')[0])


async def test_a_move_that_is_not_legal_is_refused_with_a_sentence(site: str, folder: Path) -> None:
    async with client_of(site) as page:
        wish = {"league": key_of(folder), "game": TIC_TAC_TOE, "opponent": "best", "seat": "player_0"}
        path = (await page.begin(**wish))["path"]
        version = int((await page.stage(path)).partition('data-version="')[2].partition('"')[0])
        refused = await page.send(f"{path}/move", {"text": "x(7,7)", "version": version})
        assert "&#39;x(7,7)&#39; is not possible now. Possible: x(0,0), x(0,1)" in refused.text
        assert f'data-version="{version}"' in refused.text
        stale = await page.send(f"{path}/move", {"text": "x(0,0)", "version": version - 1})
        assert "it was not your move" in stale.text
        made = await page.send(f"{path}/move", {"text": "x(0,0)", "version": version})
        assert 'data-move="x(0,0)"' not in made.text
        await page.send(f"{path}/end", {})


async def test_only_pages_of_this_studio_may_play(site: str, folder: Path) -> None:
    wish = {"game": KUHN, "opponent": "random", "seat": "player_0"}
    async with client_of(site) as page:
        for change, status in (
            ({"origin": "http://evil.example"}, 403),
            ({"x-studio-token": "wrong"}, 403),
            ({"x-studio-token": ""}, 403),
            ({"sec-fetch-site": "cross-site"}, 403),
            ({"content-type": "text/plain"}, 415),
            ({"host": "evil.example"}, 421),
        ):
            for path in ("/play/begin", "/play/none/move", "/play/none/end"):
                assert (await page.send(path, wish, **change)).status_code == status, (path, change)
        for wrong, status in (
            ({}, 400),
            ({**wish, "game": "open_spiel:go"}, 404),
            ({**wish, "game": "evil.py:Game"}, 404),
            ({**wish, "league": "none"}, 404),
            ({**wish, "opponent": "mcts:9999999"}, 400),
            ({**wish, "seat": "player_9"}, 400),
        ):
            assert (await page.send("/play/begin", wrong)).status_code == status, wrong
        assert (await page.send("/play/none/move", {"text": "x", "version": 1})).status_code == 404
        assert (await page.client.get("/play/none")).status_code == 404
        assert (await page.client.get("/play/begin", headers={"origin": page.headers["origin"]})).status_code == 404


async def test_a_player_that_the_user_has_not_allowed_does_not_play(site: str, folder: Path) -> None:
    async with client_of(site) as page:
        wish = {"league": key_of(folder), "game": TIC_TAC_TOE, "seat": "player_0"}
        path = (await page.begin(**wish, opponent="far"))["path"]
        assert "data-over" in await page.stage(path)
        assert "You have not allowed this" in (await page.client.get(path)).text
        path = (await page.begin(**wish, opponent="tree"))["path"]
        assert "Your move" in await page.stage(path), "a member of the league plays"
        await page.send(f"{path}/end", {})


async def test_a_fifth_game_waits_for_the_end_of_another_one(site: str) -> None:
    async with client_of(site) as page:
        wish = {"game": KUHN, "opponent": "random", "seat": "player_0"}
        paths = [(await page.begin(**wish))["path"] for _ in range(4)]
        assert "4 games are on" in (await page.begin(**wish))["problem"]
        assert (await page.client.get("/play")).text.count(f"{KUHN} against random") == 4
        for path in paths:
            await page.stage(path)
            await page.send(f"{path}/end", {})
            assert "data-over" in await page.stage(path, after=1)
        path = (await page.begin(**wish))["path"]
        await page.send(f"{path}/end", {})


async def test_where_nobody_asked_for_it_nobody_plays(folder: Path) -> None:
    async with (
        running(build_app(Runs([folder])), drain_s=1.0) as address,
        httpx.AsyncClient(base_url=address) as client,
    ):
        assert (await client.get("/play")).status_code == 404
        assert "/play" not in (await client.get(f"/leagues/{key_of(folder)}")).text
        assert (await client.post("/play/begin", headers={"origin": address}, json={})).status_code == 404
    async with (
        running(build_app(Runs([folder]), served="http://127.0.0.1:9"), drain_s=1.0) as address,
        httpx.AsyncClient(base_url=address) as client,
    ):
        assert (await client.get("/play")).status_code == 200, "--serve allows it, too"


@pytest.fixture(scope="module")
def pool(
    base_for: Callable[..., Any], small_overrides: tuple[str, ...], tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A folder with a league whose one member was trained for a step."""
    base_for("two_player")
    made = tmp_path_factory.mktemp("pool")
    short = ("train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2")
    words = ["scenario=two_player", "algorithm=spiral", *short, *small_overrides, f"run_dir='{made}/run'"]
    config = load_config(words)
    train_in_directory(config, build_scenario(config.scenario))
    with closing(LeagueStore.open(made / "pool.db")) as store:
        trained = LeagueMember(name="trained", source=f"run:{made}/run@1")
        enter(store, made / "pool.members", trained, "", GateTerms(), 4)
    return made


@pytest.mark.nightly
async def test_a_trained_member_plays(pool: Path) -> None:
    async with playing_over(pool) as address, client_of(address) as page:
        wish = {"league": key_of(pool), "game": KUHN, "opponent": "trained", "seat": "player_1"}
        path, shown = (await page.begin(**wish))["path"], ""
        while "data-over" not in (shown := await page.stage(path)):
            if "Your move" in shown:
                version = int(shown.partition('data-version="')[2].partition('"')[0])
                await page.send(f"{path}/move", {"text": "Bet", "version": version})
        over = (await page.client.get(path)).text
        assert "You won" in over or "You lost" in over, over
        assert "trained" in over
