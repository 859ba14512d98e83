"""Populations of adapters: exact mixes and payoffs, what is trained against whom, and going on after a kill."""

import io
import json
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from parts import SKILLED
from rich.console import Console
from typer.testing import CliRunner

from mas.cli import app
from mas.config.servers import RunSource
from mas.config.stored_run import load_run_config
from mas.core.errors import ConfigError, EngineError, EnvironmentFault, RunDirectoryError
from mas.core.scenario import Mixable
from mas.league import psro_run
from mas.league.games import open_world
from mas.league.match import Fixture, play
from mas.league.payoff import Mix
from mas.league.psro_run import Populations
from mas.league.psro_terms import GrowthTerms, training_of
from mas.league.trained_players import open_runs
from mas.runtime.team import TeamRuntime
from mas.training.exploitability import exact_measures

pytestmark = pytest.mark.nightly(of=16)

pytest.importorskip("pyspiel")
KUHN = "two_player:kuhn_poker"
TINY = [f"model.tiny.{name}={value}" for name, value in SKILLED.tiny.model_dump(exclude_defaults=True).items()]
SHORT = (*TINY, "train.tasks_per_step=4", "train.eval_tasks=2", "learner.lr=0.02", "model.lora.rank=4")


class Scripted(Populations):
    """Players are tables; answers are exact best responses, found by trying all 64 pure policies of a seat."""

    def _begin(self) -> None:
        self.known.is_exact = True
        self.known.answers |= {self._name(seat, 0): 0 for seat in self.seats}
        self._policies |= {
            self._name(seat, 0): {key: {"p": 0.5, "b": 0.5} for key in self._keys(seat)} for seat in self.seats
        }

    def respond(self, seat: int, others: Sequence[str], mix: Mix) -> str:
        own, other = self.seats[seat], self.seats[1 - seat]
        tables = [self._policies[name] for name in others]
        theirs = self._game.mixed(other, tables, [float(share) for share in mix])
        pure = (
            {key: {"p": float(not bet), "b": float(bet)} for key, bet in zip(self._keys(own), bets, strict=True)}
            for bets in product((False, True), repeat=6)
        )
        self._answered[own] += 1
        name = self._name(own, self._answered[own])
        self._policies[name] = max(pure, key=lambda policy: self._value(seat, {**policy, **theirs}))
        self.known.answers[name] = 10
        return name

    @property
    def _game(self) -> Mixable:
        assert isinstance(self.scenario, Mixable)
        return self.scenario

    def _keys(self, seat: str) -> list[str]:
        return [one.key for one in self._game.decisions() if one.seat == seat]

    def _value(self, seat: int, policy: Mapping[str, Mapping[str, float]]) -> float:
        return sum(chance * got[seat] for got, chance in self._game.outcomes(policy))


def terms_of(**changed: Any) -> GrowthTerms:
    return GrowthTerms(**{"game": KUHN, "solver": "nash", "iterations": 2, "steps": 2, "overrides": SHORT, **changed})


def test_exact_answers_end_in_an_equilibrium_of_kuhn_poker(tmp_path: Path) -> None:
    found = Scripted(terms_of(iterations=12, enough=1e-9), tmp_path, Console(quiet=True)).grow()
    convs = [one.nash_conv or 0.0 for one in found]
    assert convs[0] == pytest.approx(0.9167, abs=1e-4), "uniform play, by OpenSpiel"
    assert convs[-1] == pytest.approx(0, abs=1e-6)
    assert found[-1].value == pytest.approx(-1 / 18, abs=1e-6), "what Kuhn poker is worth to who begins"
    assert [one.gained for one in found] == pytest.approx(convs, abs=1e-9), "exact answers gain what there is to gain"
    assert all(one.inside == pytest.approx(0, abs=1e-6) for one in found)
    assert [one.tokens for one in found] == [20 * number for number in range(len(found))]


def test_variances_are_those_of_single_games(tmp_path: Path) -> None:
    populations = Scripted(terms_of(), tmp_path, Console(quiet=True))
    populations._begin()
    never, always = ({key: {"p": 1.0 - bet, "b": bet} for key in populations._keys("player_0")} for bet in (0.0, 1.0))
    theirs = {key: {"p": 1.0, "b": 0.0} for key in populations._keys("player_1")}
    populations._policies |= {"player_0-1": never, "player_0-2": always, "player_1-1": theirs}
    passing, betting = (populations.payoff(name, "player_1-1") for name in ("player_0-1", "player_0-2"))
    assert (passing.means, passing.variances) == (pytest.approx((0, 0)), pytest.approx((1, 1)))
    assert (betting.means, betting.variances) == (pytest.approx((1, -1)), pytest.approx((0, 0)))


@pytest.fixture(scope="module")
def grown(tmp_path_factory: pytest.TempPathFactory, base_for: Callable[..., Any]) -> Path:
    base_for("two_player", SKILLED)
    out = tmp_path_factory.mktemp("psro") / "kuhn"
    done = CliRunner().invoke(app, command(out))
    assert done.exit_code == 0, done.output
    return out


