"""What holds for all scenarios: disjoint splits, demonstrations, options and fingerprints."""

import itertools
from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import ClassVar

import msgspec
import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Task, random_script
from mas.core.errors import ConfigError
from mas.core.naming import local_name
from mas.core.scenario import Scenario
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.plan_path import PathEnvironment, PathRules
from mas.scenarios.world import FolderScenario, QuestionWorld, RecordWorld, is_held_out, split_task
from mas.training.evaluate import scripted


@pytest.fixture(params=sorted(name for name, entry in SCENARIOS.items() if entry.is_demonstrated))
def scenario(request: pytest.FixtureRequest) -> Scenario:
    return build_scenario(ScenarioOptions(name=request.param))


def contents(scenario: Scenario, split: str, count: int) -> set[str]:
    """Fingerprints of the first states of a split's tasks."""
    found = set()
    for index in range(count):
        environment = scenario.environment()
        environment.reset(scenario.task(split, index))
        found.add(environment.state_key())
    return found


def test_no_content_of_a_training_task_is_in_the_evaluation(scenario: Scenario) -> None:
    assert contents(scenario, "train", 600).isdisjoint(contents(scenario, "eval", 300))


def test_the_same_index_is_the_same_task(scenario: Scenario) -> None:
    again = build_scenario(ScenarioOptions(name=scenario.name))
    for split in ("train", "eval"):
        tasks = [scenario.task(split, index) for index in range(20)]
        assert [again.task(split, index) for index in range(20)] == tasks
        assert len({task.id for task in tasks}) == 20
        assert {task.split for task in tasks} == {split}


def test_every_team_compiles_and_a_team_and_a_solo_agent_exist(scenario: Scenario) -> None:
    assert isinstance(scenario, Scenario)
    assert {"team", "solo"} <= set(scenario.teams)
    for team in scenario.teams.values():
        plan = compile_team(team, build_roles(team))
        views = {role.spec.view or local_name(agent) for agent, role in plan.roles.items()}
        assert views <= set(scenario.environment().spec.views)
        assert set(team.plays) <= set(scenario.environment().spec.seats)


def test_demonstrations_are_endless_repeatable_and_half_right_for_a_noisy_teacher(scenario: Scenario) -> None:
    expert = list(itertools.islice(scenario.demonstrations(3, expert=True), 300))
    assert list(itertools.islice(scenario.demonstrations(3, expert=True), 300)) == expert
    assert list(itertools.islice(scenario.demonstrations(4, expert=True), 300)) != expert
    assert list(itertools.islice(scenario.demonstrations(3, expert=False), 300)) != expert
    assert all(prompt.endswith(">") and answer for prompt, answer in expert)


def test_the_fingerprint_tells_options_apart(scenario: Scenario) -> None:
    same = build_scenario(ScenarioOptions(name=scenario.name))
    other = build_scenario(ScenarioOptions(name=scenario.name, options={"skill": 0.11}))
    assert same.fingerprint() == scenario.fingerprint() != other.fingerprint()


@pytest.mark.nightly(of=16)
def test_a_random_player_mostly_fails(scenario: Scenario) -> None:
    # relay: one of four digits; two_hop: one of six symbols; plan_path: a walk of legal moves, see there.
    wanted = {"relay": 1 / 4, "two_hop": 1 / 6}
    measured = scripted(scenario, random_script, 400, seed=0)
    if measured is None:  # its actions cannot be listed
        assert scenario.name in {"questions", "workflow"}
    elif scenario.name in wanted:
        # Four standard deviations of a share of 400 draws: 4 sqrt(p (1 - p) / 400) < 0.09.
        assert measured.success == pytest.approx(wanted[scenario.name], abs=0.09)
    else:
        assert measured.success < 0.75
    assert scripted(scenario, random_script, 400, seed=0) == measured


def test_an_unknown_scenario_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match="Did you mean 'plan_path'"):
        build_scenario(ScenarioOptions(name="plan_pth"))


def test_an_unknown_option_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ConfigError, match=r"scenario\.options\.sise.*Did you mean 'size'"):
        build_scenario(ScenarioOptions(name="plan_path", options={"sise": 4}))


@pytest.mark.parametrize("options", [{"size": 2}, {"size": 11}, {"walls": -1}, {"size": 4, "walls": 5}, {"skill": 1.0}])
def test_impossible_options_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="scenario 'plan_path'"):
        build_scenario(ScenarioOptions(name="plan_path", options=options))


def test_a_task_has_the_content_of_its_first_state_and_a_world_that_says_none_is_refused() -> None:
    scenario = build_scenario(ScenarioOptions(name="plan_path"))
    assert isinstance(scenario, FolderScenario)
    task, environment = scenario.task("eval", 3), scenario.environment()
    environment.reset(task)
    assert scenario.content_of(task) == environment.content_of(environment.state)
    drawn = replace(scenario, content=lambda random: f"{random.random()}")
    assert drawn.content_of(task) == f"{Random(task.seed).random()}"

    class Untold(PathEnvironment):
        content_of = RecordWorld.content_of

    silent = replace(scenario, make_environment=lambda: Untold(PathRules()))
    with pytest.raises(ConfigError, match=r"Untold has no content_of\(state\), and its scenario no content: write one"):
        silent.task("train", 0)


def test_a_split_without_a_task_is_an_error_and_no_endless_search() -> None:
    def alike(seed: int) -> str:
        return "always the same"

    name = next(name for name in "abcdefgh" if is_held_out(name, "always the same"))
    assert split_task(name, "eval", 0, alike).split == "eval"
    with pytest.raises(ConfigError, match=f"scenario '{name}' has no task for the split 'train'"):
        split_task(name, "train", 0, alike)


class EchoState(msgspec.Struct, frozen=True):
    word: str
    answer: str | None = None


class EchoWorld(QuestionWorld[EchoState]):
    state_type = EchoState
    listed: ClassVar[tuple[str, ...] | None] = None

    def initial(self, task: Task) -> EchoState:
        return EchoState("ab"[task.seed % 2])

    def fields(self, state: EchoState, view: str) -> Mapping[str, str]:
        return {"word": state.word}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return super().legal(seat) if self.listed is None else self.listed

    def is_solved(self, state: EchoState) -> bool:
        return state.answer == state.word

    def render(self) -> str:
        return self.state.word


@pytest.mark.parametrize(
    ("listed", "said", "kept", "right", "is_legal"),
    [
        (None, "a", "a", 1.0, True),
        (None, "anything", "anything", 0.0, True),
        (("a", "b"), "b", "b", 0.0, True),
        (("a", "b"), "anything", "", 0.0, False),
        (("a", "b"), "", "", 0.0, True),
    ],
)
def test_a_world_of_one_question_ends_with_its_answer_and_keeps_no_text_that_is_none(
    monkeypatch: pytest.MonkeyPatch, listed: tuple[str, ...] | None, said: str, kept: str, right: float, is_legal: bool
) -> None:
    monkeypatch.setattr(EchoWorld, "listed", listed)
    world = EchoWorld("echo", ("solo",))
    world.reset(Task(id="0", seed=0))
    assert world.to_move() == ("team",)
    step = world.step({"team": said})
    assert (world.state.answer, step.rewards, step.illegal) == (
        kept,
        {"team": {"right": right}},
        () if is_legal else ("team",),
    )
    assert (world.to_move(), world.success()) == ((), right == 1)
