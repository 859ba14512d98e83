"""The pool: who is let in, from whom they descend, what is kept of them, and what they forget."""

from collections.abc import Sequence
from io import StringIO
from pathlib import Path
from shutil import copytree, rmtree
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from mas.cli import app
from mas.config.trust import remember
from mas.core.errors import ConfigError, MasError
from mas.league.match import LeagueMember, PlayedGame
from mas.league.pool import ancestors, best_of, judge, points_at_gate
from mas.league.store import LeagueStore
from mas.league.stored_sources import accesses_of_player
from mas.league.tables import lineage
from mas.league.tournament import gauntlet
from mas.observe.significance import mean_interval, wilson

TIC_TAC_TOE = ("--game", "open_spiel:tic_tac_toe")


def mas(*words: str | Path, code: int = 0) -> str:
    done = CliRunner().invoke(app, ["league", *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code == code, done.output
    return " ".join(done.output.split())


def games_of(results: Sequence[tuple[str, float]], *, of_deal: int = 1) -> list[PlayedGame]:
    """Games of `new` against somebody, with what it got; seats in turn, `of_deal` games in a row of one deal."""
    found = []
    for number, (other, got) in enumerate(results):
        players, returns = (("new", other), (got, -got)) if number % 2 else ((other, "new"), (-got, got))
        found.append(
            PlayedGame(
                id=str(number),
                round=0,
                number=number,
                seed=number // of_deal,
                players=players,
                returns=returns,
                moves=(),
            )
        )
    return found


def test_the_lower_bound_decides_and_not_the_rate() -> None:
    few = games_of([("old", 1.0)] * 6 + [("old", -1.0)] * 4)
    many = games_of(([("old", 1.0)] * 6 + [("old", -1.0)] * 4) * 20)
    one, other = (judge("new", games, best="old") for games in (few, many))
    assert one.mean == other.mean == 0.6
    assert one.interval == wilson(6, 10)
    assert (one.passes, other.passes) == (False, True), "0.60 of 10 games may be luck, of 200 it is not"
    assert (one.is_best, other.is_best) == (False, True)
    assert judge("new", many, best="old", threshold=0.55).passes is False
    assert judge("new", many, best="old", threshold=0.55).is_best, "better than the best, and still not let in"
    assert judge("new", many, best="old", confidence=0.9999).passes is False


@pytest.mark.parametrize("measure", ["points", "payoff"])
def test_the_games_of_a_deal_are_one_observation(measure: Any) -> None:
    """Deals that one of two equals wins from both seats: 15 of 25 or more are luck in a fifth of all gates."""
    won = [("old", 1.0)] * 30 + [("old", -1.0)] * 20
    found = judge("new", games_of(won, of_deal=2), best="old", measure=measure, confidence=0.8)
    deals = [1.0] * 15 + [-1.0] * 10
    assert found.games == 50
    assert found.interval == (wilson(15, 25, 0.8) if measure == "points" else mean_interval(deals, 0.8))
    assert not found.passes
    assert judge("new", games_of(won), best="old", measure=measure, confidence=0.8).passes, "as 50 deals it would"


def test_a_draw_is_half_a_point() -> None:
    found = judge("new", games_of([("old", 0.0)] * 8), best="old")
    assert found.mean == 0.5
    assert not found.passes


def test_payoffs_say_something_else_than_points() -> None:
    """Wins of 1 more often, losses of 3: fine by points, not by payoff."""
    games = games_of(([("old", 1.0)] * 7 + [("old", -3.0)] * 3) * 20)
    points, payoff = (judge("new", games, best="old", measure=measure) for measure in ("points", "payoff"))
    assert (points.mean, payoff.mean) == (0.7, pytest.approx(-0.2))
    assert (points.passes, payoff.passes) == (True, False)
    assert payoff.against == {"old": 0.7}
    assert judge("new", games, best="old", measure="payoff", threshold=-1).passes


def test_who_plays_all_is_the_best_by_the_games_against_the_best_alone() -> None:
    games = games_of([("weak", 1.0)] * 100 + [("old", 1.0)] * 10 + [("old", -1.0)] * 10)
    found = judge("new", games, best="old")
    assert found.passes
    assert not found.is_best
    assert found.against == {"weak": 1.0, "old": 0.5}


def test_nobody_to_play_against_lets_the_first_in() -> None:
    found = judge("new", [], best=None)
    assert found.passes
    assert found.notes() == {"best": 1.0}


def member(name: str, parent: str | None = None, **notes: float) -> LeagueMember:
    return LeagueMember(name=name, source="random", parent=parent, notes=notes)


def test_the_best_is_the_last_that_was_better_than_the_best() -> None:
    assert best_of([]) is None
    assert best_of([member("a"), member("b")]) == "a"
    assert best_of([member("a", best=1), member("b", best=1), member("c", best=0)]) == "b"


def test_lineage_goes_back_to_the_first() -> None:
    tree = [member("a"), member("b", "a"), member("c", "a"), member("d", "b")]
    assert [one.name for one in ancestors(tree, "d")] == ["b", "a"]
    assert ancestors(tree, "a") == []
    with pytest.raises(ConfigError, match="no member 'e'"):
        ancestors(tree, "e")


def test_a_lineage_can_be_read_on_80_columns() -> None:
    gate = {"payoff": -0.2, "low": -0.67, "high": 0.27, "games": 20.0}
    late = LeagueMember(name="late", source="run:pool.members/late", parent="early", step=20, notes=gate)
    console = Console(width=80, file=StringIO())
    with console.capture() as shown:
        console.print(lineage([member("early"), late], "two_player:kuhn_poker"))
    rows = [line.split() for line in shown.get().splitlines() if line.strip(" ─")]
    assert ["member", "parent", "generation", "step", "gate", "games", "source"] in rows
    assert rows[-3][:-1] == ["late", "early", "1", "20", "payoff", "-0.20", "20"]
    assert rows[-3][-1] + rows[-2][-1] == "run:pool.members/late"


def test_a_gauntlet_is_fair_and_has_no_other_games() -> None:
    fixtures = gauntlet("new", ("a", "b"), games=4, seed=1)
    assert len(fixtures) == 8
    for other in ("a", "b"):
        own = [fixture for fixture in fixtures if other in fixture.players]
        assert [fixture.players for fixture in own] == [("new", other), (other, "new")] * 2
        assert own[0].seed == own[1].seed != own[2].seed == own[3].seed, "each deal from both seats"


def test_the_interval_of_a_mean_is_students() -> None:
    # t(0.975, 3) = 3.1824, standard deviation of 1..4 = 1.2910.
    found = mean_interval([1.0, 2.0, 3.0, 4.0])
    assert (found.low, found.high) == pytest.approx((2.5 - 3.1824 * 1.2910 / 2, 2.5 + 3.1824 * 1.2910 / 2), abs=1e-3)
    assert mean_interval([1.0]).low == -float("inf")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    """Chance, then perfect play, which is the best."""
    place = tmp_path / "league.db"
    assert "luck is the first member." in mas("enter", "random", "--name", "luck", *TIC_TAC_TOE, "--league", place)
    said = mas("enter", "minimax", "--parent", "luck", "--games", "40", "--league", place)
    assert said.startswith("minimax is a member, the best one:")
    return place


def test_only_who_is_surely_better_comes_in_and_the_league_says_why(place: Path) -> None:
    said = mas("enter", "random", "--name", "late", "--games", "40", "--league", place, code=1)
    assert said.startswith("late is not let in:")
    assert "against minimax; the lower bound must exceed 0.5" in said
    assert [one.name for one in LeagueStore.open(place).members()] == ["luck", "minimax"]
    (_, best) = LeagueStore.open(place).members()
    assert best.parent == "luck"
    assert best.notes["games"] == 40
    assert best.notes["low"] > 0.5 == best.notes["threshold"]
    assert points_at_gate(best, "luck") == best.notes["points"]
    told = mas("members", "--league", place)
    assert "2 members: open_spiel:tic_tac_toe" in told
    assert "* minimax luck 1 0" in told


def test_all_members_can_be_the_gate_and_can_play_a_tournament(place: Path) -> None:
    said = mas(
        "enter",
        "mcts:30",
        "--name",
        "tree",
        "--against",
        "all",
        "--games",
        "20",
        "--threshold",
        "0.3",
        "--league",
        place,
    )
    assert "tree is a member:" in said, "not the best one"
    assert "in 40 games against luck, minimax; the lower bound must exceed 0.3" in said
    told = mas("run", "--members", "--player", "other=random", "--games", "4", "--league", place)
    assert "open_spiel:tic_tac_toe, 24 games" in told
    assert mas("table", "--league", place).startswith("tournament:"), "gates are not in the way of its name"


def test_the_page_of_a_gate_says_who_played_whom(place: Path, tmp_path: Path) -> None:
    mas("export", "--name", "gate: minimax", "--replays", "0", "--out", tmp_path / "page", "--league", place)
    page = " ".join((tmp_path / "page" / "index.html").read_text().split())
    assert "40 games, minimax against each of the others, 40 games of a pairing" in page


def test_a_tournament_of_members_plays_other_games_than_those_that_let_them_in(place: Path) -> None:
    """With the same seed: who came in by luck would have the same luck again."""
    mas("run", "--members", "--games", "40", "--league", place)
    store = LeagueStore.open(place)
    gate, tournament = (store.games(name) for name in ("gate: minimax", "tournament"))
    assert {*gate[0].players} == {*tournament[0].players} == {"luck", "minimax"}
    assert not {game.seed for game in gate} & {game.seed for game in tournament}


def test_what_was_forgotten_is_measured_against_all_ancestors(place: Path) -> None:
    """Perfect play, then chance as its child: it has forgotten all."""
    mas(
        "enter",
        "random",
        "--name",
        "fool",
        "--parent",
        "minimax",
        "--threshold",
        "-1",
        "--games",
        "10",
        "--league",
        place,
    )
    said = mas("forgetting", "--games", "40", "--league", place)
    assert said.startswith("fool against its ancestors")
    rows = said.partition("minimax 1 ")[2].split()
    assert float(rows[0]) < 0.3, "points against its parent"
    luck = said.partition("luck 2 ")[2].split()
    minimax_at_gate = LeagueStore.open(place).members()[1].notes["points"]
    assert luck[3] == f"{minimax_at_gate:.2f}", "what the child of luck, minimax, had when it came"
    assert float(luck[4]) == pytest.approx(minimax_at_gate - float(luck[0]), abs=0.011)
    assert float(luck[4]) > 0.2


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("enter", "minimax"), "has a member 'minimax' already"),
        (("enter", "random", "--parent", "lukc"), "Did you mean 'luck'"),
        (("enter", "random", "--against", "lukc"), "Did you mean 'luck'"),
        (("enter", "random", "--games", "3"), "choose a multiple of 2"),
        (("enter", "random", "--game", "open_spiel:hex"), "members of this league play open_spiel:tic_tac_toe"),
        (("enter", "random", "--name", "a/b"), "without '/' and ','"),
        (("enter", "random", "--name", "."), "no directory can be called so"),
        (("enter", "random", "--name", ".."), "no directory can be called so"),
        (("run", "--members", "--player", "luck=random"), "a member has that name"),
        (("forgetting", "--member", "luck"), "descends from nobody"),
    ],
)
def test_what_the_pool_refuses(place: Path, words: tuple[str, ...], message: str) -> None:
    with pytest.raises(MasError, match=message):
        mas(*words, "--league", place)
    assert len(LeagueStore.open(place).members()) == 2