def command(out: Path, *more: str, iterations: int = 2) -> list[str]:
    return ["league", "psro", "--iterations", str(iterations), "--steps", "2", "--out", str(out), *more, *SHORT]


def read(out: Path) -> dict[str, Any]:
    return dict(json.loads((out / "psro.json").read_text()))


def test_each_answer_is_a_run_of_one_seat_against_the_others_mix(grown: Path) -> None:
    found = read(grown)
    assert found["is_exact"]
    assert [[len(names) for names in one["players"]] for one in found["iterations"]] == [[1, 1], [2, 2], [3, 3]]
    assert found["iterations"][-1]["gained"] is None
    seeds = set()
    for seat, other in (("player_0", 1), ("player_1", 0)):
        for number in (1, 2):
            config = load_run_config(grown / f"{seat}-{number}")
            opponents = config.algorithm.opponents
            assert opponents is not None
            assert opponents.seats == (seat,)
            mix = found["iterations"][number - 1]["mixes"][other]
            assert opponents.shares == {name: share for name, share in mix.items() if share >= 1e-4}
            before = "untrained" if number == 1 else f"{seat}-{number - 1}"
            assert config.train.start is not None
            assert re.sub(r"@\d+$", "", config.train.start) == str(grown / before)
            seeds.add(config.train.seed)
    assert len(seeds) == 4
    assert (grown / "psro.svg").read_text().startswith("<?xml")


def test_only_the_seats_own_adapter_learns(grown: Path) -> None:
    def content(run: str, adapter: str) -> bytes:
        (path,) = (grown / run / "adapters" / adapter).glob("*.safetensors")
        return path.read_bytes()

    assert content("player_0-1", "player_1") == content("untrained", "player_1")
    assert content("player_0-1", "player_0") != content("untrained", "player_0")
    assert content("player_0-2", "player_0") != content("player_0-1", "player_0")


async def test_the_first_mixes_are_the_scored_policy_of_the_run(grown: Path) -> None:
    async with open_runs({"one": RunSource(grown / "untrained")}, open_world(KUHN), print) as players:
        measured = await exact_measures(players["one"].runtime, players["one"].scenario)
    assert read(grown)["iterations"][0]["nash_conv"] == pytest.approx(measured["nash_conv"], abs=1e-6)


def test_the_command_prints_files_and_refuses_other_terms(grown: Path, mas: Callable[..., Any]) -> None:
    ran = mas(*command(grown))
    assert ran.code == 0, ran.err
    assert ran.out.split()[-2:] == [str(grown / "psro.json"), str(grown / "psro.svg")]
    assert "<svg" in (grown / "psro.svg").read_text()
    before = read(grown)
    for more, said in ((("--solver", "uniform"), "began with solver nash"), (("--game", "relay"), "psro needs two")):
        refused = mas(*command(grown, *more))
        assert (refused.code, refused.out) == (2, "")
        assert said in refused.err
    assert read(grown) == before


