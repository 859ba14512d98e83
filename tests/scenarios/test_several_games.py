"""Several games of two players at once: one drawn for each task, named in the prompt, measured apart."""

from collections import Counter
from itertools import islice
from random import Random
from typing import Any

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Task, world_of
from mas.core.errors import ConfigError
from mas.league.games import full_options, open_world
from mas.league.players import scripted
from mas.scenarios import build_scenario
from mas.scenarios.two_player import TwoPlayerScenario
from mas.scenarios.two_player.environment import TwoPlayerEnvironment
from mas.scenarios.two_player.games import GAMES, games_of
from mas.testing.environment import EnvironmentContract
from mas.training.evaluate import scripted as evaluated

pytest.importorskip("pyspiel")
NAMES = ("kuhn_poker", "tic_tac_toe", "simple_negotiation")
THREE = "+".join(NAMES)


def scenario_of(game: str = THREE, **options: Any) -> TwoPlayerScenario:
    built = build_scenario(ScenarioOptions(name="two_player", options={"game": game, **options}))
    assert isinstance(built, TwoPlayerScenario)
    return built


def begun(scenario: TwoPlayerScenario, task: Task) -> TwoPlayerEnvironment:
    environment = scenario.environment()
    assert isinstance(environment, TwoPlayerEnvironment)
    environment.reset(task)
    return environment


class TestThree(EnvironmentContract):
    def make_environment(self) -> TwoPlayerEnvironment:
        return TwoPlayerEnvironment(games_of(THREE), "letters", 1, is_marked=True)

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number)


def test_every_task_is_of_one_game_and_all_come_about_equally_often() -> None:
    scenario = scenario_of()
    names = [begun(scenario, scenario.task("train", index)).game_name() for index in range(300)]
    assert names == [begun(scenario, scenario.task("train", index)).game_name() for index in range(300)]
    counts = Counter(names)
    assert set(counts) == set(NAMES)
    # 100 of each are expected, standard deviation 8.2.
    assert min(counts.values()) > 70


def test_the_world_of_a_task_is_its_game_and_the_specification_is_of_all() -> None:
    scenario = scenario_of()
    environment = scenario.environment()
    spec = environment.spec
    assert spec.name == THREE
    assert spec.max_turns == 9, "tic-tac-toe is the longest"
    for index in range(12):
        environment.reset(scenario.task("train", index))
        assert world_of(environment) in NAMES
        assert environment.spec == spec
    assert world_of(scenario_of("kuhn_poker").environment()) == "kuhn_poker"


def test_prompts_name_the_game_and_moves_are_those_of_all() -> None:
    scenario = scenario_of()
    for index in range(12):
        environment = begun(scenario, scenario.task("train", index))
        game = GAMES[environment.game_name()]
        prompt = scenario.teams["team"].roles["player_0"].template.format(**environment.observe("player_0").fields)
        assert prompt.startswith(f"{game.mark}A")
        assert set(environment.legal("player_0")) <= set(game.letters)
    assert scenario.teams["team"].roles["player_1"].choices == tuple("pb012345678nyacd")
    assert len({game.mark for game in GAMES.values()}) == len(GAMES)
    alone = begun(scenario_of("kuhn_poker"), Task(id="t", seed=0)).observe("player_0").fields["game"]
    assert alone == "", "a game alone is not named unless that is wanted"
    named = begun(scenario_of("kuhn_poker", marked=True), Task(id="t", seed=0)).observe("player_0").fields["game"]
    assert named == "K"


def test_a_snapshot_is_restored_as_its_own_game_in_words_as_well() -> None:
    scenario, words = scenario_of(), scenario_of(style="words")
    by_game = {}
    for index in range(12):
        environment = begun(scenario, scenario.task("train", index))
        by_game[environment.game_name()] = environment
    assert set(by_game) == set(NAMES)
    for name, environment in by_game.items():
        other = words.environment()
        assert isinstance(other, TwoPlayerEnvironment)
        other.reset(Task(id="t", seed=1))
        other.restore(environment.snapshot())
        assert other.game_name() == name
        assert other.observe("player_0").fields["rules"] == GAMES[name].rules
        assert other.state_key() == environment.state_key()


def test_demonstrations_are_of_all_games_and_of_those_that_are_only_taught() -> None:
    shown = list(islice(scenario_of(taught="leduc_poker").demonstrations(0, expert=False), 400))
    counts = Counter(prompt[0] for prompt, _ in shown)
    assert set(counts) == set("KTNL")
    # 100 of each are expected, standard deviation 8.7.
    assert min(counts.values()) > 70
    assert scenario_of(taught="leduc_poker").fingerprint() != scenario_of().fingerprint()
    tasks = [scenario.task("eval", 3) for scenario in (scenario_of(), scenario_of(taught="leduc_poker"))]
    assert tasks[0] == tasks[1], "what is taught changes no task"


