"""What training plays: arms with their scenarios, the trainer that asks for them, and a run that is resumed."""

import json
from collections.abc import Callable, Mapping, Sequence, Set
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from conftest import BaseFor
from parts import SKILLED, make_turn

from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.config.load import load_config, overrides_of
from mas.config.options import Config, ScenarioOptions
from mas.core.errors import CheckpointError, ConfigError
from mas.core.records import Episode
from mas.core.scenario import Pick, Scenario, SplitByContent, TaskOutcome
from mas.observe.metrics import read_metrics
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.scenarios.world import FolderScenario
from mas.training.evaluate import Evaluation
from mas.training.setup import plan_tasks
from mas.training.tasks.plan import TaskPlan, build_arms, outcome_of
from mas.training.trainer import Trainer

RELAY = {"first": {"options": {"skill": 0.3}}, "second": {"options": {"skill": 0.2}}}
STAGES: dict[str, Any] = {"source": "curriculum", "arms": RELAY, "threshold": 0.01, "patience": 1}


def config_of(tasks: dict[str, Any], scenario: str = "relay", **train: Any) -> Config:
    options = {"steps": 4, "tasks_per_step": 4, "eval_tasks": 2, "eval_every": 0, "checkpoint_every": 1} | train
    return Config.model_validate(
        {
            "scenario": {"name": scenario},
            "model": SKILLED.model_dump(),
            "algorithm": {"sampler": {"candidates": 2}},
            "train": {**options, "tasks": tasks},
        }
    )


def plan_of(config: Config) -> TaskPlan:
    return plan_tasks(resolve_training(config))


class Killed(Exception):
    """Stands for the end of the process."""


class Notes:
    """A watcher that remembers the tasks of every step, and kills the run after one of them."""

    def __init__(self, killed_after: int | None = None) -> None:
        self.tasks: dict[int, list[str]] = {}
        self.metrics: dict[int, Any] = {}
        self._killed_after = killed_after

    def on_resume(self, step: int) -> None:
        pass

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Episode]) -> None:
        self.tasks[step] = [episode.task for episode in episodes]
        self.metrics[step] = metrics.get("tasks")
        if step == self._killed_after:
            raise Killed

    def on_note(self, step: int, note: Mapping[str, Any]) -> None:
        """Only editors leave notes."""

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        pass


@pytest.mark.parametrize(
    "tasks",
    [
        {"source": "epochs", "count": 5, "replay": {"share": 0.5}},
        {"source": "mixture", "arms": RELAY},
        STAGES,
        {"source": "progress", "arms": RELAY, "replay": {"share": 0.25}},
    ],
    ids=lambda tasks: tasks["source"],
)
async def test_a_run_that_is_killed_and_resumed_plays_the_tasks_of_one_that_was_not(
    tasks: dict[str, Any], base_for: BaseFor, tmp_path: Path
) -> None:
    base, config = base_for("relay", SKILLED), config_of(tasks)
    scenario = build_scenario(config.scenario)
    whole, before, after = Notes(), Notes(killed_after=3), Notes()
    straight = await Trainer(resolve_training(config, scenario), base).run(whole)
    with pytest.raises(Killed):
        await Trainer(resolve_training(config, scenario), base, checkpoints=tmp_path).run(before)
    # Killed in step 3, which has no checkpoint: it is played again.
    second = Trainer(resolve_training(config, scenario), base, checkpoints=tmp_path)
    assert second.resume()
    resumed = await second.run(after)
    assert list(after.tasks) == [3, 4]
    assert before.tasks | after.tasks == whole.tasks
    assert before.metrics | after.metrics == whole.metrics
    assert resumed.progress == straight.progress
    for name, weights in straight.adapters.items():
        pairs = zip(weights.parameters(), resumed.adapters[name].parameters(), strict=True)
        assert all(torch.equal(mine, other) for mine, other in pairs)


