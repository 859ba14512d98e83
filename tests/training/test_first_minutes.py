"""What a user sees and waits for before the first step: the first evaluation, estimates, where the time goes."""

import io
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from conftest import BaseFor
from parts import SKILLED
from rich.console import Console
from watched import Seen

from mas.config.load import load_config
from mas.config.options import Config
from mas.core.role import View
from mas.core.scenario import Scenario
from mas.core.tracing import in_environment, measuring
from mas.graph.load import find_team, load_team
from mas.graph.plan import compile_team
from mas.observe.metrics import read_metrics
from mas.roles import build_roles
from mas.runs.report import build_report
from mas.runs.resolve import resolve, resolve_training
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario
from mas.serving.base_measures import Speed, measure_speed
from mas.serving.model import BaseModel
from mas.training.estimates import Work, earlier_calls, rows_of
from mas.training.evaluate import Evaluation
from mas.training.trainer import Trainer, TrainingOutcome
from mas.training.watch import RunWatcher


def config_of(**train: Any) -> Config:
    return Config.model_validate(
        {
            "scenario": {"name": "relay"},
            "model": SKILLED.model_dump(),
            "algorithm": {"sampler": {"candidates": 4}},
            "train": {"steps": 2, "tasks_per_step": 4, "eval_tasks": 5, "eval_every": 0} | train,
        }
    )


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


@pytest.fixture
def scenario() -> Scenario:
    return build_scenario(config_of().scenario)


Phases = list[tuple[str, int, int]]


async def train(config: Config, scenario: Scenario, base: BaseModel) -> tuple[TrainingOutcome, Seen, Phases]:
    seen, phases = Seen(), Phases()
    outcome = await Trainer(resolve_training(config, scenario), base).run(seen, lambda *told: phases.append(told))
    return outcome, seen, phases


async def test_training_without_the_first_evaluation_ends_with_the_same_weights(
    base: BaseModel, scenario: Scenario
) -> None:
    (whole, with_first, _), (less, without, _) = [
        await train(config_of(eval_first=first), scenario, base) for first in (True, False)
    ]
    assert len(with_first.curve) == 2
    assert len(without.curve) == 1, "only the one at the end"
    for name, weights in whole.adapters.items():
        pairs = zip(weights.parameters(), less.adapters[name].parameters(), strict=True)
        assert all(torch.equal(a, b) for a, b in pairs)


async def test_every_phase_is_told_as_it_begins_and_evaluations_task_by_task(
    base: BaseModel, scenario: Scenario
) -> None:
    _, _, phases = await train(config_of(steps=1, eval_tasks=2), scenario, base)
    evaluation = [(f"{kind} evaluation", done, 2) for kind in ("greedy", "sampled") for done in (0, 1, 2)]
    step = [(name, 0, 0) for name in ("sampling", "learning", "publishing")]
    assert phases == [*evaluation, *step, *evaluation]


