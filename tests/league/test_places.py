"""Where a league lies, and databases that do not take what is written: nothing is lost without an error."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from mas.core.errors import ConfigError
from mas.league.match import LeagueMember, PlayedGame
from mas.league.store import LeagueStore

TERMS = {"game": "two_player:kuhn_poker", "players": {"a": "random", "b": "random"}}
GAME = PlayedGame(id="0/0/a/b", round=0, number=0, seed=1, players=("a", "b"), returns=(1.0, -1.0), moves=())


@pytest.mark.parametrize(
    "name", ["what?.db", "a%20b.db", "a#b.db", "x?mode=ro", ":memory:", "file:x.db", "new\nline.db"]
)
def test_a_league_lies_at_the_path_that_was_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.chdir(tmp_path)
    with closing(LeagueStore.open(name)) as store:
        store.begin("cup", TERMS)
        store.add("cup", GAME)
    assert {path.name.removesuffix("-wal").removesuffix("-shm") for path in tmp_path.iterdir()} == {name}
    with closing(LeagueStore.open(name)) as store:
        assert store.games("cup") == [GAME]


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("", "the place of the league is empty"),
        ("sqlite://", "gone with this"),
        ("sqlite:///:memory:", "gone with this"),
    ],
)
def test_a_league_that_would_be_nowhere_is_refused(place: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        LeagueStore.open(place)


def test_a_member_that_somebody_deleted_leaves_its_place_to_nobody(tmp_path: Path) -> None:
    with closing(LeagueStore.open(tmp_path / "league.db")) as store:
        for name in "abc":
            store.enter(LeagueMember(name=name, source="random"))
        with closing(sqlite3.connect(tmp_path / "league.db")) as by_hand, by_hand:
            by_hand.execute("DELETE FROM members WHERE name = 'b'")
        store.enter(LeagueMember(name="d", source="random"))
        assert [member.name for member in store.members()] == ["a", "c", "d"]


@pytest.mark.parametrize("table", ["games", "tournaments", "members"])
def test_what_a_database_refuses_is_an_error_and_not_lost(tmp_path: Path, table: str) -> None:
    """As that of another version, with a column or a rule of its own."""
    with closing(LeagueStore.open(tmp_path / "league.db")) as store:
        with closing(sqlite3.connect(tmp_path / "league.db")) as other, other:
            other.execute(f"CREATE TRIGGER rule BEFORE INSERT ON {table} BEGIN SELECT raise(ABORT, 'a rule'); END")

        def written() -> None:
            store.begin("cup", TERMS)
            store.add("cup", GAME)
            store.enter(LeagueMember(name="a", source="random"))

        with pytest.raises(ConfigError, match=r"does not take .* a rule\): is it of another version"):
            written()