class Countdown:
    """A user's own source: the tasks from the hundredth on, backwards."""

    def __init__(self) -> None:
        self._next = 99
        self.told: list[TaskOutcome] = []

    def draw(self, step: int, count: int, without: Set[Pick] = frozenset()) -> Sequence[Pick]:
        self._next -= count
        return [Pick("own", self._next + count - place) for place in range(count)]

    def tell(self, outcomes: Sequence[TaskOutcome]) -> None:
        self.told += outcomes

    def state(self) -> Mapping[str, Any]:
        return {"next": self._next}

    def restore(self, state: Mapping[str, Any]) -> None:
        self._next = state["next"]

    def metrics(self) -> Mapping[str, float]:
        return {"next": self._next}


async def test_a_source_of_ones_own_is_what_the_steps_play(base_for: BaseFor) -> None:
    notes, source = Notes(), Countdown()
    setup = resolve_training(config_of({}, steps=2))
    arms = {"own": next(iter(setup.arms.values()))}
    outcome = await Trainer(setup, base_for("relay", SKILLED), tasks=TaskPlan(source, arms)).run(notes)
    # two steps of four tasks
    assert [one.pick.index for one in source.told] == [99, 98, 97, 96, 95, 94, 93, 92]
    assert notes.metrics[2]["next"] == 91
    assert outcome.progress.tasks["source"] == {"next": 91}


async def test_a_curriculum_goes_through_its_stages_and_the_log_says_how_they_went(base_for: BaseFor) -> None:
    config = config_of(STAGES, tasks_per_step=8)
    notes = Notes()
    scenario = build_scenario(config.scenario)
    await Trainer(resolve_training(config, scenario), base_for("relay", SKILLED)).run(notes)
    stages = [notes.metrics[step]["stage"] for step in notes.metrics]
    played = [{task.partition(":")[0] for task in notes.tasks[step]} for step in notes.tasks]
    # A step of eight tasks, of which one is solved, is enough for the threshold of 0.01.
    ends = stages.index(1.0)
    assert played == [{"first"}] * (ends + 1) + [{"second"}] * (3 - ends)
    assert notes.metrics[1]["arms"]["first"]["count"] == 8
    assert set(notes.metrics[4]["arms"]) == {"second"}


async def test_a_run_as_it_always_was_has_no_state_and_no_metrics_of_tasks(base_for: BaseFor, tmp_path: Path) -> None:
    config, notes = config_of({}, steps=1), Notes()
    trainer = Trainer(resolve_training(config), base_for("relay", SKILLED), checkpoints=tmp_path)
    outcome = await trainer.run(notes)
    assert outcome.progress.tasks == {}
    assert notes.metrics == {1: None}
    state = tmp_path / "step-000001" / "state.json"
    assert json.loads(state.read_text())["tasks"] == {}


def test_tasks_of_two_arms_have_two_names() -> None:
    plan = plan_of(config_of({"source": "mixture", "arms": RELAY}))
    planned = plan.draw(0, 4)
    assert [one.pick.arm for one in planned] == ["first", "first", "second", "second"]
    assert all(one.task.id == f"{one.pick.arm}:train-{one.pick.index}" for one in planned)
    assert [one.scenario for one in planned] == [plan.scenarios[0]] * 2 + [plan.scenarios[1]] * 2


def initial_states(plan: TaskPlan, steps: int) -> set[str]:
    found = set()
    for step in range(steps):
        for one in plan.draw(step, 50):
            environment = one.scenario.environment()
            environment.reset(one.task)
            found.add(environment.state_key())
    return found


