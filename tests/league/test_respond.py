"""Answers to a player: what they get is below what an exact best response gets, and above what nobody trained gets."""

from pathlib import Path
from typing import Any

import pytest
import yaml
from parts import SKILLED
from typer.testing import CliRunner

from mas.cli import app
from mas.config.custom_algorithm import method_of
from mas.config.load import load_config
from mas.config.plain_values import literal
from mas.config.stored_run import load_run_config
from mas.config.trust import trusting
from mas.core.errors import ConfigError
from mas.league.match import PlayedGame
from mas.league.respond import respond, response_config, train_against
from mas.league.response import response_of
from mas.league.tables import response_lines
from mas.observe.significance import mean_interval
from mas.scenarios.two_player.solve import conv

pytest.importorskip("pyspiel")
KUHN = "two_player:kuhn_poker"
TINY = [f"model.tiny.{name}={value}" for name, value in SKILLED.tiny.model_dump(exclude_defaults=True).items()]
FEW = [*TINY, "model.lora.rank=4", "train.eval_tasks=1", "train.eval_every=0", "train.checkpoint_every=0"]
STAGED = """from mas.algorithms import Algorithm, Recipe
from mas.algorithms.hiersearch import HiersearchOptions

algorithm = Algorithm(
    recipe=Recipe(title="Mine", does="Stages."),
    parts={"sampler": {"mode": "parallel"}},
    options=HiersearchOptions,
    places={"stages": "stages"},
)
"""


@pytest.mark.nightly
def test_an_answer_gets_less_than_the_best_response_and_more_than_the_untrained(tmp_path: Path, base_for: Any) -> None:
    """Against random play, whose exploitability is known exactly; both draw, as the likeliest moves of the untrained
    are good ones by chance."""
    base_for("two_player", SKILLED)
    exact = conv("kuhn_poker", lambda seen, legal: dict.fromkeys(legal, 1 / len(legal))) / 2
    found = {}
    for steps in (0, 16):
        more = [f"train.steps={steps}", "train.tasks_per_step=12", "learner.lr=0.01"]
        config = response_config("random", KUHN, [*FEW, *more])
        found[steps] = respond("random", config, tmp_path / f"{steps}", games=1000, seed=5, is_drawn=True)
    assert exact == pytest.approx(0.917 / 2, abs=1e-3)
    trained, untrained = found[16], found[0]
    assert trained.is_zero_sum
    assert trained.interval.low <= exact
    assert trained.interval.low > untrained.interval.high, "what it learned is no luck"
    assert sum(mean for mean, _ in trained.seats.values()) / 2 == pytest.approx(trained.mean)


@pytest.mark.nightly(of=16)
def test_the_command_answers_a_run_and_goes_on(trained: Path, tmp_path: Path) -> None:
    words = ["league", "respond", "--to", f"run:{trained}@2", "--out", str(tmp_path / "answer"), "--games", "20"]
    words += ["train.steps=1", "train.tasks_per_step=2", "train.eval_every=0", f"train.start='{trained}@4'"]
    first = CliRunner().invoke(app, words)
    assert first.exit_code == 0, first.output
    assert "over both seats, 20 games" in first.output
    assert f"run:{trained}@2 can be exploited by" in first.output
    again = CliRunner().invoke(app, words)
    assert "was finished already" in again.output
    assert again.output.splitlines()[-4:] == first.output.splitlines()[-4:]
    told = CliRunner().invoke(app, ["league", "match", "--league", str(tmp_path / "answer" / "response.db")])
    assert len(told.output.splitlines()) == 20


def test_a_mixture_is_met_as_its_shares_say(trained: Path, tmp_path: Path) -> None:
    config = response_config(f"run:{trained}", "", ["train.steps=4", "train.tasks_per_step=10", "train.eval_every=0"])
    players = {"a": f"run:{trained}@2", "b": "random", "c": "random"}
    shares = {"a": 0.5, "b": 0.5, "c": 0.0}
    outcome = train_against(config, players, shares, tmp_path / "run", seats=["player_1"], start=f"{trained}@4")
    met = outcome.history[-1]["opponents"]
    assert set(met) == {"a", "b"}
    assert sum(one["games"] for one in met.values()) == 4 * 10 * 8
    assert set(outcome.history[-1]["roles"]) == {"player_1"}
    again = train_against(config, players, shares, tmp_path / "run", seats=["player_1"], start=f"{trained}@4")
    assert not again.history, "it was finished"


def test_an_answer_is_trained_as_the_run_was_but_in_groups_and_in_all_seats(trained: Path) -> None:
    config = response_config(f"run:{trained}@2", "", ["train.steps=7"])
    assert (config.train.steps, config.algorithm.roles) == (7, ())
    assert (config.algorithm.advantage.key, config.algorithm.advantage.baseline) == ("group", "mean")
    assert config.algorithm.policy == "shared"
    assert config.model.tiny == SKILLED.tiny
    assert response_config("random", KUHN, ["algorithm=at_grpo"]).algorithm.name == "at_grpo"