def test_a_finished_one_is_told_again_without_training(grown: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = read(grown)
    monkeypatch.setattr(psro_run, "train_against", None)
    monkeypatch.setattr(psro_run, "open_runs", None)
    done = CliRunner().invoke(app, command(grown))
    assert done.exit_code == 0, done.output
    assert "iteration 2: 3 + 3 players" in done.output
    assert read(grown) == before


def test_a_killed_one_goes_on_and_ends_as_if_it_had_not_been(
    grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls, real = list[str](), psro_run.train_against

    def killed(config: Any, *given: Any, **more: Any) -> Any:
        calls.append(Path(config.run_dir).name)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return real(config, *given, **more)

    monkeypatch.setattr(psro_run, "train_against", killed)
    out = tmp_path / "kuhn"
    words = command(out, iterations=1)
    monkeypatch.chdir(tmp_path)
    stopped = CliRunner().invoke(app, command(Path("kuhn"), iterations=1))
    assert stopped.exit_code == 130
    assert "Go on with: mas league psro" in stopped.output
    assert CliRunner().invoke(app, words).exit_code == 0
    assert calls == ["player_0-1", "player_1-1", "player_1-1"], "the first answer is not trained again"
    started = load_run_config(out / "player_0-1")
    assert started.algorithm.opponents is not None
    named = [started.train.start, *started.algorithm.opponents.players.values()]
    assert named == [str(out / "untrained"), f"run:{out / 'untrained'}"], "another spelling of --out names the same"
    again, whole = read(out), read(grown)
    assert again["iterations"][0] == whole["iterations"][0]
    assert again["iterations"][1]["nash_conv"] == whole["iterations"][1]["nash_conv"]


def test_played_payoffs_estimate_the_exact_ones(grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    out, told = tmp_path / "played", Console(record=True, quiet=False, file=io.StringIO())
    shutil.copytree(grown / "untrained", out / "untrained")
    populations = Populations(terms_of(games=200), out, told)
    populations.known.answers |= {"player_0-0": 0, "player_1-0": 0}
    populations._begin()
    found = populations.payoff("player_0-0", "player_1-0")
    assert "estimated from 200 games a pair" in told.export_text()
    assert not populations.known.is_exact
    (one,) = populations.known.payoffs
    assert (one.games, one.expected) == (200, found)
    (known,) = [one for one in read(grown)["payoffs"] if (one["first"], one["second"]) == ("player_0-0", "player_1-0")]
    # An illegal move loses; the exact ones know none. The standard error of 200 games is about 0.1.
    assert found.means[0] == pytest.approx(known["means"][0], abs=0.4)
    assert found.variances[0] == pytest.approx(known["variances"][0], rel=0.4)
    assert sum(found.means) == pytest.approx(0)
    again = Populations(terms_of(games=200), out, told)
    monkeypatch.delattr(Populations, "_played")
    assert again.payoff("player_0-0", "player_1-0") == found, "what is played is kept"


def test_a_pair_that_played_is_kept_when_the_next_one_is_killed(
    grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, games, met = tmp_path / "played", 3, list[tuple[str, ...]]()
    for run in ("untrained", "player_1-1"):
        shutil.copytree(grown / run, out / run)

    def opened() -> Populations:
        populations = Populations(terms_of(games=games), out, Console(quiet=True))
        populations.known.is_exact, populations._answered["player_1"] = False, 1
        return populations

    async def counted(world: Any, fixture: Fixture, players: Any) -> Any:
        if len(met) == games + 1:
            raise EnvironmentFault("out of cards")
        met.append(fixture.players)
        return await play(world, fixture, players)

    monkeypatch.setattr(psro_run, "play", counted)
    with pytest.raises(EnvironmentFault):
        opened().payoff("player_0-0", "player_1-1")
    assert [(one["first"], one["second"]) for one in read(out)["payoffs"]] == [("player_0-0", "player_1-0")]
    met.clear()
    games_left = [("player_0-0", "player_1-1")] * games
    opened().payoff("player_0-0", "player_1-1")
    assert met == games_left, "the first pair does not play again"


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"game": "open_spiel:kuhn_poker"}, "is a game of another package.*two_player:kuhn_poker"),
        ({"game": "two_palyer"}, "Did you mean 'two_player'"),
        ({"game": "two_player:poker"}, "scenario.options.game"),
        ({"game": "relay"}, r"has the seats team: psro needs two"),
        ({"overrides": ("train.steps=3",)}, "'train.steps=3': --steps says how long; leave it out"),
        ({"overrides": ("algorithm.opponents.mix=latest",)}, "the meta-strategy says who is met"),
        ({"overrides": ("scenario=relay",)}, "--game says what is played"),
        ({"overrides": ("train.stepz=3",)}, "Did you mean"),
    ],
)
def test_what_cannot_be_grown_is_refused(tmp_path: Path, changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Populations(terms_of(**changed), tmp_path / "x", Console(quiet=True))
    assert not (tmp_path / "x").exists()


def test_a_directory_of_other_terms_is_not_gone_on_with(grown: Path, tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match="began with solver nash, and now solver is uniform"):
        Populations(terms_of(solver="uniform"), grown, Console(quiet=True))
    (tmp_path / "psro.json").write_text('{"terms": 3}')
    with pytest.raises(RunDirectoryError, match=r"psro.json cannot be read.*take another --out"):
        Populations(terms_of(), tmp_path, Console(quiet=True))


def test_the_algorithm_may_be_another_one() -> None:
    assert training_of(terms_of()).algorithm.name == "spiral"
    config = training_of(terms_of(overrides=("algorithm=at_grpo", "algorithm.policy=shared")))
    assert (config.algorithm.name, config.algorithm.policy, config.train.steps) == ("at_grpo", "shared", 2)
    assert training_of(terms_of(game="two_player:kuhn_poker,tries=3")).scenario.options["tries"] == 3


def test_a_policy_that_cannot_be_scored_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    populations = Scripted(terms_of(), tmp_path, Console(quiet=True))
    populations._begin()
    populations.known.is_exact = False
    monkeypatch.setattr(populations, "policy", {"player_0-0": populations.policy("player_0-0")}.get)
    assert populations.nash_conv((["player_0-0"], ["player_1-0"]), [np.ones(1), np.ones(1)]) is None


def test_an_engine_that_gave_no_scores_is_asked_again(
    grown: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "kuhn"
    shutil.copytree(grown, out)
    known = json.loads((out / "psro.json").read_text())
    (out / "psro.json").write_text(json.dumps(known | {"payoffs": []}))
    (out / "policies" / "player_0-0.json").unlink()
    populations = Populations(terms_of(), out, Console(quiet=True))

    async def silent(*given: Any) -> None:
        raise EngineError("connection lost")

    with monkeypatch.context() as context:
        context.setattr(TeamRuntime, "log_chances", silent)
        for _ in range(2):
            with pytest.raises(ConfigError, match=r"player_0-0: its moves in .*untrained could not be scored.*--games"):
                populations.payoff("player_0-0", "player_1-0")
    (first,) = [one for one in known["payoffs"] if (one["first"], one["second"]) == ("player_0-0", "player_1-0")]
    assert populations.payoff("player_0-0", "player_1-0").means == pytest.approx(first["means"])