async def test_the_seconds_of_environments_are_measured_within_those_of_sampling(
    base: BaseModel, scenario: Scenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, taken = type(scenario.environment()), list[float]()
    for name in ("reset", "step", "observe", "clone", "state_key"):
        call = getattr(kind, name)

        def slow(*given: Any, call: Callable[..., Any] = call) -> Any:
            began = time.perf_counter()
            while time.perf_counter() - began < 1e-3:
                pass
            try:
                return call(*given)
            finally:
                taken.append(time.perf_counter() - began)

        monkeypatch.setattr(kind, name, slow)
    trainer = Trainer(resolve_training(config_of(steps=1, eval_first=False, eval_tasks=1), scenario), base)
    seen = Seen()
    marks = dict[str, int]()
    await trainer.run(seen, lambda what, done, of: marks.setdefault(what, len(taken)))
    (metrics,) = seen.metrics
    spent = sum(taken[marks["sampling"] : marks["learning"]])
    assert spent > 0.02, "four tasks are reset, observed, cloned and stepped"
    # What is called around sampling (rendering a record, say) may miss in the count; calls themselves may not.
    assert metrics["seconds"]["environment"] == pytest.approx(spent, rel=0.1)
    assert metrics["seconds"]["environment"] < metrics["seconds"]["sample"]


def test_a_stopwatch_adds_up_what_tasks_of_its_block_measure_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    now = iter([10.0, 13.0, 20.0, 24.0])
    monkeypatch.setattr(time, "perf_counter", lambda: next(now))
    with in_environment():  # nobody measures: the clock is not read
        pass
    with measuring() as measured:
        with in_environment():
            pass
        with pytest.raises(ValueError, match="broken"), in_environment():
            raise ValueError("broken")
    assert measured.seconds == 3.0 + 4.0


def test_the_bound_of_a_task_is_its_turns_with_the_longest_answers(base: BaseModel, scenario: Scenario) -> None:
    config = config_of()
    team, world = scenario.teams["team"], scenario.environment()
    world.reset(scenario.task("eval", 0))
    turns, work = world.spec.max_turns, Work.bound(resolve(config, scenario), base.text)
    assert work.calls == 2 * turns
    assert work.new_tokens == turns * sum(role.max_tokens for role in team.roles.values())
    assert work.width <= base.limits.context


@pytest.mark.parametrize(
    ("spec", "most"),
    [
        ({}, 1),
        ({"context": "turn"}, 3),
        ({"context": "none"}, 0),
        ({"ask": "{x}"}, 0),
        ({"history": 0}, 0),
        ({"history": 5}, 5),
        ({"history": 50, "ask": "{x}"}, 19),
    ],
)
def test_a_prompt_shows_at_most_so_many_earlier_calls(spec: dict[str, Any], most: int) -> None:
    """Of an agent that is asked up to four times in each of five team turns."""
    verifier = {"type": "verifier", "view": "solo"}
    team = load_team(
        {"name": "loop", "roles": {"a": {"type": "executor", "view": "solo"} | spec, "b": verifier}, "output": "a",
         "edges": ["start -> a", "a -> b", "b -> a when reject loop 3", "b -> done when accept"], "joins": {"a": "any"}}
    )  # fmt: skip
    assert earlier_calls(compile_team(team, build_roles(team)), "a", 5) == most


def test_estimates_follow_from_work_and_speed() -> None:
    work, speed = Work(2.0, prompt_tokens=100.0, new_tokens=10.0, width=60), Speed(1000.0, 50.0, 32)
    # A task: 100 / 1000 s of prompts and 10 / 50 s of new tokens. Five tasks, greedy and sampled:
    setup = resolve(config_of())
    assert work.evaluation_s(speed, setup) == pytest.approx(2 * 5 * (0.1 + 0.2))
    # A step of four tasks x four candidates: 4 prompts, 16 answers; learning: three forward passes of all of it.
    assert rows_of(setup) == 16
    assert work.step_s(speed, setup) == pytest.approx(4 * 0.1 + 16 * 0.2 + 3 * (400 + 160) / 1000)
    # Where prompts begin alike, that is read once: 60 of 100 tokens.
    alike = Work(2.0, prompt_tokens=100.0, new_tokens=10.0, width=60, common=0.6)
    assert alike.evaluation_s(speed, setup) == pytest.approx(0.06 + 2 * 5 * (0.04 + 0.2))


def test_rows_that_are_decoded_together_share_the_time_of_a_pass() -> None:
    # A pass with four rows takes 4 / 40 = 0.1 s, half of it with any number of rows: 0.05 + 0.0125 x rows.
    work, speed = Work(2.0, prompt_tokens=100.0, new_tokens=10.0, width=60), Speed(1000.0, 40.0, 4, fixed=0.5)
    assert speed.new_tps_with(4) == 40.0
    assert speed.new_tps_with(1) == pytest.approx(1 / 0.0625)
    assert speed.new_tps_with(16) == pytest.approx(16 / 0.25)
    setup = resolve(config_of())
    # Five held-out tasks at once, twice: 0.05 + 5 x 0.0125 s for five tokens. A step has 16 rows.
    assert work.evaluation_s(speed, setup) == pytest.approx(2 * 5 * (0.1 + 10 * 0.1125 / 5))
    assert work.step_s(speed, setup) == pytest.approx(4 * 0.1 + 160 * 0.25 / 16 + 3 * (400 + 160) / 1000)
    narrow = replace(setup, model=setup.model.model_copy(update={"max_batch": 4}))
    assert work.step_s(speed, narrow) == pytest.approx(4 * 0.1 + 160 / 40 + 3 * (400 + 160) / 1000)


@pytest.mark.parametrize(
    ("prompt_s", "rows", "passes"),
    [(1e-3, 32, [1, 1, 4, 4, 32]), (0.05, 32, [1, 1, 32]), (0.2, 4, [1, 1, 4])],
    ids=["fast", "slow", "a prompt takes more than two seconds"],
)
def test_what_a_pass_takes_with_any_number_of_rows_is_measured(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch, prompt_s: float, rows: int, passes: list[int]
) -> None:
    measured = list[int]()

    def of_rows(_: BaseModel, rows: int, prompt: int = 16) -> Speed:
        measured.append(rows)
        return Speed(1 / prompt_s, rows / (0.05 + 0.0125 * rows), rows)

    monkeypatch.setattr("mas.serving.base_measures._measured", of_rows)
    speed = measure_speed(base, 100)
    assert (measured, speed.rows) == (passes, rows)
    for many in (1, 4, 32, 100):
        assert speed.new_tps_with(many) == pytest.approx(many / (0.05 + 0.0125 * many))


def test_what_prompts_of_a_role_have_in_common_is_known_from_two_tasks(base: BaseModel, scenario: Scenario) -> None:
    setup = resolve(config_of(), scenario)
    roles, found = build_roles(setup.team), list[list[list[int]]]()
    for number in (0, 1):
        world = scenario.environment()
        world.reset(scenario.task("eval", number))
        views = {agent: View(observation=world.observe(agent)) for agent in setup.team.members()}
        found.append([base.tokenizer.encode(roles[agent].prompt(view)) for agent, view in views.items()])
    alike = sum(
        next(n for n, (a, b) in enumerate(zip(*two, strict=False)) if a != b) for two in zip(*found, strict=True)
    )
    assert Work.bound(setup, base.text).common == pytest.approx(alike / sum(map(len, found[0])))
    assert alike > 0


def test_the_speed_is_measured_with_as_many_rows_as_are_decoded_together(base: BaseModel) -> None:
    for wanted, measured in ((1, 1), (4, 4), (100, 32)):
        speed = measure_speed(base, wanted)
        assert speed.rows == measured
        assert speed.prompt_tps > 0
        assert speed.new_tps > 0


def printed(run: Path, *overrides: str) -> tuple[str, Config]:
    short = ["scenario=relay", "train.steps=2", "train.tasks_per_step=2", "train.eval_tasks=3", "train.eval_every=0"]
    config = load_config([*short, *overrides, "algorithm.sampler.candidates=3", f"run_dir='{run}'"])
    console = Console(file=io.StringIO(), width=300)
    train_in_directory(config, build_scenario(config.scenario), console=console)
    return console.file.getvalue(), config


def test_a_run_says_what_the_first_evaluation_and_all_steps_will_take_and_where_the_time_went(
    tmp_path: Path, small_overrides: tuple[str, ...], base_for: BaseFor
) -> None:
    base_for("relay")
    text, config = printed(tmp_path / "run", *small_overrides)
    lines = text.splitlines()
    first = next(n for n, line in enumerate(lines) if line.startswith("evaluation before step 1: 3 held-out tasks, "))
    then = next(n for n, line in enumerate(lines) if line.startswith("2 steps and 1 evaluation: about "))
    assert "at most about" in lines[first]
    assert "new tokens/s with 6 rows at once" in lines[then]
    assert first < then < next(n for n, line in enumerate(lines) if line.startswith("step 2/2 "))
    assert lines[-1].startswith("time 0:0")
    assert "environment" in lines[-1]
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["seconds"]["evaluate"].keys() for row in rows if "eval" in row] == [{"greedy"}, {"sampled"}] * 2
    spec = find_team(build_scenario(config.scenario), "team")
    report = build_report(tmp_path / "run", config, compile_team(spec, build_roles(spec)))
    (spent,) = (number for number in report.numbers if number.label == "time")
    assert spent.note.startswith("sampling ")


