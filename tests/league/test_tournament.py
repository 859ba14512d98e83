"""Whole tournaments: played once, told again, killed and gone on with."""

import asyncio
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mas.core.environment import Environment, Step
from mas.core.errors import ConfigError, EnvironmentFault, RewardError
from mas.league.games import open_world
from mas.league.match import Chance, Fixture, LeagueMember, PlayedGame, Player, play, replay
from mas.league.players import AtRandom, scripted
from mas.league.store import LeagueStore
from mas.league.tournament import Terms, run_tournament
from mas.scenarios.bridges import open_bridge
from mas.scenarios.matrix_games import MatrixEnvironment

TIC_TAC_TOE = "open_spiel:tic_tac_toe"
KUHN = "open_spiel:kuhn_poker"


def terms(players: Mapping[str, str], games: int = 4, rounds: int = 0, game: str = TIC_TAC_TOE) -> Terms:
    return Terms(game=game, players=players, games=games, rounds=rounds, seed=1)


async def run(store: LeagueStore, said: Terms, name: str = "cup", **more: int) -> list[PlayedGame]:
    world = open_world(said.game)
    players = {player: scripted(source, world) for player, source in said.players.items()}
    return await run_tournament(name, said, store, world.open, players, **more)


RANDOMS = dict.fromkeys("abcd", "random")


async def test_all_fixtures_are_played_once_and_none_twice(tmp_path: Path) -> None:
    store, told = LeagueStore.open(tmp_path / "league.db"), list[tuple[int, int]]()
    games = await run(store, terms(RANDOMS))
    assert len(games) == 6 * 4
    players: dict[str, Player] = {name: AtRandom() for name in RANDOMS}
    again = await run_tournament(
        "cup",
        terms(RANDOMS),
        store,
        lambda: open_bridge(TIC_TAC_TOE),
        players,
        progress=lambda done, of: told.append((done, of)),
    )
    assert again == games
    assert told == [(24, 24)], "nothing was left to play"


@pytest.mark.parametrize("rounds", [0, 2])
async def test_going_on_with_players_named_in_another_order_plays_nothing_twice(tmp_path: Path, rounds: int) -> None:
    store = LeagueStore.open(tmp_path / "league.db")
    games = await run(store, terms(RANDOMS, rounds=rounds))
    assert await run(store, terms(dict.fromkeys("cdba", "random"), rounds=rounds)) == games


@pytest.mark.parametrize("rounds", [0, 3])
async def test_games_do_not_depend_on_how_many_are_on(tmp_path: Path, rounds: int) -> None:
    one = await run(LeagueStore.open(tmp_path / "one.db"), terms(RANDOMS, rounds=rounds), at_once=1)
    many = await run(LeagueStore.open(tmp_path / "many.db"), terms(RANDOMS, rounds=rounds), at_once=16)
    assert one == many
    assert len(one) == (24 if rounds == 0 else 3 * 2 * 4)


async def test_minimax_never_loses_and_draws_itself(tmp_path: Path) -> None:
    games = await run(
        LeagueStore.open(tmp_path / "x.db"), terms({"best": "minimax", "twin": "minimax", "luck": "random"}, 20)
    )
    for game in games:
        got = dict(zip(game.players, game.returns, strict=True))
        assert got.get("best", 0.0) >= 0
        if "luck" not in got:
            assert set(got.values()) == {0.0}
    assert sum(dict(zip(game.players, game.returns, strict=True)).get("luck", 0.0) for game in games) < -25


async def test_other_terms_of_the_same_name_are_refused(tmp_path: Path) -> None:
    store = LeagueStore.open(tmp_path / "x.db")
    await run(store, terms(RANDOMS, 2))
    with pytest.raises(ConfigError, match="begun with other terms \\(games: 2, now 4\\)"):
        await run(store, terms(RANDOMS, 4))
    with pytest.raises(ConfigError, match=r"no tournament 'pup' in this league\. Did you mean 'cup'"):
        store.terms("pup")
    assert store.terms("cup")["game"] == TIC_TAC_TOE


@pytest.mark.parametrize(
    ("names", "more", "message"),
    [
        # a/b against c, and a against b/c, would be one game: 0/0/a/b/c
        (("a", "a/b", "b/c", "c"), {}, "player 'a/b': '/' stands between names"),
        (("a", "b"), {"at_once": 0}, "at_once=0: one game at least"),
        (("a", "b"), {"rounds": -1}, "rounds=-1: write 1 or more"),
    ],
)
async def test_what_would_leave_games_out_is_refused(
    tmp_path: Path, names: tuple[str, ...], more: dict[str, int], message: str
) -> None:
    store, rounds = LeagueStore.open(tmp_path / "x.db"), more.pop("rounds", 0)
    with pytest.raises(ConfigError, match=message):
        await run(store, terms(dict.fromkeys(names, "random"), rounds=rounds), **more)
    assert not store.tournaments()