def test_no_arm_trains_on_what_the_run_evaluates() -> None:
    # The same grids with more turns: where their own split puts them says nothing of where the run's does.
    arms = {"short": {"options": {"max_turns": 9}}, "long": {"options": {"max_turns": 20}}}
    config = config_of({"source": "mixture", "arms": arms}, "plan_path")
    own = build_scenario(config.scenario)
    assert isinstance(own, SplitByContent)
    other = build_scenario(ScenarioOptions(name="plan_path", options={"max_turns": 9}))
    assert isinstance(other, SplitByContent)
    leaked = [index for index in range(200) if own.holds_out(other.content_of(other.task("train", index)))]
    assert leaked, "without a judge some would be trained on"
    for one in (one for step in range(8) for one in plan_of(config).draw(step, 50)):
        assert isinstance(one.scenario, SplitByContent)
        assert not own.holds_out(one.scenario.content_of(one.task))


def test_an_arm_with_the_runs_own_options_has_its_tasks() -> None:
    config = config_of({"source": "mixture", "arms": {"same": {}, "other": {"options": {"skill": 0.1}}}})
    own = build_scenario(config.scenario)
    for one in plan_of(config).draw(0, 20):
        if one.pick.arm == "same":
            assert one.task.seed == own.task("train", one.pick.index).seed


@pytest.mark.parametrize(
    ("arms", "text"),
    [
        (
            {"a": {}, "b": {"scenario": "plan_path"}},
            r"arms\.b: team 'team' of 'plan_path'.*another than that of 'relay'",
        ),
        ({"a": {}, "b": {"scenario": "rellay"}}, r"arms\.b: no scenario 'rellay'\. Did you mean 'relay'"),
        ({"a": {}, "b": {"options": {"skil": 1}}}, r"arms\.b: .*scenario\.options\.skil.*Did you mean 'skill'"),
    ],
)
def test_an_arm_that_cannot_be_one_is_refused(arms: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        plan_of(config_of({"source": "mixture", "arms": arms}))


def test_arms_of_a_scenario_that_does_not_say_what_it_holds_out_are_refused() -> None:
    def closed(options: ScenarioOptions) -> Scenario:
        inner = build_scenario(options)
        names = ("name", "reward", "teams", "environment", "task", "demonstrations", "fingerprint")
        made: Scenario = type("Closed", (), {name: getattr(inner, name) for name in names})()
        return made

    config = config_of(STAGES)
    with pytest.raises(ConfigError, match="does not say which contents it holds out"):
        build_arms(config.train.tasks, config.scenario, "team", closed(config.scenario), closed)


def test_an_arm_whose_tasks_are_all_evaluated_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(FolderScenario, "holds_out", lambda scenario, content: True)
    with pytest.raises(ConfigError, match="1000 tasks of this arm are all in the evaluation of 'relay'"):
        plan_of(config_of(STAGES)).draw(0, 1)


@pytest.mark.parametrize(
    ("tasks", "text"),
    [
        ({**STAGES, "arms": {"second": RELAY["second"], "first": RELAY["first"]}}, "in this order"),
        ({**STAGES, "arms": {**RELAY, "first": {"options": {"skill": 0.4}}}}, "tasks of arm 'first' are others"),
        ({"source": "epochs", "count": 5}, "it has the arms"),
    ],
)
def test_a_checkpoint_of_other_tasks_is_refused(tasks: dict[str, Any], text: str) -> None:
    state = plan_of(config_of(STAGES)).state()
    with pytest.raises(CheckpointError, match=text):
        plan_of(config_of(tasks)).restore(state)


def test_a_checkpoint_without_tasks_is_for_runs_that_need_none() -> None:
    plan_of(config_of({})).restore({})
    with pytest.raises(CheckpointError, match="cannot go on from the checkpoint"):
        plan_of(config_of(STAGES)).restore({})


def test_an_outcome_is_what_the_played_episodes_brought() -> None:
    def episode(number: int, *, success: bool, reward: float, status: str = "done") -> Episode:
        turns = tuple(
            make_turn(group=group, trajectory=f"{number}", rewards={"team.right": value})
            for group, value in (("same", 1.0), ("apart", reward))
        )
        return Episode(
            id=f"{number}", task="t", success=success, turns=turns, lines=(), rewards={"right": reward},
            prompt_tokens=0, completion_tokens=0, calls=0, status=status,
        )  # fmt: skip

    pick, rewards, roles = Pick("own", 1), RewardOptions(), {"executor"}
    played = [episode(0, success=True, reward=1.0), episode(1, success=False, reward=0.0)]
    failed = episode(2, success=False, reward=9.0, status="failed")
    expected = TaskOutcome(pick=pick, success=0.5, reward=0.5, flat=0.5)
    assert outcome_of(pick, [*played, failed], rewards, roles) == expected
    assert outcome_of(pick, [failed], rewards, roles) is None
    # Where the team's differences are of roles that are not trained, there is nothing to learn.
    assert outcome_of(pick, [*played, failed], rewards, {"planner"}) == msgspec.structs.replace(expected, flat=1.0)
    # One episode alone is compared with nothing.
    assert outcome_of(pick, played[:1], rewards, roles) == TaskOutcome(pick=pick, success=1.0, reward=1.0, flat=1.0)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["train.tasks.source=curriculum"], "source=curriculum needs two arms or more, there are 0"),
        (["train.tasks.arms.a.weight=2"], "source=fresh has no arms"),
        (["train.tasks.count=5"], "train.tasks.source=fresh; only epochs has it"),
        (["train.tasks.replay.tries=5"], r"train\.tasks\.replay\.share=0 plays nothing again"),
        (["train.tasks.source=epoch"], "Did you mean 'epochs'"),
        (["train.tasks.source=epochs", "train.tasks.count=5", "train.tasks.threshold=0.5"], "only curriculum has it"),
        (["train.tasks.fast=0.1", "train.tasks.slow=0.2"], "slow=0.2 must be below fast=0.1"),
        (
            ["train.tasks.source=curriculum", "train.tasks.arms.a={}", "train.tasks.arms.b.weight=2"],
            "has no weights; only mixture has",
        ),
    ],
)
def test_options_that_do_not_fit_are_refused(words: list[str], text: str) -> None:
    with pytest.raises(ConfigError, match=text):
        load_config(["scenario=relay", *words])