def test_evaluations_tell_of_each_game_and_of_all() -> None:
    scenario = scenario_of()

    def first_legal(environment: Any, random: Random) -> dict[str, str]:
        return {seat: environment.legal(seat)[0] for seat in environment.to_move()}

    found = evaluated(scenario, first_legal, 60, 0)
    assert found is not None
    measures = found.measures
    # Nobody offers anything: all draws. x has 0, 2, 4, 6: x wins. Two passes: the higher card wins.
    assert measures["simple_negotiation_draw"] == 1
    assert measures["tic_tac_toe_success"] == 1
    assert measures["kuhn_poker_draw"] == 0
    assert 0 < measures["kuhn_poker_success"] < 1
    counts = Counter(begun(scenario, scenario.task("eval", index)).game_name() for index in range(60))
    mean = sum(counts[name] * measures[f"{name}_success"] for name in NAMES) / 60
    assert found.success == pytest.approx(mean)
    assert measures["draw"] == pytest.approx(counts["simple_negotiation"] / 60)


def test_nash_conv_is_that_of_each_small_game_and_their_mean() -> None:
    scenario = scenario_of()
    decisions = scenario.decisions()
    assert len(decisions) == 12 + 592
    assert len({one.key for one in decisions}) == len(decisions)
    assert {one.observation.fields["game"] for one in decisions} == {"K", "N"}
    uniform = {one.key: dict.fromkeys(one.legal, 1 / len(one.legal)) for one in decisions}
    found = scenario.solve(uniform)
    alone = scenario_of("simple_negotiation")
    (expected,) = alone.solve(
        {one.key: dict.fromkeys(one.legal, 1 / len(one.legal)) for one in alone.decisions()}
    ).values()
    assert found == {
        "kuhn_poker_nash_conv": pytest.approx(11 / 12),
        "simple_negotiation_nash_conv": pytest.approx(expected),
        "nash_conv": pytest.approx((11 / 12 + expected) / 2),
    }
    with pytest.raises(ConfigError, match="cannot be mixed, only those of one game"):
        scenario.mixed("player_0", [uniform], [1.0])


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (
            {"game": "kuhn_poker+tic_tac_to"},
            "no game 'tic_tac_to' in 'kuhn_poker+tic_tac_to'. Did you mean 'tic_tac_toe'",
        ),
        ({"game": "kuhn_poker+kuhn_poker"}, "has a game twice: name each once"),
        (
            {"game": "kuhn_poker+rock_paper_scissors"},
            "in rock_paper_scissors both seats move at once, in the others in turn; not together",
        ),
        ({"taught": "kuhn_poker"}, "taught=kuhn_poker: kuhn_poker is played, and taught anyway; leave it out"),
        ({"game": THREE, "marked": False}, "marked=false: where several games are played or taught"),
    ],
)
def test_games_that_do_not_go_together_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError) as raised:
        build_scenario(ScenarioOptions(name="two_player", options=options))
    assert reason in str(raised.value)


def test_the_best_moves_of_one_game_are_shown_among_several() -> None:
    shown = islice(scenario_of(best=1, skill=0).demonstrations(0, expert=False), 600)
    moves = {(prompt[0], move) for prompt, move in shown if ">" in prompt and prompt[2:] in ("0>", "14>", ".........>")}
    # skill 0: the first legal move of the others, and any opening of tic-tac-toe, as all of them draw.
    assert {move for mark, move in moves if mark == "K"} == {"p"}
    assert {move for mark, move in moves if mark == "N"} == {"n"}
    assert len({move for mark, move in moves if mark == "T"}) > 4


def test_a_league_has_them_as_one_game_which_random_plays_and_a_solver_does_not() -> None:
    world = open_world(f"two_player:{THREE}")
    scripted("random", world)
    with pytest.raises(ConfigError, match=r"cfr plays one game, and .* are several: name one of them, or take random"):
        scripted("cfr:10", world)
    options = full_options(ScenarioOptions(name="two_player", options={"game": THREE})).options
    assert options["marked"] is True
    one = open_world("two_player:tic_tac_toe").seen_as(ScenarioOptions(name="two_player", options=options))
    assert (one.options["game"], one.options["style"], one.options["marked"]) == ("tic_tac_toe", "letters", True)