def test_what_two_processes_begin_or_let_in_at_once_is_there_once(tmp_path: Path) -> None:
    """Ten times: now and then one of them is quicker by more than the other needs."""
    LeagueStore.open(tmp_path / "x.db").close()
    one, other = LeagueStore.open(tmp_path / "x.db"), LeagueStore.open(tmp_path / "x.db")
    with ThreadPoolExecutor(2) as pool:
        for number in range(10):
            both = threading.Barrier(2)

            def work(store: LeagueStore, name: str, number: int = number, both: threading.Barrier = both) -> None:
                both.wait()
                store.begin(f"cup {number}", {"game": "g", "players": {"a": "random"}})
                both.wait()
                store.enter(LeagueMember(name=f"{name} {number}", source="random"))

            for done in [pool.submit(work, one, "a"), pool.submit(work, other, "b")]:
                done.result()
    assert len(one.tournaments()) == 10
    assert {member.name for member in one.members()} == {f"{name} {number}" for name in "ab" for number in range(10)}
    with pytest.raises(ConfigError, match="begun with other terms"):
        other.begin("cup 0", {"game": "g", "players": {"b": "random"}})
    one.close()
    other.close()


async def test_a_game_is_told_again_move_by_move(tmp_path: Path) -> None:
    game = (await run(LeagueStore.open(tmp_path / "x.db"), terms(RANDOMS)))[0]
    told = replay(open_bridge(TIC_TAC_TOE), game)
    assert told[0] == "...\n...\n..."
    assert len(told) == 1 + len(game.moves)
    assert [board.count("x") + board.count("o") for board in told] == list(range(len(told)))


async def test_a_game_that_ends_otherwise_is_noticed(tmp_path: Path) -> None:
    game = (await run(LeagueStore.open(tmp_path / "x.db"), terms(RANDOMS)))[0]
    with pytest.raises(EnvironmentFault, match="the game has changed since"):
        replay(open_bridge(TIC_TAC_TOE), PlayedGame(**{**_fields(game), "returns": (9.0, -9.0)}))


def _fields(game: PlayedGame) -> dict[str, object]:
    return {name: getattr(game, name) for name in game.__struct_fields__}


async def test_players_of_a_deals_mirrored_games_draw_for_themselves() -> None:
    drawn = set()

    class Draws:
        async def move(self, asked: Chance) -> str:
            drawn.add(asked.random.random())
            return (asked.legal or ("",))[0]

    players: dict[str, Player] = {"a": Draws(), "b": Draws()}
    for _ in range(2):
        games = [
            await play(open_bridge(TIC_TAC_TOE), Fixture(seated, 3, 0, number), players)
            for number, seated in enumerate((("a", "b"), ("b", "a")))
        ]
    assert len(drawn) == sum(len(game.moves) for game in games), "one number of each move, the same when played again"


class Nonsense:
    async def move(self, asked: Chance) -> str:
        return "to Mars"


@pytest.mark.parametrize("name", [TIC_TAC_TOE, KUHN])
async def test_illegal_moves_are_counted_and_forfeit_a_zero_sum_game(name: str) -> None:
    players: dict[str, Player] = {"bad": Nonsense(), "good": AtRandom()}
    for seated in (("bad", "good"), ("good", "bad")):
        game = await play(open_bridge(name), Fixture(seated, 3, 0, 0), players)
        assert game.illegal == {"bad": 3}
        assert sum(game.returns) == 0
        assert game.returns[seated.index("bad")] < 0


async def test_seats_of_a_game_at_once_are_asked_at_once() -> None:
    together: list[set[str]] = [set()]

    class Waits:
        def __init__(self, name: str) -> None:
            self.name = name

        async def move(self, asked: Chance) -> str:
            together[-1].add(self.name)
            await asyncio.sleep(0)
            assert together[-1] == {"one", "two"}, "both have been asked before either has answered"
            assert asked.legal is not None
            return asked.legal[0]

    game = MatrixEnvironment("rock_paper_scissors")
    found = await play(game, Fixture(("one", "two"), 3, 0, 0), {"one": Waits("one"), "two": Waits("two")})
    assert {move.seat for move in found.moves} == set(game.spec.seats)


async def test_a_player_that_searches_changes_nothing() -> None:
    class Digs:
        async def move(self, asked: Chance) -> str:
            assert asked.legal is not None
            copy: Environment = asked.copy()
            copy.step({asked.seat: asked.legal[-1]})
            return asked.legal[0]

    game = await play(open_bridge(TIC_TAC_TOE), Fixture(("d", "e"), 3, 0, 0), {"d": Digs(), "e": Digs()})
    assert [move.text for move in game.moves[:3]] == ["x(0,0)", "o(0,1)", "x(0,2)"]


async def test_a_game_that_pays_no_number_is_an_error_and_not_a_game_that_is_missing() -> None:
    class Pays(MatrixEnvironment):
        def step(self, actions: Mapping[str, str]) -> Step:
            return Step(rewards={seat: {"payoff": float("nan")} for seat in super().step(actions).rewards})

    game, players = Pays("rock_paper_scissors"), {name: AtRandom() for name in "ab"}
    with pytest.raises(RewardError, match="game '0/0/a/b', paid payoff=nan"):
        await play(game, Fixture(("a", "b"), 3, 0, 0), players)


