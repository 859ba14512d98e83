"""The team that a configuration names: the scenario's own by name, anybody's by its file."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import EnvironmentSpec
from mas.core.errors import ConfigError, GraphError
from mas.core.scenario import Scenario
from mas.graph.load import find_team, load_team
from mas.scenarios import build_scenario

TEAM = """
name: mine
roles:
  caller: {type: planner, view: planner, template: "P{goal}>", choices: [a, b, c, d], max_tokens: 1}
  executor: {type: executor, template: "E{table};{from.caller}>", choices: ["0", "1", "2"], max_tokens: 1}
edges: [start -> caller, caller -> executor, executor -> done]
output: executor
"""


@pytest.fixture
def relay() -> Scenario:
    return build_scenario(ScenarioOptions(name="relay"))


def test_a_name_is_a_team_of_the_scenario(relay: Scenario) -> None:
    assert find_team(relay, "solo") is relay.teams["solo"]


def test_a_file_is_the_team_in_it(relay: Scenario, tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(TEAM)
    assert find_team(relay, str(path)) == load_team(path)


def test_an_unknown_name_is_explained(relay: Scenario) -> None:
    with pytest.raises(ConfigError, match=r"no team 'taem'. Did you mean 'team'.*algorithm.team=team.yaml"):
        find_team(relay, "taem")


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ("view: planner", "view: planer", "'caller' would see the view 'planer'.*Did you mean 'planner'"),
        ("view: planner, ", "", "'caller' would see the view 'caller'"),
        ("output: executor", "output: executor\nseat: tem", "no seat 'tem'.*Did you mean 'team'"),
    ],
)
def test_a_file_that_does_not_fit_the_scenario_is_refused(
    old: str, new: str, text: str, relay: Scenario, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text(TEAM.replace(old, new))
    with pytest.raises(ConfigError, match=text):
        find_team(relay, str(path))


SEATS = """
name: mine
roles:
  left: {type: executor, view: player_0, template: "A{seen}>"}
  coach: {type: planner, view: hints, template: "C{seen}>"}
  right: {type: executor, view: player_1, template: "B{seen}>"}
seats: {player_0: left, player_1: right}
edges: [start -> coach, coach -> left, start -> right, left -> done, right -> done]
output: left
"""


def test_no_agent_of_a_seat_may_see_what_another_seat_knows(tmp_path: Path) -> None:
    views = ("player_0", "player_1", "hints")
    world = EnvironmentSpec(name="duel", seats=views[:2], views=views, max_turns=2, terms=("payoff",))
    duel: Any = SimpleNamespace(name="duel", environment=lambda: SimpleNamespace(spec=world), teams={})
    path = tmp_path / "mine.yaml"
    path.write_text(SEATS)
    assert find_team(duel, str(path)).seats == {"player_0": "left", "player_1": "right"}
    for old, agent in (("view: player_0", "left"), ("view: hints", "coach")):
        path.write_text(SEATS.replace(old, "view: player_1"))
        with pytest.raises(ConfigError, match=f"'{agent}' plays for seat 'player_0' and would see .*'player_1'"):
            find_team(duel, str(path))


def test_a_missing_file_is_a_graph_error(relay: Scenario, tmp_path: Path) -> None:
    with pytest.raises(GraphError, match="cannot be read"):
        find_team(relay, str(tmp_path / "none.yaml"))


def test_a_team_file_is_trained_evaluated_played_and_kept(
    mas: Callable[..., Any], small_overrides: tuple[str, ...], tmp_path: Path
) -> None:
    path, run = tmp_path / "mine.yaml", tmp_path / "run"
    path.write_text(TEAM)
    words = ["scenario=relay", f"algorithm.team={path}", "train.tasks_per_step=2", "train.eval_tasks=4"]
    words += ["algorithm.sampler.candidates=2", *small_overrides, f"run_dir={run}"]
    assert mas("train", *words, "train.steps=1").code == 0
    assert sorted(adapter.name for adapter in (run / "adapters").iterdir()) == ["caller", "executor"]
    assert load_team(run / "team.yaml") == load_team(path)
    assert "caller" in mas("run", str(run)).out
    assert mas("eval", str(run), "--tasks", "2").code == 0
    assert mas("report", str(run)).code == 0
    path.write_text(TEAM.replace("[a, b, c, d]", "[a, b]"))
    ran = mas("train", *words, "train.steps=2")
    assert ran.code == 2
    assert "which is not the team now" in ran.err