def test_what_was_the_runs_own_affair_is_left_out_and_what_overrides_say_holds(trained: Path, tmp_path: Path) -> None:
    own = ["algorithm.roles=[player_1]", f"train.start='{trained}@2'", "train.target=0.9", "train.token_budget=100"]
    config = load_run_config(trained, own)
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    found = response_config(f"run:{tmp_path}", "", [])
    assert found.algorithm.roles == ()
    assert (found.train.start, found.train.target, found.train.token_budget) == (None, None, None)
    said = ["algorithm.roles=[player_0]", f"train.start='{trained}@4'", "train.target=0.5", "train.token_budget=7"]
    found = response_config(f"run:{tmp_path}", "", said)
    assert found.algorithm.roles == ("player_0",)
    assert (found.train.start, found.train.target, found.train.token_budget) == (f"{trained}@4", 0.5, 7)


@pytest.mark.parametrize("is_own", [False, True])
def test_stages_of_the_run_are_left_out_and_those_of_overrides_hold(is_own: bool, tmp_path: Path) -> None:
    name = "algorithm=hiersearch"
    if is_own:
        (tmp_path / "mine.py").write_text(STAGED)
        name = f"algorithm={tmp_path / 'mine.py'}"
    config = load_config([name, "scenario=two_player", "algorithm.team=pair", "algorithm.options.stages=[]"])
    stages = [{"roles": ["player_0"], "steps": 3, "weights": {}}]
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    run = f"run:{tmp_path}"
    with trusting():
        stored = load_run_config(tmp_path, [f"algorithm.options.stages={literal(stages)}"])
        (tmp_path / "config.yaml").write_text(yaml.safe_dump(stored.model_dump(mode="json")))
        assert len(stored.algorithm.stages) == 1
        found = response_config(run, "", []).algorithm
        assert (found.stages, found.options["stages"]) == ((), [])
        assert method_of(found) is not None
        for word in ("algorithm.options.stages=[{S}]", "+algorithm.options.stages=[{S}]"):
            said = word.replace("S", "roles: [player_1], steps: 7")
            found = response_config(run, "", [said]).algorithm
            assert [(one.roles, one.steps) for one in found.stages] == [(("player_1",), 7)]
            assert method_of(found) is not None
        found = response_config(run, "", ["algorithm.options={stages: [{roles: [player_1], steps: 7}]}"]).algorithm
        assert [(one.roles, one.steps) for one in found.stages] == [(("player_1",), 7)]
        with pytest.raises(ConfigError, match="'0' holds None, which has no keys"):
            response_config(run, "", ["algorithm.options.stages.0.steps=7"])


def game(seed: int, players: tuple[str, str], returns: tuple[float, float]) -> PlayedGame:
    return PlayedGame(id=f"{seed}{players}", round=0, number=0, seed=seed, players=players, returns=returns, moves=())


def test_both_games_of_a_deal_are_one_observation() -> None:
    ahead, behind = ("answer", "it"), ("it", "answer")
    games = [game(1, ahead, (2, -2)), game(1, behind, (1, -1)), game(2, ahead, (1, -1)), game(2, behind, (-1, 1))]
    found = response_of("random", ("first", "second"), games)
    assert found.seats["first"][0] == 1.5
    assert found.seats["second"][0] == 0.0
    assert (found.mean, found.games) == (0.75, 4)
    assert found.interval == mean_interval([0.5, 1.0])
    assert found.is_zero_sum
    assert "by 0.000 at least" in response_lines(found, 0.95)[-1], "an interval that has 0 in it bounds nothing"
    uneven = response_of("random", ("first", "second"), [*games, game(3, ahead, (1, 1))])
    assert not uneven.is_zero_sum
    assert "bounds no exploitability" in response_lines(uneven, 0.95)[-1]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["--to", "random"], "--game is needed"),
        (["--to", "random", "--game", "relay"], "relay has one seat"),
        (["--to", "run:{trained}", "--game", "two_player:leduc_poker"], "leave --game out"),
        (["--to", "run:{trained}", "run_dir=x"], "said by --out and --to"),
        (["--to", "minimax", "--game", KUHN], "minimax cannot play"),
    ],
)
def test_answers_that_make_no_sense_are_refused(trained: Path, tmp_path: Path, words: list[str], message: str) -> None:
    given = [word.format(trained=trained) for word in words]
    done = CliRunner().invoke(app, ["league", "respond", "--out", str(tmp_path / "x"), *given])
    assert isinstance(done.exception, ConfigError)
    assert message in str(done.exception)
    assert not (tmp_path / "x").exists()