def watched(*, speed: Speed | None, earlier: Sequence[Mapping[str, Any]] = ()) -> tuple[RunWatcher, io.StringIO]:
    target = io.StringIO()
    console = Console(file=target, width=100, force_terminal=True, color_system=None)
    work, logs = Work(2.0, prompt_tokens=100.0, new_tokens=10.0, width=60), Mock()
    clock = iter(range(99)).__next__
    watcher = RunWatcher(
        resolve(config_of()), logs, logs, console, work=work, speed=speed, earlier=earlier, clock=clock
    )
    return watcher, target


def test_the_time_left_is_shown_before_the_first_evaluation() -> None:
    watcher, shown = watched(speed=Speed(1000.0, 50.0, 32))
    with watcher:
        watcher.on_resume(0)
    # 3 s for an evaluation, now and at the end, and two steps of 5.28 s each: 16.56 s.
    assert "left 0:00:16" in shown.getvalue()
    assert "greedy and sampled, at most about 3 s, and 17 s with all that follows (fewer:" in " ".join(
        shown.getvalue().split()
    )


def test_without_a_measured_speed_the_time_left_follows_from_the_first_evaluation() -> None:
    watcher, shown = watched(speed=None)
    played = Evaluation(success=0.5, turns=1, passes=0, failures=0, unplayed=0, tokens=1, episodes=())
    with watcher:
        watcher.on_resume(0)
        for name in ("greedy", "sampled"):
            watcher.on_phase(f"{name} evaluation", 0, 5)
            watcher.on_evaluation(0, name, played)
    # An evaluation of twice five tasks took 2 s. Two steps of 16 episodes and the last evaluation: 2 x 3.2 + 2 s.
    assert (
        "2 steps and 1 evaluation: about 9 s without learning, sampling as fast as the evaluation" in shown.getvalue()
    )


