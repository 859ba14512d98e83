"""A damaged row of a league: one sentence, and everything else of the league stays usable."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from mas.core.errors import ConfigError
from mas.league.match import LeagueMember
from mas.league.store import LeagueStore

Mas = Callable[..., Any]
GAME = "two_player:rock_paper_scissors"


def damage(league: Path, table: str, column: str, value: object, where: str) -> None:
    with closing(sqlite3.connect(league)) as connection, connection:
        assert connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,)).rowcount == 1


def cup(mas: Mas, league: Path, name: str = "cup") -> Any:
    players = ("--player", "a=random", "--player", "b=random")
    return mas("league", "run", "--game", GAME, *players, "--games", "4", "--name", name, "--league", str(league))


@pytest.fixture
def league(mas: Mas, tmp_path: Path) -> Path:
    for name in ("cup", "other"):
        assert cup(mas, tmp_path / "league.db", name).code == 0
    return tmp_path / "league.db"


@pytest.mark.parametrize(
    ("column", "value"),
    [("moves", "{"), ("moves", b"\xff\x00"), ("returns", "[1.0]"), ("returns", "null"),
     ("returns", "[1e308, -1e308]"), ("players", '["a", 1]'),
     ("seed", "many"), ("round", "x")],
)  # fmt: skip
def test_a_damaged_game_is_told_left_out_and_played_again(mas: Mas, league: Path, column: str, value: Any) -> None:
    with closing(LeagueStore.open(league)) as store:
        before = store.games("cup")
    damage(league, "games", column, value, f"tournament = 'cup' AND id = '{before[1].id}'")
    ran = mas("league", "table", "--name", "cup", "--league", str(league))
    assert (ran.code, f"game '{before[1].id}' is damaged and left out" in ran.err) == (0, True), ran
    assert "3 games" in ran.out
    assert mas("league", "match", before[1].id, "--name", "cup", "--league", str(league)).code == 2
    assert mas("league", "table", "--name", "other", "--league", str(league)).err == ""
    assert "4 games" in cup(mas, league).out
    with closing(LeagueStore.open(league)) as store:
        assert (store.games("cup"), store.damaged("cup")) == (before, {})


@pytest.mark.parametrize(
    "terms", ["{", "[]", "{}", b"\xff", '{"players": 3, "game": "x"}', '{"players": {}, "game": "x"}']
)
def test_a_tournament_with_damaged_terms_is_one_error_and_the_others_are_there(
    mas: Mas, league: Path, terms: object
) -> None:
    damage(league, "tournaments", "terms", terms, "name = 'cup'")
    for ran in (mas("league", "table", "--name", "cup", "--league", str(league)), cup(mas, league)):
        assert (ran.code, "tournament 'cup' of this league is damaged" in ran.err) == (2, True), ran
    assert mas("league", "table", "--league", str(league)).code == 0, "the only one that is left"


def test_a_tournament_that_says_only_who_played_what_has_a_page(mas: Mas, league: Path, tmp_path: Path) -> None:
    terms = f'{{"game": "{GAME}", "players": {{"a": "random", "b": "random"}}}}'
    damage(league, "tournaments", "terms", terms, "name = 'cup'")
    ran = mas("league", "export", "--name", "cup", "--league", str(league), "--out", str(tmp_path / "page"))
    assert ran.code == 0, ran
    assert "seed ?" in (tmp_path / "page" / "index.html").read_text()


@pytest.mark.parametrize(("column", "value"), [("notes", "{"), ("notes", '{"a": "b"}'), ("step", "many")])
def test_a_damaged_member_is_one_error_and_tournaments_can_be_read(
    mas: Mas, league: Path, column: str, value: object
) -> None:
    with closing(LeagueStore.open(league)) as store:
        store.enter(LeagueMember(name="first", source="random"))
    damage(league, "members", column, value, "name = 'first'")
    ran = mas("league", "members", "--league", str(league))
    assert (ran.code, "member 'first' of this league is damaged" in ran.err) == (2, True), ran
    assert mas("league", "table", "--name", "cup", "--league", str(league)).code == 0
    with closing(LeagueStore.open(league)) as store, pytest.raises(ConfigError, match="is damaged"):
        store.members()