def test_arms_can_be_written_as_overrides_and_keep_their_order() -> None:
    words = ["scenario=relay", "train.tasks.source=mixture"]
    words += ["train.tasks.arms.z.weight=3", "train.tasks.arms.a.options.skill=0.2"]
    config = load_config(words)
    assert list(config.train.tasks.arms) == ["z", "a"]
    assert config.train.tasks.arms["a"].options == {"skill": 0.2}
    again = load_config(overrides_of(config))
    assert again == config
    assert list(again.train.tasks.arms) == ["z", "a"]


def test_an_option_or_an_arm_may_be_called_like_a_weight() -> None:
    words = ["scenario=relay", "train.tasks.source=curriculum", "train.tasks.arms.weight.options.weight=1"]
    config = load_config([*words, "train.tasks.arms.b.options.skill=0.2"])
    assert config.train.tasks.arms["weight"].options == {"weight": 1}


def test_the_commands_take_arms(mas: Callable[..., Any], small_overrides: tuple[str, ...], tmp_path: Path) -> None:
    arms = ["train.tasks.source=mixture", "train.tasks.arms.a.options.skill=0.2", "train.tasks.arms.b.weight=3"]
    short = ("scenario=relay", "train.steps=1", "train.eval_tasks=2", "algorithm.sampler.candidates=2")
    ran = mas("train", *short, *small_overrides, *arms, "train.tasks_per_step=4", f"run_dir={tmp_path / 'run'}")
    assert ran.code == 0, ran.err
    told = [line["tasks"] for line in read_metrics(tmp_path / "run" / "metrics.jsonl") if "tasks" in line]
    assert {name: arm["count"] for name, arm in told[0]["arms"].items()} == {"a": 1, "b": 3}
    refused = mas("config", "scenario=relay", *arms, "train.tasks.arms.b.scenario=plan_path")
    assert refused.code == 2
    assert "another than that of 'relay'" in refused.err
