"""Games in worker processes: those of one process, whoever dies; and what is refused before any game."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest
from cluster_cases import is_running, needs_ray
from loopback import served
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from typer.testing import CliRunner

import mas
from mas.cli import app
from mas.cluster.handle import Handle
from mas.config.options import WorkerOptions
from mas.config.servers import RunSource
from mas.config.stored_run import load_run_config
from mas.core.errors import ClusterError, ConfigError, MasError, MissingPackage
from mas.league.games import open_world
from mas.league.match import Fixture, PlayedGame
from mas.league.match_worker import MatchSetup, make
from mas.league.players import pinned, play_games
from mas.league.store import LeagueStore
from mas.league.tournament import Terms
from mas.league.trained_players import run_digest
from mas.league.workers import logs_beside, played_by_workers, worker_options

pytest.importorskip("pyspiel")
TIC_TAC_TOE, KUHN = "open_spiel:tic_tac_toe", "two_player:kuhn_poker"
SEARCH = {"a": "mcts:20", "b": "random", "c": "mcts:5"}
TWO = WorkerOptions(workers=2, start_s=300.0, cpus=4)


def terms(players: Mapping[str, str], games: int = 6, rounds: int = 0, game: str = TIC_TAC_TOE) -> Terms:
    return Terms(game=game, players=pinned(players), games=games, rounds=rounds, seed=4)


async def alone(place: Path, said: Terms) -> list[PlayedGame]:
    return await play_games("cup", said, LeagueStore.open(place), open_world(said.game), 8)


async def spread(place: Path, said: Terms, options: WorkerOptions = TWO, at_once: int = 8) -> list[PlayedGame]:
    store, logs = LeagueStore.open(place), logs_beside(str(place))
    return await played_by_workers("cup", said, store, open_world(said.game), at_once, options, logs)


def watched(monkeypatch: pytest.MonkeyPatch, meets: Callable[[Handle, Fixture], None]) -> None:
    """Call `meets` whenever a game is given to a worker."""
    call = Handle.call

    async def seen(handle: Handle, method: str, payload: bytes = b"", **options: Any) -> bytes:
        if method == "play":
            meets(handle, msgspec.json.decode(payload, type=Fixture))
        return await call(handle, method, payload, **options)

    monkeypatch.setattr(Handle, "call", seen)


@pytest.mark.matrix("rounds", [0, 2], default=[0])
async def test_workers_play_the_games_of_one_process_also_if_one_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rounds: int
) -> None:
    said, given, pids = terms(SEARCH, rounds=rounds), list[str](), set[int]()

    def meets(handle: Handle, fixture: Fixture) -> None:
        given.append(fixture.id)
        assert handle.pid is not None
        pids.add(handle.pid)
        if len(given) == 5:
            os.kill(handle.pid, signal.SIGKILL)

    expected = await alone(tmp_path / "one.db", said)
    watched(monkeypatch, meets)
    games = await spread(tmp_path / "two.db", said)
    assert games == expected
    assert {game.id for game in games} == set(given), "each was given to a worker"
    assert len(games) < len(given), "and some of them again"
    assert len(pids) == 3
    assert not [pid for pid in pids if is_running(pid)]


@pytest.mark.nightly(of=16)
async def test_a_game_that_kills_every_worker_is_named_and_the_others_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Up to eight games are lost with it each time; the last time it is alone."""
    said, deaths = terms({"a": "random", "b": "random"}, 8), list[str]()

    def meets(handle: Handle, fixture: Fixture) -> None:
        if fixture.number == 2:
            deaths.append(fixture.id)
            assert handle.pid is not None
            os.kill(handle.pid, signal.SIGKILL)

    place = tmp_path / "x.db"
    with monkeypatch.context() as patch:
        watched(patch, meets)
        with pytest.raises(ClusterError, match=r"game '2/2/a/b': 3 workers were lost with it.*x\.workers"):
            await spread(place, said)
    assert deaths == ["2/2/a/b"] * 3
    kept = LeagueStore.open(place).games("cup")
    assert {"2/2/a/b"} <= {game.id for game in await alone(place, said)} - {game.id for game in kept}
    assert LeagueStore.open(place).games("cup") == await alone(tmp_path / "one.db", said)