def test_an_empty_league_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(MasError, match="there is no league"):
        mas("members", "--league", tmp_path / "x.db")
    with pytest.raises(MasError, match="--game is needed: random plays any"):
        mas("enter", "random", "--league", tmp_path / "x.db")
    assert not (tmp_path / "x.db").exists()
    LeagueStore.open(tmp_path / "x.db").close()
    with pytest.raises(MasError, match="has no members"):
        mas("forgetting", "--league", tmp_path / "x.db")
    with pytest.raises(MasError, match="--game says what is played"):
        mas("run", "--player", "random", "--league", tmp_path / "x.db")


def test_a_snapshot_outlives_its_run_and_is_named_by_its_step(trained: Path, tmp_path: Path) -> None:
    place, run = tmp_path / "pool.db", tmp_path / "kuhn"
    copytree(trained, run)
    assert "kuhn-2 is the first member" in mas("enter", f"{run}@2", "--league", place)
    again = ("enter", run, "--parent", "kuhn-2", "--games", "20", "--league", place)
    assert "kuhn-4 is not let in" in mas(*again, "--threshold", "1", code=1)
    assert not (tmp_path / "pool.members" / "kuhn-4").exists(), "nothing is kept of who is not let in"
    assert "kuhn-4 is a member" in mas(*again, "--threshold", "-1")
    rmtree(run)
    names = [(one.name, one.step, one.parent) for one in LeagueStore.open(place).members()]
    assert names == [("kuhn-2", 2, None), ("kuhn-4", 4, "kuhn-2")]
    kept = {
        str(file.relative_to(tmp_path / "pool.members")) for file in (tmp_path / "pool.members").rglob("*.safetensors")
    }
    assert kept == {f"kuhn-{step}/adapters/shared/adapter_model.safetensors" for step in (2, 4)}
    assert "two_player:kuhn_poker, 60 games" in mas(
        "run", "--members", "--player", "solved=cfr:50", "--games", "20", "--league", place
    )
    assert "kuhn-4 against its ancestors" in mas("forgetting", "--games", "10", "--league", place)