def test_half_an_evaluation_says_as_much_about_a_step() -> None:
    watcher, shown = watched(speed=None, earlier=[{"seconds": {"evaluate": {"greedy": 10.0}}}])
    with watcher:
        watcher.on_resume(1)
    # Five tasks took 10 s: the one step left, of 16 episodes, takes 32 s.
    assert "at most about 32 s without learning" in shown.getvalue()


def test_a_run_may_leave_the_first_evaluation_out_from_one_start_to_the_next(
    tmp_path: Path, small_overrides: tuple[str, ...], base_for: BaseFor
) -> None:
    base_for("relay")
    text, config = printed(tmp_path / "run", *small_overrides, "train.eval_first=false")
    assert "evaluation before step 1" not in text
    assert "2 steps and 1 evaluation: at most about " in text
    rows = read_metrics(tmp_path / "run" / "metrics.jsonl")
    assert [row["step"] for row in rows if "eval" in row] == [2, 2]
    spec = find_team(build_scenario(config.scenario), "team")
    report = build_report(tmp_path / "run", config, compile_team(spec, build_roles(spec)))
    assert "(step 2, the first that was evaluated)" in report.headline[0]
    text, _ = printed(tmp_path / "run", *small_overrides, "train.steps=3", "train.eval_first=true")
    assert "1 step and 1 evaluation: about " in text, "as long as the steps that were measured before"
    assert "estimated" not in text