async def test_what_is_left_of_a_tournament_is_played_by_workers_and_nothing_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said, given, place = terms({"a": "random", "b": "random"}, 8), list[str](), tmp_path / "x.db"
    expected = await alone(tmp_path / "one.db", said)
    store = LeagueStore.open(place)
    store.begin("cup", said.as_dict())
    for game in expected[:7]:
        store.add("cup", game)
    watched(monkeypatch, lambda handle, fixture: given.append(fixture.id))
    assert await spread(place, said) == expected
    assert given == [expected[7].id]
    assert [path.name for path in sorted(logs_beside(str(place)).glob("*.out"))] == ["match-0.out"], "one is enough"
    monkeypatch.setattr("mas.league.workers.open_cluster", None)
    assert await spread(place, said) == expected, "nothing is left, and nothing is started"


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.timeout(600)
async def test_trained_players_play_the_same_in_workers(trained: Path, tmp_path: Path) -> None:
    exact, config = tmp_path / "exact", (trained / "config.yaml").read_text()
    _copy(trained, exact, re.sub(r"max_batch: \d+", "max_batch: 1", config))
    assert load_run_config(exact).model.max_batch == 1
    said = terms({"old": f"run:{exact}@2", "new": f"run:{exact}", "luck": "random"}, 6, game=KUHN)
    assert await spread(tmp_path / "two.db", said) == await alone(tmp_path / "one.db", said)


def _copy(run: Path, to: Path, config: str) -> None:
    for path in run.rglob("*"):
        if path.is_file():
            target = to / path.relative_to(run)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    (to / "config.yaml").write_text(config)


async def test_a_worker_refuses_a_run_with_other_files(trained: Path, tmp_path: Path) -> None:
    _copy(trained, tmp_path / "run", (trained / "config.yaml").read_text())
    source = RunSource(tmp_path / "run", 4)
    digest = run_digest(source)
    assert digest == run_digest(RunSource(trained, 4)) != run_digest(RunSource(trained, 2))
    with (tmp_path / "run" / "config.yaml").open("a") as file:
        file.write("# another line\n")
    setup = MatchSetup(
        game=KUHN, players={"x": str(source)}, digests={"x": digest}, trusts_all=True, directory=str(tmp_path)
    )
    with pytest.raises(ConfigError, match=r"player 'x': the files of run:.*@4 are others than when the tournament"):
        await make(msgspec.json.encode(setup))


def league(*words: str | Path) -> str:
    done = CliRunner().invoke(app, ["league", *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return done.output


RUN = ("run", "--game", TIC_TAC_TOE, "--player", "a=random", "--player", "b=random", "--games", "4")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("--workers", "5"), "5 workers for 4 games: this tournament has no more; take 4 workers at most"),
        (("--workers", "5", "--rounds", "2"), "5 workers for 4 games: each round of this tournament has no more"),
        (("--workers", "2", "--at-once", "1"), "2 workers for 1 games at once: raise --at-once, or take fewer"),
        (("--cluster", "ray"), r"'cluster\.kind=ray' has no effect without workers"),
        (("cluster.cpus=4",), r"'cluster\.cpus=4' has no effect without workers"),
        (("--workers", "2", "cluster.workers=3"), "are given once"),
        (("--workers", "2", "--cluster", "ray", "cluster.kind=local"), "are given once"),
        (("--workers", "2", "cluster.adres=auto"), "Did you mean 'address'"),
        (("--workers", "2", "cluster.address=auto"), "address=auto is of Ray: set kind=ray"),
        (("--workers", "2", "train.steps=2"), r"write options of the cluster, such as cluster\.address=auto"),
        (("--workers", "2", "--player", "c=minmax"), "Did you mean 'minimax'"),
        (("--workers", "2", "--player", "c=run:nowhere@3"), "nowhere"),
        (("--workers", "2", "--games", "3"), "a multiple of 2"),
        (("--workers", "2", "cluster.cpus=1"), r"2 workers ask for 2 CPUs together, and cluster\.cpus=1 is less"),
    ],
)
def test_what_is_refused_before_any_game(
    words: tuple[str, ...], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MasError, match=message):
        league(*RUN, *words)
    assert not list(tmp_path.glob("league.db*"))