def test_another_snapshot_of_an_old_name_plays_its_own_games(trained: Path, tmp_path: Path) -> None:
    """A refused candidate's games are not those of the next one of its name."""
    place = tmp_path / "pool.db"
    mas("enter", f"{trained}@2", "--name", "first", "--league", place)
    for step in (2, 4):
        words = ("enter", f"{trained}@{step}", "--name", "next", "--games", "20", "--threshold", "1", "--league", place)
        mas(*words, code=1)
    gates = [name for name in LeagueStore.open(place).tournaments() if name.startswith("gate: next")]
    assert len(gates) == 2
    assert all(len(LeagueStore.open(place).games(name)) == 20 for name in gates)


@pytest.mark.nightly(of=16)
def test_dozens_of_snapshots_play_on_one_base(trained: Path, tmp_path: Path, monkeypatch: Any) -> None:
    from mas.league import trained_players

    opened, open_base = [], trained_players.open_base
    monkeypatch.setattr(trained_players, "open_base", lambda *given: opened.append(given) or open_base(*given))
    place = tmp_path / "pool.db"
    mas("enter", f"{trained}@2", "--name", "m00", "--league", place)
    for number in range(1, 24):
        LeagueStore.open(place).enter(LeagueMember(name=f"m{number:02}", source=f"run:{trained}@{2 + number % 2 * 2}"))
    remember(accesses_of_player("m", f"run:{trained}", str(place)))
    opened.clear()
    said = mas(
        "enter", f"{trained}@4", "--against", "all", "--games", "2", "--threshold", "-1", "--league", place,
    )  # fmt: skip
    assert "in 48 games against m00, m01" in said
    assert len(opened) == 1
