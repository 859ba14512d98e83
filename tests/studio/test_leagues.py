"""Leagues in the studio: found beside runs, read and never written, shown as a ladder, a heat map, and games to step
through."""

import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import pytest_asyncio
from leagues import HOSTILE, TIC_TAC_TOE, make_league
from studio_site import WIDTHS, obstacles_of, overflow_of, studio_over
from team_pages import opened

from mas.core.errors import ConfigError
from mas.core.printable import printable
from mas.league.games import open_world
from mas.league.match import PlayedGame, replay
from mas.league.page_parts import payoffs, win_rates
from mas.league.standings import standings
from mas.league.store import LeagueStore, NoLeagueError
from mas.studio.leagues import Leagues, order_for

pytest.importorskip("pyspiel", reason="OpenSpiel is not installed (extra open-spiel)")
pytestmark = [pytest.mark.nightly(of=16), pytest.mark.asyncio(loop_scope="session")]
Made = tuple[Path, list[PlayedGame]]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    """A folder with the league `games/league.db` and what is no league, and the league's games."""
    folder = tmp_path_factory.mktemp("leagues")
    (folder / "games").mkdir()
    games = make_league(folder / "games" / "league.db")
    with closing(sqlite3.connect(folder / "other.db")) as other:
        other.execute("CREATE TABLE notes (text)")
        other.execute("CREATE VIEW tournaments AS SELECT 1")
    (folder / "text.db").write_text("no database")
    (folder / "torn.db").write_bytes((folder / "games" / "league.db").read_bytes()[:5000])
    (folder / "link.db").symlink_to(folder / "games" / "league.db")
    return folder, games


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(made: Made) -> AsyncIterator[str]:
    async with studio_over(made[0]) as address:
        yield address


def key_of(folder: Path) -> str:
    return next(league.key for league in Leagues([folder]).all() if league.name == "games/league.db")


def times_of(folder: Path) -> dict[str, int]:
    """When each file of a folder was written."""
    return {one.name: one.stat().st_mtime_ns for one in folder.iterdir()}


async def test_leagues_stand_beside_runs_and_what_is_none_does_not(browser: Any, site: str, made: Made) -> None:
    async with opened(browser, site, "/") as page:
        rows = page.locator("#leagues tbody tr")
        texts = await rows.all_inner_texts()
        assert len(texts) == 2, texts
        assert [part in texts[0] for part in ("games/league.db", "cup", TIC_TAC_TOE, "12")] == [True] * 4
        assert texts[1].startswith("torn.db"), "a league that is damaged is said to be"
        assert "cannot be read" in texts[1] or "failed" in texts[1]
        await page.get_by_role("link", name="cup").click()
        assert page.url == f"{site}/leagues/{key_of(made[0])}?tournament=cup"


async def test_the_page_has_the_ladder_and_the_win_rates_of_the_games(browser: Any, site: str, made: Made) -> None:
    folder, games = made
    table = standings(["best", "luck", HOSTILE], games)
    async with opened(browser, site, f"/leagues/{key_of(folder)}") as page:
        names = await page.locator(".ladder tbody th").all_inner_texts()
        assert names == [printable(row.name) for row in table.standings]
        assert names[0] == "best"
        cells = await page.locator("table.heat").first.locator("tbody td").all_inner_texts()
        assert cells == ["" if cell is None else cell.text for row in win_rates(table, games) for cell in row]
        assert await page.locator("table.heat").nth(1).locator("tbody td.down-4").count() > 0
        assert "100%" in cells, "against the attacker everybody wins"
        assert await page.locator(".ladder svg.span").count() == 3
        await page.get_by_role("link", name="payoff", exact=True).click()
        await page.get_by_text("Best payoff first").wait_for()
        by_payoff = standings(["best", "luck", HOSTILE], games, order="payoff").standings
        assert await page.locator(".ladder tbody th").all_inner_texts() == [printable(row.name) for row in by_payoff]


