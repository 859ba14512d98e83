"""Players that were trained: what they see and say, one base for them all, the same games however many are on."""

from collections.abc import Sequence
from pathlib import Path
from random import Random
from shutil import copytree
from typing import Any

import pytest
import yaml
from parts import runtime_of
from typer.testing import CliRunner

from mas.cli import app
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.config.servers import RunSource
from mas.core.environment import Task
from mas.core.errors import ConfigError, RunDirectoryError
from mas.league import trained_players
from mas.league.games import full_options, open_world, translated
from mas.league.match import Chance, Fixture, PlayedGame, play
from mas.league.players import AtRandom, open_players, pinned, scripted
from mas.league.store import LeagueStore
from mas.league.tournament import Terms, run_tournament
from mas.league.trained_players import TeamPlayer, load_run, open_runs
from mas.runs.train import train_in_directory
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.serving.adapter_files import from_directory
from mas.serving.decode import Batch
from mas.testing.scripted import ScriptedEngine

pytest.importorskip("pyspiel")
KUHN = "two_player:kuhn_poker"
MEASURES = ("draw", "forfeit", "success", "nash_conv")
LETTERS = ScenarioOptions(name="two_player")
"""Its views read as by default."""


def quiet(text: Any) -> None:
    """Nobody listens."""


async def tournament(place: Path, players: dict[str, str], games: int = 20, at_once: int = 64) -> list[PlayedGame]:
    world = open_world(KUHN)
    terms = Terms(game=KUHN, players=pinned(players), games=games, seed=3)
    async with open_players(terms.players, world, quiet) as opened:
        return await run_tournament("cup", terms, LeagueStore.open(place), world.open, opened, at_once=at_once)


@pytest.mark.nightly(of=16)
async def test_games_of_trained_players_do_not_depend_on_how_many_are_on(trained: Path, tmp_path: Path) -> None:
    players = {"old": f"run:{trained}@2", "new": f"run:{trained}", "luck": "random"}
    one = await tournament(tmp_path / "one.db", players, at_once=1)
    many = await tournament(tmp_path / "many.db", players, at_once=32)
    assert one == many
    assert len(one) == 60
    said = {(move.player, move.text) for game in one for move in game.moves}
    assert {("new", "Pass"), ("new", "Bet")} <= said, "it draws, as it was trained"