async def test_an_error_of_a_player_ends_the_tournament_and_keeps_what_was_played(tmp_path: Path) -> None:
    class Breaks:
        left = 3

        async def move(self, asked: Chance) -> str:
            self.left -= 1
            if not self.left:
                raise EnvironmentFault("out of ideas")
            return asked.random.choice(asked.legal or ("",))

    store = LeagueStore.open(tmp_path / "x.db")
    players: dict[str, Player] = {**{name: AtRandom() for name in "abc"}, "d": Breaks()}
    with pytest.raises(EnvironmentFault, match="out of ideas"):
        await run_tournament("cup", terms(RANDOMS), store, lambda: open_bridge(TIC_TAC_TOE), players, at_once=1)
    kept = store.games("cup")
    assert 0 < len(kept) < 24
    assert (await run(store, terms(RANDOMS)))[: len(kept)] != []
    assert len(store.games("cup")) == 24


@pytest.mark.parametrize(
    ("source", "game", "message"),
    [
        ("minmax", TIC_TAC_TOE, "Did you mean 'minimax'"),
        ("minimax", KUHN, "minimax cannot play 'kuhn_poker'"),
        ("cfr", "pettingzoo:classic/tictactoe_v3", "cfr plays OpenSpiel's games only"),
        ("cfr:many", KUHN, "write cfr:NUMBER"),
        ("cfr:0", KUHN, "at least one iteration"),
        ("mcts:0", KUHN, "at least one simulation"),
        ("cfr", "open_spiel:matrix_pd", "seats that move in turn"),
    ],
)
def test_players_that_cannot_play_are_refused(source: str, game: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        scripted(source, open_world(game))


async def test_a_solved_game_of_kuhn_is_worth_what_theory_says(tmp_path: Path) -> None:
    games = await run(
        LeagueStore.open(tmp_path / "x.db"), terms({"one": "cfr:1000", "two": "cfr:1000"}, 2000, game=KUHN)
    )
    first = sum(game.returns[0] for game in games) / len(games)
    assert first == pytest.approx(-1 / 18, abs=0.08), "the first seat loses 1/18 in any equilibrium"


def test_members_descend_from_members(tmp_path: Path) -> None:
    store = LeagueStore.open(tmp_path / "x.db")
    store.enter(LeagueMember(name="first", source="run:a@0"))
    second = LeagueMember(name="second", source="run:a@20", parent="first", step=20, notes={"won": 0.7})
    store.enter(second)
    assert [member.name for member in store.members()] == ["first", "second"]
    assert store.members()[1] == second
    with pytest.raises(ConfigError, match="names are never used again"):
        store.enter(second)
    with pytest.raises(ConfigError, match="no member 'frist' to descend from"):
        store.enter(LeagueMember(name="third", source="run:a@40", parent="frist"))


def test_what_is_no_league_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "notes.txt"
    path.write_text("this is no database, it is a text that somebody wrote" * 9)
    with pytest.raises(ConfigError, match="cannot be opened"):
        LeagueStore.open(path)
    assert path.read_text().startswith("this is no database")


def test_a_league_may_be_opened_by_many_at_once(tmp_path: Path) -> None:
    for number in range(8):
        with ThreadPoolExecutor(8) as pool:
            for store in pool.map(LeagueStore.open, [tmp_path / f"{number}.db"] * 8):
                store.close()


KILLED = """
import asyncio, sys, time
from mas.league.players import AtRandom
from mas.league.store import LeagueStore
from mas.league.tournament import Terms, run_tournament
from mas.scenarios.bridges import open_bridge
names = {name: "random" for name in "abcde"}
terms = Terms(game="open_spiel:tic_tac_toe", players=names, games=100, seed=1)
players = {name: AtRandom() for name in names}
store, slowly = LeagueStore.open(sys.argv[1]), lambda done, of: time.sleep(0.005)
asyncio.run(run_tournament("cup", terms, store, lambda: open_bridge(terms.game), players, progress=slowly))
"""


@pytest.mark.nightly(of=16)
def test_a_thousand_games_survive_being_killed(tmp_path: Path) -> None:
    """SIGKILL in the middle, twice; then the same table as of a tournament that nobody disturbed."""
    place = tmp_path / "league.db"
    for wanted in (100, 400):
        process = subprocess.Popen([sys.executable, "-c", KILLED, str(place)])
        deadline = time.monotonic() + 120
        while _kept(place) < wanted and process.poll() is None:
            assert time.monotonic() < deadline, "the tournament does not get on"
            time.sleep(0.02)
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "it was killed while it played"
        assert wanted <= _kept(place) < 1000
    names = dict.fromkeys("abcde", "random")
    resumed = asyncio.run(run(LeagueStore.open(place), terms(names, 100)))
    undisturbed = asyncio.run(run(LeagueStore.open(tmp_path / "other.db"), terms(names, 100)))
    assert len(resumed) == 1000
    assert resumed == undisturbed


def _kept(place: Path) -> int:
    return len(LeagueStore.open(place).ids("cup")) if place.exists() and place.stat().st_size else 0