async def test_the_ladder_is_by_payoff_where_more_can_be_won_than_a_game(made: Made) -> None:
    games = made[1]
    assert order_for(games) == "rating"
    assert order_for([*games, msgspec.structs.replace(games[0], returns=(2.0, -2.0))]) == "payoff"


async def test_from_the_heat_map_to_the_moves_with_the_keyboard_alone(browser: Any, site: str, made: Made) -> None:
    folder, games = made
    between = [game for game in games if set(game.players) == {"best", "luck"}]
    boards = replay(open_world(TIC_TAC_TOE).open(), between[0])
    async with opened(browser, site, f"/leagues/{key_of(folder)}") as page:

        async def follow(wanted: str) -> None:
            for _ in range(80):
                await page.keyboard.press("Tab")
                if await page.evaluate("wanted => document.activeElement.matches(wanted)", wanted):
                    return await page.keyboard.press("Enter")
            raise AssertionError(f"{wanted} cannot be reached")

        await follow("table.heat a[aria-label^='best against luck']")
        await page.wait_for_url("**opponent=luck**")
        assert await page.locator("table.games tbody tr").count() == len(between) == 4
        await follow("table.games a")
        await page.locator(".controls").wait_for()
        shown = page.locator(".message:not([hidden])")
        for number, board in enumerate(boards):
            assert await page.locator(".where").inner_text() == f"{number + 1} of {len(boards)}"
            assert await shown.locator(".board").inner_text() == board
            if number:
                move = between[0].moves[number - 1]
                assert (await shown.locator(".words").inner_text(), await shown.locator("b").inner_text()) == (
                    move.text,
                    move.player,
                )
            await page.keyboard.press("ArrowRight")
        await page.keyboard.press("Home")
        assert await shown.locator("b").inner_text() == "The beginning"
        await page.keyboard.press("End")
        await page.keyboard.press("ArrowLeft")
        assert await page.locator(".where").inner_text() == f"{len(boards) - 1} of {len(boards)}"


async def test_what_members_say_is_text(browser: Any, site: str, made: Made) -> None:
    folder, games = made
    number = next(at for at, game in enumerate(games) if HOSTILE in game.players)
    async with opened(browser, site, f"/leagues/{key_of(folder)}") as page:
        assert await page.title() == "games/league.db · mas studio"
        await page.locator("table.games a").nth(number).click()
        await page.locator(".controls").wait_for()
        await page.get_by_label("all moves").check()
        said = await page.locator(".words").all_inner_texts()
        assert printable(HOSTILE) in said
        assert await page.locator(".move .problem").count() > 0
        assert await page.title() == "Game of cup · mas studio"
        assert await page.locator("main img, main script").count() == 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
async def test_the_pages_are_accessible_and_fit_every_width(browser: Any, site: str, made: Made, scheme: str) -> None:
    league = f"/leagues/{key_of(made[0])}"
    async with opened(browser, site, league, color_scheme=scheme, reduced_motion="reduce") as page:
        game = await page.locator("table.games a").first.get_attribute("href")
        for path in ("/", league, str(game)):
            await page.goto(site + path)
            await page.evaluate("document.querySelectorAll('main details').forEach(part => { part.open = true; })")
            for width in WIDTHS:
                await page.set_viewport_size({"width": width, "height": 900})
                assert await overflow_of(page) <= 0, (path, width)
            assert await obstacles_of(page) == [], path


async def test_reading_changes_nothing_beside_an_idle_league_and_beside_one_that_is_written(tmp_path: Path) -> None:
    path = tmp_path / "league.db"
    make_league(path, games=2)
    for is_open in (False, True):
        with closing(LeagueStore.open(path)) if is_open else closing(sqlite3.connect(":memory:")) as writer:
            if isinstance(writer, LeagueStore):
                writer.begin("other", {"game": TIC_TAC_TOE, "players": {"a": "random"}})
            before = times_of(tmp_path)
            async with studio_over(path) as address, httpx.AsyncClient(base_url=address) as client:
                (league,) = Leagues([path]).all()
                listed = (await client.get("/")).text
                assert ("other" in listed) == is_open, "what is in the log is read, too"
                assert (await client.get(f"/leagues/{league.key}?tournament=cup")).status_code == 200
            after = times_of(tmp_path)
            assert after.keys() == before.keys()
            assert after["league.db"] == before["league.db"]