def test_a_run_whose_roles_remember_is_refused_as_a_player(trained: Path, tmp_path: Path) -> None:
    run = tmp_path / "remembers"
    copytree(trained, run)
    team = run / "team.yaml"
    lines = team.read_text(encoding="utf-8").splitlines(keepends=True)
    first = next(number for number, line in enumerate(lines) if line.startswith("    type:"))
    team.write_text("".join([*lines[: first + 1], "    history: 2\n", *lines[first + 1 :]]), encoding="utf-8")
    config = yaml.safe_load((run / "config.yaml").read_text(encoding="utf-8"))
    config["algorithm"]["team"] = str(team)
    (run / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    with pytest.raises(
        ConfigError, match=r"role '\w+' of run .*remembers has history: 2, .* train it without a history"
    ):
        load_run(RunSource(run, 4, is_greedy=False), open_world(KUHN))


async def test_all_players_of_a_base_share_it_and_are_answered_in_batches(
    trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened, engines, widths = [], [], []
    open_base, start_engine, admit = trained_players.open_base, trained_players.start_engine, Batch.admit

    def admitted(batch: Batch, jobs: Sequence[Any]) -> Any:
        widths.append(len(jobs))
        return admit(batch, jobs)

    async def started(*given: Any) -> Any:
        engines.append(await start_engine(*given))
        widths.clear()  # of the check that an engine starts with
        return engines[-1]

    monkeypatch.setattr(trained_players, "open_base", lambda *given: opened.append(given) or open_base(*given))
    monkeypatch.setattr(trained_players, "start_engine", started)
    monkeypatch.setattr(Batch, "admit", admitted)
    players = {
        f"p{number}": f"{'run' if number % 2 else 'greedy'}:{trained}@{2 + number % 3 // 2 * 2}" for number in range(8)
    }
    games = await tournament(tmp_path / "x.db", players, games=4, at_once=112)
    (engine,) = engines
    assert len(opened) == 1
    assert len(engine.adapters()) == 8, "a player costs one adapter"
    moves = sum(len(game.moves) for game in games)
    assert len(games) == 112
    # A game has three moves at most. At once, all games are asked for one: three passes, and a few more where games
    # get out of step.
    assert sum(widths) == moves > 112
    assert sum(width > 0 for width in widths) <= 12
    assert max(widths) > 50


async def test_a_step_is_the_checkpoint_of_that_step(trained: Path) -> None:
    world = open_world(KUHN)
    steps = {"old": 2, "new": 4, "last": None, "bare": 0}
    wanted = {name: RunSource(trained, step) for name, step in steps.items()}
    async with open_runs(wanted, world, quiet) as players:
        store = players["old"].runtime.endpoint.engine.store
        served = [store.weights(f"{number}.shared") for number in range(4)]
        saved = [
            from_directory(trained / "checkpoints" / f"step-{step:06d}" / "adapters" / "shared", _bank(players["old"]))
            for step in (2, 4, 4)
        ]
    for mine, its in zip(served[:3], saved, strict=True):
        assert all((a == b).all() for a, b in zip(mine.parameters(), its.parameters(), strict=True))
    assert any((a != b).any() for a, b in zip(served[0].parameters(), served[1].parameters(), strict=True))
    assert not any(up.any() for _, up in served[3].pairs.values()), "step 0 is before any training: nothing is added"


def _bank(player: TeamPlayer) -> Any:
    return player.runtime.endpoint.engine.base.bank


def test_the_latest_step_is_written_down_when_a_tournament_begins(trained: Path) -> None:
    assert pinned({"a": f"run:{trained}", "b": f"greedy:{trained}@2", "c": "random"}) == {
        "a": f"run:{trained}@4",
        "b": f"greedy:{trained}@2",
        "c": "random",
    }


def scenario_of(style: str) -> Any:
    return build_scenario(ScenarioOptions(name="two_player", options={"game": "kuhn_poker", "style": style}))


def asked(seat: str, *moves: str) -> Chance:
    """After these moves in Kuhn poker, in words."""
    game = open_world(KUHN).open()
    game.reset(Task(id="t", seed=5))
    for move in moves:
        game.step({game.to_move()[0]: move})
    return Chance(seat, game.observe(seat), game.legal(seat), Random(1), game.clone)


async def test_a_team_sees_the_world_in_its_own_style_and_its_move_is_translated() -> None:
    scenario, prompts = scenario_of("letters"), list[str]()

    def bets(prompt: str, adapter: str | None, seed: int) -> str:
        prompts.append(prompt)
        return "b"

    async with runtime_of(scenario.teams["team"], ScriptedEngine(bets, has_chat=False)) as runtime:
        player = TeamPlayer(runtime, scenario)
        assert await player.move(asked("player_0")) == "Bet"
        assert await player.move(asked("player_1", "Pass")) == "Bet"
    first, second = prompts
    assert (first[0], first[2:]) == ("A", ">"), "its seat, its card, nothing else"
    assert (second[0], second[2:]) == ("B", "p>")


async def test_the_seed_of_a_move_is_the_games_and_not_the_players() -> None:
    scenario, seeds = scenario_of("letters"), list[int]()

    def says(prompt: str, adapter: str | None, seed: int) -> str:
        seeds.append(seed)
        return "p"

    async with runtime_of(scenario.teams["team"], ScriptedEngine(says, has_chat=False)) as runtime:
        player = TeamPlayer(runtime, scenario)
        for number in (1, 2, 1):
            chance = asked("player_0")
            await player.move(Chance(chance.seat, chance.observation, chance.legal, Random(number), chance.copy))
    assert seeds[0] == seeds[2] != seeds[1]


@pytest.mark.parametrize("text", ["x", "", "0"])
async def test_what_is_no_legal_move_forfeits_by_the_games_rule(text: str) -> None:
    scenario = scenario_of("letters")
    async with runtime_of(scenario.teams["team"], ScriptedEngine(lambda *_: text, has_chat=False)) as runtime:
        players = {"bad": TeamPlayer(runtime, scenario), "luck": AtRandom()}
        game = await play(open_world(KUHN).open(), Fixture(("bad", "luck"), 3, 0, 0), players)
    assert game.returns == (-2, 2)
    assert game.illegal == {"bad": 1}


async def test_a_game_with_more_tries_than_the_run_was_trained_with_is_played_by_its_own_rule(
    trained: Path, tmp_path: Path
) -> None:
    world = open_world("two_player:kuhn_poker,tries=3")
    scenario = build_scenario(world.seen_as(full_options(LETTERS)))
    said = iter("xxb")
    async with runtime_of(scenario.teams["team"], ScriptedEngine(lambda *_: next(said), has_chat=False)) as runtime:
        players = {"slow": TeamPlayer(runtime, scenario), "luck": AtRandom()}
        game = await play(world.open(), Fixture(("slow", "luck"), 3, 0, 0), players)
    assert [move.is_legal for move in game.moves if move.player == "slow"] == [False, False, True]
    async with open_players({"mine": f"run:{trained}", "luck": "random"}, world, quiet) as opened:
        terms = Terms(game=world.id, players=dict.fromkeys(opened, "-"), games=40, seed=1)
        games = await run_tournament("cup", terms, LeagueStore.open(tmp_path / "x.db"), world.open, opened)
    assert len(games) == 40


@pytest.mark.parametrize("team", ["team", "solo"])
async def test_seats_that_move_at_once_are_played_alone(team: str) -> None:
    """Each seat's own members speak, and no other: two requests for a game of one step."""
    world = open_world("two_player:rock_paper_scissors")
    scenario = build_scenario(world.seen_as(full_options(LETTERS)))
    engine = ScriptedEngine(lambda prompt, *_: "p" if prompt[0] == "A" else "r", has_chat=False)
    async with runtime_of(scenario.teams[team], engine) as runtime:
        players = {"one": TeamPlayer(runtime, scenario), "two": TeamPlayer(runtime, scenario)}
        game = await play(world.open(), Fixture(("one", "two"), 3, 0, 0), players)
    assert game.returns == (1, -1), "paper beats rock"
    assert len(engine.requests) == 2


def test_moves_are_translated_by_their_place_and_none_becomes_legal() -> None:
    assert translated("b", ("p", "b"), ("Pass", "Bet")) == "Bet"
    assert translated("0", ("p", "b"), ("Pass", "Bet")) == "no action '0'", "not the number of an action"
    assert translated("", ("p", "b"), ("Pass", "Bet")) == ""
    assert translated("bet", ("Pass", "Bet"), ("Pass", "Bet")) == "bet", "the world itself reads what was said"
    assert translated("b", None, ("Pass", "Bet")) == "b"


async def test_greedy_players_say_the_likeliest_whatever_is_drawn(trained: Path) -> None:
    wanted = {"sure": RunSource(trained, 4, is_greedy=True), "draws": RunSource(trained, 4)}
    async with open_runs(wanted, open_world(KUHN), quiet) as players:
        said = {name: set[str]() for name in players}
        for name, player in players.items():
            for number in range(40):
                chance = asked("player_0")
                one = Chance(chance.seat, chance.observation, chance.legal, Random(number), chance.copy)
                said[name].add(await player.move(one))
    assert len(said["sure"]) == 1
    assert len(said["draws"]) > 1


@pytest.mark.parametrize("style", ["words", "letters"])
async def test_scripted_players_look_below_the_words_of_a_scenario(style: str, tmp_path: Path) -> None:
    """Minimax loses no game of tic-tac-toe, in either style; search finds legal moves, too."""
    world = open_world(f"two_player:tic_tac_toe,style={style}")
    sources = {"best": "minimax", "tree": "mcts:20", "luck": "random"}
    players = {name: scripted(source, world) for name, source in sources.items()}
    terms = Terms(game=world.id, players=sources, games=6, seed=1)
    games = await run_tournament("cup", terms, LeagueStore.open(tmp_path / "x.db"), world.open, players)
    for game in games:
        assert not game.illegal
        assert dict(zip(game.players, game.returns, strict=True)).get("best", 0.0) >= 0
    assert (games[0].moves[0].text in "012345678") == (style == "letters")


async def test_a_solved_game_wins_of_the_untrained_in_a_scenario_too(tmp_path: Path) -> None:
    world = open_world("two_player:kuhn_poker")
    players = {"solved": scripted("cfr:300", world), "luck": AtRandom()}
    terms = Terms(game=world.id, players=dict.fromkeys(players, "-"), games=2000, seed=1)
    games = await run_tournament("cup", terms, LeagueStore.open(tmp_path / "x.db"), world.open, players)
    mean = sum(dict(zip(game.players, game.returns, strict=True))["solved"] for game in games) / len(games)
    # By OpenSpiel's expected values: 0.124 from the first seat, 0.167 from the second; the standard error is 0.03.
    assert mean > 0.08


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("two_palyer:kuhn_poker", "no scenario 'two_palyer'. Did you mean 'two_player'"),
        ("two_player:poker", "scenario 'two_player': scenario.options.game"),
        ("two_player:kuhn_poker,9", "write OPTION=VALUE"),
        ("two_player:kuhn_poker,trys=2", "Did you mean 'tries'"),
        ("relay", r"relay has one seat \(team\), a league needs several"),
        ("relay:3", "write OPTION=VALUE"),
        ("nim.py:Nim", "no class of a file: offer yours by an entry point"),
        ("questions,path=d.jsonl,reward=evil.py:score", "reward names code, which the id of a game cannot"),
        ("two_player:kuhn_poker,tries=!!binary Mw==", "the tag !!binary is not read here"),
    ],
)
def test_games_that_cannot_be_played_are_refused(name: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        open_world(name)


@pytest.mark.parametrize(
    ("source", "game", "error", "message"),
    [
        ("run:{trained}@3", KUHN, RunDirectoryError, "no checkpoint of step 3; there are: 2, 4"),
        (
            "run:{trained}",
            "two_player:leduc_poker",
            ConfigError,
            "plays two_player:kuhn_poker, not two_player:leduc_poker",
        ),
        (
            "run:{trained}",
            "open_spiel:kuhn_poker",
            ConfigError,
            "plays two_player:kuhn_poker, not open_spiel:kuhn_poker",
        ),
        ("run:", KUHN, ConfigError, "write run:DIR or run:DIR@STEP"),
        ("run:{trained}-not", KUHN, RunDirectoryError, "Did you mean 'kuhn'"),
    ],
)
async def test_runs_that_cannot_play_are_refused(
    trained: Path, source: str, game: str, error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        async with open_players({"one": source.format(trained=trained)}, open_world(game), quiet):
            pass


def test_the_command_plays_runs_and_goes_on_with_them(trained: Path, tmp_path: Path) -> None:
    words = ["league", "run", "--league", str(tmp_path / "x.db"), "--game", KUHN, "--games", "10"]
    words += ["--player", f"old=run:{trained}@2", "--player", f"new=run:{trained}", "--player", "solved=cfr:100"]
    for _ in range(2):
        done = CliRunner().invoke(app, words)
        assert done.exit_code == 0, done.output
        assert "30 games" in done.output
    told = CliRunner().invoke(app, ["league", "match", "0/0/new/old", "--league", str(tmp_path / "x.db")])
    assert told.exit_code == 0, told.output
    assert "player_0: new\nplayer_1: old" in told.output


@pytest.fixture(scope="module")
def several(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of one step on two games, whose base was shown Leduc poker, too."""
    path = tmp_path_factory.mktemp("runs") / "several"
    games = ["scenario.options.game=kuhn_poker+simple_negotiation", "scenario.options.taught=leduc_poker"]
    short = ["train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=20", "model.lora.rank=4"]
    tiny = ["model.tiny.steps=60", "model.tiny.habit_steps=0", "model.tiny.hidden=32", "model.tiny.layers=1"]
    config = load_config(["scenario=two_player", "algorithm=spiral", *games, *short, *tiny, f"run_dir='{path}'"])
    train_in_directory(config, build_scenario(config.scenario))
    return path


@pytest.mark.nightly
async def test_a_run_of_several_games_plays_each_of_them_as_it_knows_it(
    several: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    prompts = []
    ask = TeamRuntime.ask

    async def seen(runtime: TeamRuntime, point: Any, *rest: Any, **named: Any) -> Any:
        prompts.append(point.observations["player_0"].fields["game"])
        return await ask(runtime, point, *rest, **named)

    monkeypatch.setattr(TeamRuntime, "ask", seen)
    for game, mark in (("kuhn_poker", "K"), ("simple_negotiation", "N")):
        world = open_world(f"two_player:{game}")
        async with open_players({"mine": f"run:{several}", "luck": "random"}, world, quiet) as players:
            played = await play(world.open(), Fixture(("mine", "luck"), 3, 0, 0), players)
        assert played.moves
        assert set(prompts) == {mark}, "the run sees letters and the game's mark, though the league is in words"
        prompts.clear()
    with pytest.raises(
        ConfigError, match=r"plays two_player:kuhn_poker\+simple_negotiation, not two_player:leduc_poker"
    ):
        async with open_players({"mine": f"run:{several}"}, open_world("two_player:leduc_poker"), quiet):
            pass


@pytest.mark.nightly
def test_a_run_of_several_games_is_evaluated_on_each_and_on_one_held_out_of_it(several: Path) -> None:
    """The command of docs/algorithms/spiral.md: the game was taught to the base, and not trained."""

    def told(*words: str) -> str:
        ran = CliRunner().invoke(app, ["eval", str(several), "--tasks", "20", *words])
        assert ran.exit_code == 0, ran.output
        return ran.output

    own = told()
    assert "trained: draw" in own
    assert all(f"{game}_{measure} " in own for game in ("kuhn_poker", "simple_negotiation") for measure in MEASURES)
    held_out = told("--on", "two_player", "scenario.options.game=leduc_poker", "scenario.options.marked=true")
    assert "untrained: draw" in held_out
    assert "nash_conv" in held_out
    assert "kuhn_poker" not in held_out
    recorded = (several / "metrics.jsonl").read_text()
    assert all(f'"simple_negotiation_{measure}":' in recorded for measure in MEASURES), "evaluations of the training"
