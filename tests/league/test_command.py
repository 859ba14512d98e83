"""The commands as somebody uses them, and what they refuse."""

import csv
import json
import shlex
import time
from contextlib import closing
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pytest
from pyarrow.parquet import read_table
from typer.testing import CliRunner

from mas.cli import app
from mas.core.errors import MasError
from mas.league.store import LeagueStore
from mas.league.tables import command_again

TIC_TAC_TOE = ("--game", "open_spiel:tic_tac_toe")


def mas(*words: str | Path) -> str:
    done = CliRunner().invoke(app, ["league", *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == 0, done.output
    return done.output


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """A league of one tournament: the best player, and two that draw lots."""
    place = tmp_path / "league.db"
    players = ("--player", "random", "--player", "best=minimax", "--player", "other=random")
    said = mas("run", "--league", place, *TIC_TAC_TOE, *players, "--games", "20")
    assert "60 games" in said
    return place


def rows(said: str) -> list[list[str]]:
    return [line.split() for line in said.splitlines() if line.strip()[:1] in {"1", "2", "3"}]


def test_the_ladder_has_the_best_first(place: Path) -> None:
    said = mas("table", "--league", place)
    (first, *_) = rows(said)
    assert first[1] == "best"
    assert first[3].endswith("-0"), "it never lost"
    assert first[-2:] == ["1.00", "1.00"], "Nash and alpha-rank play nobody else"
    assert "best - random" in said
    assert said.count("best - random") == 2, "in their own games, and against the others"
    assert "head to head" in said
    assert "paired test of deals, Holm" in " ".join(said.split())
    assert "93 deals, 186 games" in mas("table", "--league", place, "--precision", "0.1")


def test_tests_are_corrected_by_bonferroni_if_wanted(place: Path) -> None:
    said = mas("table", "--league", place, "--bonferroni")
    assert "Bonferroni" in said
    assert "Holm" not in said


def test_random_is_refused_where_legal_actions_are_not_listed(tmp_path: Path) -> None:
    pytest.importorskip("textarena", reason="needs the extra textarena")
    game = ("--game", "textarena:KuhnPoker-v0-short-raw")
    with pytest.raises(MasError, match=r"random cannot play .*does not list its legal actions.*openai:MODEL@URL"):
        mas("run", "--league", tmp_path / "x.db", *game, "--player", "a=random", "--player", "b=random")
    assert not list(tmp_path.iterdir())


def test_two_players_are_compared(tmp_path: Path) -> None:
    said = mas(
        "run", "--league", tmp_path / "x.db", *TIC_TAC_TOE, "--player", "random", "--player", "best=minimax",
        "--games", "40",
    )  # fmt: skip
    line = next(line for line in said.splitlines() if "best - random" in line)
    assert float(line.split()[-1]) < 0.001, line
    assert "against the others" not in said, "there are none"


def test_going_on_plays_nothing_twice(place: Path) -> None:
    before = mas("table", "--league", place)
    again = mas(
        "run", "--league", place, *TIC_TAC_TOE, "--player", "random", "--player", "best=minimax",
        "--player", "other=random", "--games", "20",
    )  # fmt: skip
    assert rows(again) == rows(before)


@pytest.mark.parametrize("words", [("table",), ("match",), ("match", "0/0/best/random"), ("export", "--out", "{out}")])
def test_a_league_is_closed_when_a_command_ends(words: tuple[str, ...], place: Path, tmp_path: Path) -> None:
    left = sorted(path.name for path in place.parent.iterdir())
    assert left == ["league.db"], "no log beside it after mas league run"
    mas(*(word.format(out=tmp_path / "out") for word in words), "--league", place)
    assert sorted(path.name for path in place.parent.glob("league.db*")) == ["league.db"]


def test_a_ladder_can_go_by_payoff(tmp_path: Path) -> None:
    place = tmp_path / "x.db"
    words = ("--league", place, "--order", "payoff")
    players = ("--player", "solved=cfr:100", "--player", "random", "--player", "other=random")
    said = mas("run", *words, "--game", "open_spiel:kuhn_poker", *players, "--games", "400")
    paid = [float(row[4]) for row in rows(said)[:3]]
    assert paid == sorted(paid, reverse=True)
    assert rows(said)[0][1] == "solved"
    assert "payoff per game with Student's 95% interval" in " ".join(said.split())
    low, high = (float(rows(said)[0][place].strip("()")) for place in (5, 7))
    assert low < paid[0] < high
    mas("export", *words, "--out", tmp_path / "out")
    ladder = list(csv.DictReader((tmp_path / "out" / "ladder.csv").read_text().splitlines()))
    assert [row["player"] for row in ladder] == [row[1] for row in rows(said)[:3]]
    assert float(ladder[0]["payoff_low"]) == pytest.approx(low, abs=0.005)


@pytest.mark.parametrize("game", ["open_spiel:tic_tac_toe", "two_player:kuhn_poker"])
def test_a_thousand_scripted_games_take_a_minute_at_most(game: str, tmp_path: Path) -> None:
    """It is some seconds on two cores; the bound allows for cores that are busy."""
    began = time.perf_counter()
    mas("run", "--league", tmp_path / "x.db", "--game", game, "--player", "a=random", "--player", "b=random",
        "--games", "1000")  # fmt: skip
    assert time.perf_counter() - began < 60


def test_games_are_listed_and_told(place: Path) -> None:
    listed = mas("match", "--league", place, "--between", "best,random").splitlines()
    assert len(listed) == 20
    number = listed[0].split("\t")[0]
    told = mas("match", number, "--league", place)
    assert told.startswith("player_0: best\nplayer_1: random\n\n...\n...\n...\n")
    assert "best got" in told


DRAWN = tuple(f"{name}.{kind}" for name in ("ladder", "win_rates", "payoffs") for kind in ("svg", "png"))
BESIDE = ("games.jsonl", "ladder.csv", "payoff.csv", "ladder.parquet", "payoff.parquet", *DRAWN)


class Closed(HTMLParser):
    """Every tag is closed, nothing is loaded, nothing runs."""

    VOID = ("meta",)

    def __init__(self) -> None:
        super().__init__()
        self.open, self.figures = list[str](), 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"script", "link", "img"}
        assert tag != "caption" or self.open[-1] == "table"
        places = [value or "" for name, value in attrs if name in ("src", "href")]
        assert all(place.startswith("#") or place in BESIDE for place in places)
        self.figures += tag == "figure"
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_export_has_all_games_and_a_page_by_itself(place: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    files = mas("export", "--league", place, "--out", out, "--replays", "1").splitlines()
    assert [Path(file).name for file in files] == [*BESIDE, "index.html"]
    games = [json.loads(line) for line in (out / "games.jsonl").read_text().splitlines()]
    assert len(games) == 60
    ladder = list(csv.DictReader((out / "ladder.csv").read_text().splitlines()))
    assert ladder[0]["player"] == "best"
    assert sum(float(row["points"]) for row in ladder) == 60
    pairs = (out / "payoff.csv").read_text().splitlines()
    payoff = {(row["player"], row["opponent"]): row for row in csv.DictReader(pairs)}
    assert payoff["best", "random"]["games"] == "20"
    assert float(payoff["best", "random"]["mean"]) == -float(payoff["random", "best"]["mean"]) > 0.5
    for kind in ("ladder", "payoff"):
        stored = read_table(out / f"{kind}.parquet").to_pylist()
        written = list(csv.DictReader((out / f"{kind}.csv").read_text().splitlines()))
        assert [{name: "" if cell is None else str(cell) for name, cell in row.items()} for row in stored] == written
    for name in DRAWN:
        content = (out / name).read_bytes()
        assert content.startswith(b"\x89PNG") if name.endswith("png") else b">best<" in content
    page = Closed()
    page.feed((out / "index.html").read_text())
    assert page.open == []
    assert "best − random" in (out / "index.html").read_text()
    first = {frozenset(game["players"]): game for game in reversed(games)}.values()
    assert page.figures == sum(1 + len(game["moves"]) for game in first), "a board for each move and the beginning"
    with pytest.raises(MasError, match="not an empty directory"):
        mas("export", "--league", place, "--out", out)


def test_the_command_of_the_page_plays_the_same_tournament(
    place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mas("export", "--league", place, "--out", tmp_path / "out")
    page = (tmp_path / "out" / "index.html").read_text()
    command = unescape(page.partition('<pre class="command">')[2].partition("</pre>")[0])
    monkeypatch.chdir(tmp_path)
    words = shlex.split(command)
    assert words[:2] == ["mas", "league"]
    mas(*words[2:])
    with closing(LeagueStore.read_only(place)) as one, closing(LeagueStore.read_only(tmp_path / "again.db")) as again:
        (name,) = one.tournaments()
        assert again.games(name) == one.games(name)


def test_what_no_command_plays_again_says_why() -> None:
    terms = {"game": "two_player:kuhn_poker", "games": 2, "players": {"a": "openai:m@http://x/?k=1", "b": "random"}}
    assert command_again("cup", terms).startswith("# no command plays it again: the source of a player")
    assert command_again("cup", {**terms, "challenger": "a"}).startswith("# no tournament of its own")


def test_names_of_players_cannot_become_markup(tmp_path: Path) -> None:
    place, out = tmp_path / "x.db", tmp_path / "out"
    said = mas(
        "run", "--league", place, *TIC_TAC_TOE, "--player", "<b>bold<b>=random", "--player", "[red]x=random",
        "--games", "2",
    )  # fmt: skip
    assert "[red]x" in said
    mas("export", "--league", place, "--out", out)
    assert "<b>" not in (out / "index.html").read_text()


def test_names_of_players_cannot_become_formulas(tmp_path: Path) -> None:
    place, out = tmp_path / "x.db", tmp_path / "out"
    names = ["=1+1", "+1", "-1", "@SUM(A1:A9)", "\t=1", "\uff1d1", "a=b", "'quoted"]
    players = [word for name in names for word in ("--player", f"{name}=random")]
    mas("run", "--league", place, *TIC_TAC_TOE, *players, "--games", "2")
    mas("export", "--league", place, "--out", out)
    wanted = {*(f"'{name}" for name in names[:6]), *names[6:]}
    with (out / "ladder.csv").open(newline="") as file:
        ladder = list(csv.DictReader(file))
    assert {row["player"] for row in ladder} == wanted
    assert min(float(row["payoff"]) for row in ladder) < 0, "a negative number stays one"
    with (out / "payoff.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert {row["player"] for row in rows} == {row["opponent"] for row in rows} == wanted


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("run", "--game", "open_spiel:tictactoe", "--player", "random"), "Did you mean 'tic_tac_toe'"),
        (("run", *TIC_TAC_TOE, "--player", "random"), "1 players for a game of 2"),
        (("run", *TIC_TAC_TOE, "--player", "random", "--player", "random"), "there is a player 'random' already"),
        (("run", *TIC_TAC_TOE, "--player", "a/b=random", "--player", "random"), "without '/' and ','"),
        (("run", *TIC_TAC_TOE, "--player", "random", "--player", "x=random", "--games", "3"), "a multiple of 2"),
        (
            ("table", "--league", "nowhere.db"),
            "there is no league at nowhere.db: mas league run and mas league enter make one",
        ),
        (("match", "0/0/a/b", "--between", "a,b"), "leave one of them out"),
    ],
)
def test_what_is_refused(words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MasError, match=message):
        mas(*words)
    assert not list(tmp_path.glob("league.db*"))


def test_a_refused_command_keeps_a_league_that_was_there(place: Path) -> None:
    before = place.read_bytes()
    with pytest.raises(MasError, match="has been begun with other terms"):
        mas("run", "--league", place, *TIC_TAC_TOE, "--player", "a=random", "--player", "b=random")
    assert place.read_bytes() == before


def test_a_refused_candidate_leaves_no_league(tmp_path: Path) -> None:
    with pytest.raises(MasError, match="Did you mean 'tic_tac_toe'"):
        mas("enter", "random", "--league", tmp_path / "x.db", "--game", "open_spiel:tictactoe")
    assert not list(tmp_path.iterdir())


def test_unknown_names_are_told_what_there_is(place: Path) -> None:
    with pytest.raises(MasError, match="no tournament 'cup' in this league"):
        mas("table", "--league", place, "--name", "cup")
    with pytest.raises(MasError, match=r"no player 'bets' in 'tournament'\. Did you mean 'best'"):
        mas("match", "--league", place, "--between", "bets,random")
    with pytest.raises(MasError, match="no game '0/0/best'"):
        mas("match", "0/0/best", "--league", place)