async def test_the_page_of_a_league_follows_its_games_and_keeps_what_is_open(
    browser: Any, made: Made, tmp_path: Path
) -> None:
    folder, games = made
    with closing(LeagueStore.read_only(folder / "games" / "league.db")) as store:
        terms = store.terms("cup")
    with closing(LeagueStore.open(tmp_path / "live.db")) as league:
        league.begin("cup", terms)
        async with studio_over(tmp_path) as address, opened(browser, address, "/") as page:
            await page.get_by_role("link", name="cup").click()
            await page.get_by_text("0 games are played").wait_for()
            await page.get_by_text("Who plays").click()
            league.add("cup", games[0])
            await page.get_by_text("1 of 12 games are played").wait_for()
            for game in games[1:]:
                league.add("cup", game)
            await page.get_by_text("12 of 12 games are played").wait_for()
            assert await page.locator("table.games tbody tr").count() == 12
            names = await page.locator(".ladder tbody th").all_inner_texts()
            table = standings(["best", "luck", HOSTILE], games)
            assert names == [printable(row.name) for row in table.standings]
            assert await page.locator("dl.sources").is_visible(), "what was opened stays open"
            assert await page.evaluate("document.activeElement.textContent") == "Who plays"


async def test_addresses_that_name_nothing_and_games_that_changed_are_said_to(
    site: str, made: Made, tmp_path: Path
) -> None:
    league = f"/leagues/{key_of(made[0])}"
    path = tmp_path / "changed.db"
    make_league(path, games=2)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE games SET returns = '[9.0,-9.0]' WHERE number = 0")
        database.execute("UPDATE games SET moves = 'nothing' WHERE number = 1")
    async with httpx.AsyncClient(base_url=site) as client:
        for address, status in (
            ("/leagues/none", 404),
            (f"{league}?tournament=none", 404),
            (f"{league}/game?tournament=cup&game=none", 422),
            (f"{league}/game?tournament=none&game=none", 422),
            (f"{league}?page=99999&player=nobody", 200),
        ):
            assert (await client.get(address)).status_code == status, address
    async with studio_over(path) as address, httpx.AsyncClient(base_url=address) as client:
        (changed,) = Leagues([path]).all()
        page = (await client.get(f"/leagues/{changed.key}")).text
        assert "3 games are damaged" in page
        links = [part.partition('"')[0] for part in page.split('<td class="name"><a href="')[1:]]
        assert len(links) == 3
        told = await client.get(links[0].replace("&amp;", "&"))
        assert (told.status_code, "the game has changed since" in told.text) == (422, True)


async def test_a_file_of_another_program_is_no_league_and_the_names_of_tables_do_not_make_it_one(made: Made) -> None:
    with pytest.raises(NoLeagueError, match="is no league"):
        LeagueStore.read_only(made[0] / "other.db")
    with pytest.raises(ConfigError, match="cannot be read"):
        LeagueStore.read_only(made[0] / "text.db")


async def test_a_league_that_is_read_cannot_be_written(made: Made) -> None:
    with (
        closing(LeagueStore.read_only(made[0] / "games" / "league.db")) as store,
        pytest.raises(ConfigError, match="database failed"),
    ):
        store.begin("new", {"game": TIC_TAC_TOE, "players": {}})


async def test_colours_say_who_has_more(made: Made) -> None:
    table = standings(["best", "luck", HOSTILE], made[1])
    for cells in (win_rates(table, made[1]), payoffs(table)):
        whole = [[0 if cell is None else cell.level for cell in row] for row in cells]
        assert [[-level for level in column] for column in zip(*whole, strict=True)] == whole
        assert max(max(row) for row in whole) == 4