def test_without_ray_there_is_one_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in sys.modules if name.startswith("mas.cluster.ray_")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MissingPackage, match=r"pip install 'mas\[ray\]'"):
        league(*RUN, "--workers", "2", "--cluster", "ray")
    assert not list(tmp_path.iterdir())


@needs_ray
async def test_a_ray_that_cannot_be_reached_is_one_error(tmp_path: Path) -> None:
    options = worker_options(1, ["cluster.kind=ray", "cluster.address=127.0.0.1:9"])
    with pytest.raises(ClusterError, match=r"127\.0\.0\.1:9"):
        await spread(tmp_path / "x.db", terms({"a": "random", "b": "random"}), options)
    assert LeagueStore.open(tmp_path / "x.db").tournaments() == {}


@needs_ray
@pytest.mark.nightly(shard=False)
@pytest.mark.timeout(900)
async def test_actors_of_ray_play_the_games_of_one_process(tmp_path: Path) -> None:
    said = terms(SEARCH)
    options = worker_options(2, ["cluster.kind=ray", "cluster.cpus=4", "cluster.start_s=600"])
    assert await spread(tmp_path / "two.db", said, options) == await alone(tmp_path / "one.db", said)


@pytest.mark.nightly(of=16)
async def test_a_model_elsewhere_plays_in_workers_with_its_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set[str | None]()

    async def models(request: Request) -> JSONResponse:
        return JSONResponse({"object": "list", "data": [{"id": "wise", "object": "model"}]})

    async def chat(request: Request) -> JSONResponse:
        keys.add(request.headers.get("authorization"))
        return JSONResponse({"choices": [{"message": {"content": "MOVE Bet"}, "finish_reason": "stop"}]})

    server = Starlette(routes=[Route("/v1/models", models), Route("/v1/chat/completions", chat, methods=["POST"])])
    monkeypatch.setenv("LEAGUE_TEST_KEY", "secret")
    async with served(server) as url:
        said = terms({"wise": f"openai:wise@{url}#LEAGUE_TEST_KEY", "luck": "random"}, 4, game=KUHN)
        games = await spread(tmp_path / "x.db", said)
    assert {move.text for game in games for move in game.moves if move.player == "wise"} == {"Bet"}
    assert keys == {"Bearer secret"}


KILLED = """
import sys
sys.argv = ["mas", "league", *sys.argv[1:]]
from mas.cli import main
main()
"""


@pytest.mark.nightly(of=16)
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_killed_command_with_workers_is_gone_on_with(tmp_path: Path) -> None:
    place, said = tmp_path / "x.db", ("--game", TIC_TAC_TOE, "--player", "a=mcts:150", "--player", "b=mcts:150")
    words = (
        "run",
        *said,
        "--games",
        "40",
        "--league",
        str(place),
        "--workers",
        "2",
        "--at-once",
        "4",
        "cluster.cpus=4",
    )
    process = subprocess.Popen([sys.executable, "-c", KILLED, *words])
    deadline = time.monotonic() + 200
    while _kept(place) < 5 and process.poll() is None:
        assert time.monotonic() < deadline, "the tournament does not get on"
        time.sleep(0.02)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it was killed while it played"
    assert 5 <= _kept(place) < 40
    assert "40 games" in league(*words)
    league(*words[:-5], "--league", str(tmp_path / "one.db"))
    assert LeagueStore.open(place).games("tournament") == LeagueStore.open(tmp_path / "one.db").games("tournament")


def _kept(place: Path) -> int:
    try:
        return len(LeagueStore.open(place).ids("tournament")) if place.exists() and place.stat().st_size else 0
    except ConfigError:
        return 0


@pytest.mark.nightly(of=16)
def test_a_league_in_python_plays_in_workers(tmp_path: Path) -> None:
    one = mas.League(TIC_TAC_TOE, tmp_path / "one.db").play(["random", "minimax"], games=4)
    options = {"cluster.start_s": 300.0, "cluster.cpus": 2}
    two = mas.League(TIC_TAC_TOE, tmp_path / "two.db").play(["random", "minimax"], games=4, workers=2, options=options)
    assert str(one) == str(two)
