"""The protocol of a fair comparison: one grid for all, fresh seeds on other tasks, and tests of what was found."""

import json
import shutil
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import fmean

import pytest
from conftest import Ran
from pages import ROOT, blocks
from pydantic import ValidationError
from rich.console import Console

from mas.core.errors import ConfigError, GraphError, RunDirectoryError, TrainingError
from mas.core.records import Cost
from mas.runs.resolve import configured_scenario, resolve
from mas.study.held_out import HeldOutPart
from mas.study.options import read_preset
from mas.study.protocol import (
    ARMS,
    UNTRAINED,
    ProtocolCase,
    ProtocolOptions,
    StudyJob,
    SweepGrid,
    final_jobs,
    find_protocol,
    plan_text,
    sweep_jobs,
)
from mas.study.protocol_results import AXES, JobResult, best_points, comparisons
from mas.study.protocol_run import Work, printed_plan, run_job, run_protocol
from mas.training.check_setup import check_trainable
from mas.training.trainer import Trainer
from mas.training.watch import Point

CASES = "cases: {relay: {scenario: relay, budget: 9, run_s: 1}}\n"
GRID = SweepGrid(lr=(0.001, 0.01), minibatches=(1,), tasks_per_step=(2,))


def options_of(overrides: Sequence[str] = (), **more: object) -> ProtocolOptions:
    case = ProtocolCase(scenario="relay", budget=300, run_s=2.0, overrides=tuple(overrides))
    few = {"grid": GRID, "validation_tasks": 3, "test_tasks": 4, "curve_tasks": 2, "sweep_seeds": 1, "test_seeds": 2}
    return ProtocolOptions.model_validate({"cases": {"toy": case}} | few | more)


def result_of(job: StudyJob, greedy: float, sampled: float = 0.5) -> JobResult:
    spent = Cost(calls=9, prompt_tokens=100, shared_prompt_tokens=40, completion_tokens=30)
    points = [Point(cost=Cost(), optimiser_steps=0, seconds=0.0, value=0.1)]
    points += [Point(cost=spent, optimiser_steps=3, seconds=2.0, value=greedy)]
    return JobResult(
        job=job, greedy=greedy, sampled=sampled, cost=spent, task_cost=spent_of_a_task(), optimiser_steps=3,
        seconds=4.0, curve=() if job.arm == UNTRAINED else tuple(points),
    )  # fmt: skip


def spent_of_a_task() -> dict[str, float]:
    return {"calls": 2.0, "prompt_tokens": 7.0, "shared_prompt_tokens": 7.0, "completion_tokens": 3.0}


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ProtocolOptions:
    """The comparison on the page, with the algorithm's file beside it."""
    monkeypatch.chdir(tmp_path)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    (text,) = [block.text for block in blocks("docs/study.md", "yaml") if block.file == "compare.yaml"]
    Path("compare.yaml").write_text(text)
    options = find_protocol("compare.yaml")
    assert options is not None
    return options


def test_the_pages_comparison_of_ones_own_arms_is_a_protocol_that_can_be_trained(own: ProtocolOptions) -> None:
    assert {job.arm for job in sweep_jobs(own)} == {"grpo", "median"}
    for job in sweep_jobs(own):
        config = job.configure(own)
        assert config.train.token_budget == 30_000
        check_trainable(resolve(config, configured_scenario(config)))
    protocol_of(Path("out"), own, lambda _, job: result_of(job, greedy=0.5 + job.seed / 10_000))
    assert "| grpo - median | +0.000 |" in Path("out/results.md").read_text()


def protocol_of(directory: Path, options: ProtocolOptions, work: Work) -> None:
    run_protocol(directory, options, command="mas study", console=Console(quiet=True), workers=0, work=work)


def test_what_an_arms_file_says_is_part_of_what_its_results_depend_on(own: ProtocolOptions) -> None:
    done: list[str] = []

    def work(_: ProtocolOptions, job: StudyJob) -> JobResult:
        done.append(job.arm)
        return result_of(job, greedy=0.5)

    protocol_of(Path("out"), own, work)
    count = Counter(done)
    protocol_of(Path("out"), own, work)
    assert Counter(done) == count
    with Path("examples/median_grpo.py").open("a") as file:
        file.write("# another version\n")
    protocol_of(Path("out"), own, work)
    assert Counter(done) == {**count, "median": 2 * count["median"]}


def test_a_wrong_word_of_an_arm_is_told_before_the_first_run(own: ProtocolOptions) -> None:
    wrong = own.model_copy(update={"arms": {**own.arms, "median": ("learner.lrr=1",)}})
    with pytest.raises(ConfigError, match=r"case 'relay', arm 'median': no key 'learner\.lrr'.*Did you mean 'lr'"):
        protocol_of(Path("out"), wrong, lambda _, job: pytest.fail(f"{job} ran"))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, r"own\.yaml cannot be read: No such file"),
        (
            "cases: {relay: {scenario: relay, budget: 9, run_s: 1}}\nseeds: 3\n",
            r"is not a study:\n  - unknown key 'seeds'",
        ),
        (
            "cases: {relay: {scenario: relay, budget: 9, run_s: 1}}\nreference: grpo\n",
            r"reference='grpo' is none of the arms",
        ),
    ],
)
def test_a_file_that_is_no_study_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    path = tmp_path / "own.yaml"
    if text is not None:
        path.write_text(text)
    with pytest.raises(GraphError, match=said):
        find_protocol(str(path))


@pytest.mark.parametrize("name", ["fair", "fair_grid", "fair_llm", "fair_presets"])
def test_every_arm_of_a_preset_has_the_same_points_and_budget_and_ends_by_nothing_that_is_measured(name: str) -> None:
    options = read_preset(name, ProtocolOptions)
    jobs = sweep_jobs(options)
    for case, base in options.places():
        points = {
            arm: [(job.point, job.seed) for job in jobs if (job.case, job.base, job.arm) == (case, base, arm)]
            for arm in options.arms
        }
        assert len(options.grid_of(case).points()) >= (12 if options.cases[case].run_s < 60 else 3)  # minutes each
        assert len({tuple(own) for own in points.values()}) == 1
        for arm in options.arms:
            config = StudyJob(
                stage="test", case=case, base=base, arm=arm, point=points[arm][-1][0], seed=1001
            ).configure(options)
            train = config.train
            check_trainable(resolve(config, configured_scenario(config)))
            assert (train.target, train.token_budget, train.budget_prompts) == (
                None, options.cases[case].budget, options.budget_prompts
            )  # fmt: skip
            grid = options.grid_of(case)
            assert (config.learner.lr, config.learner.minibatches, train.tasks_per_step) == (
                grid.lr[-1], grid.minibatches[-1], grid.tasks_per_step[-1]
            )  # fmt: skip


def test_the_four_cells_differ_by_what_is_grouped_and_how_it_is_sampled_alone() -> None:
    options = options_of()
    found, others = {}, set()
    for arm in ("agent_turn_branching", "agent_turn_parallel", "episode_branching", "episode_parallel"):
        job = StudyJob(stage="sweep", case="toy", base="base", arm=arm, point=(), seed=0)
        algorithm = job.configure(options).algorithm
        found[arm] = (algorithm.sampler.mode, algorithm.advantage.key)
        others.add((algorithm.advantage.baseline, algorithm.advantage.scale, algorithm.loss.model_dump_json()))
    assert found == {
        "agent_turn_branching": ("tree", "group"),
        "agent_turn_parallel": ("parallel", "prompt"),
        "episode_branching": ("tree", "episode"),
        "episode_parallel": ("parallel", "group"),
    }
    assert len(others) == 1


def test_the_best_point_is_that_of_validation_and_sampled_success_parts_equals() -> None:
    options = options_of(sweep_seeds=2)
    arm, points = "episode_parallel", GRID.points()

    def swept(*reached: tuple[float, float]) -> list[JobResult]:
        own = [job for job in sweep_jobs(options) if job.arm == arm]
        return [result_of(job, *one) for job, one in zip(own, reached, strict=True)]

    # Seeds 0 and 1 of the first point, then of the second: means 0.5 and 0.6.
    assert best_points(swept((0.9, 0.0), (0.1, 0.0), (0.6, 0.0), (0.6, 0.0))) == {("toy", "base", arm): points[1]}
    # Equal means of 0.5: 0.2 against 0.3, and the first of equals.
    assert best_points(swept((0.9, 0.2), (0.1, 0.2), (0.5, 0.3), (0.5, 0.3)))["toy", "base", arm] == points[1]
    assert best_points(swept((0.9, 0.2), (0.1, 0.2), (0.5, 0.2), (0.5, 0.2)))["toy", "base", arm] == points[0]


def test_effects_are_paired_by_seed_and_corrected_over_the_study() -> None:
    options = options_of(test_seeds=4)
    reached = {
        "agent_turn_branching": (0.9, 0.8, 0.9, 0.8),
        "agent_turn_parallel": (0.7, 0.6, 0.7, 0.6),
        "episode_branching": (0.6, 0.5, 0.6, 0.5),
        "episode_parallel": (0.5, 0.4, 0.5, 0.4),
        "sft_only": (0.9, 0.8, 0.9, 0.8),
        UNTRAINED: (0.1, 0.2, 0.1, 0.2),
    }
    tested = [result_of(job, reached[job.arm][job.seed - 1000]) for job in final_jobs(options, {})]
    found = {one.what: one for one in comparisons(options, tested)}
    # (0.3 + 0.2) / 2 in every seed: grouping; (0.2 + 0.1) / 2: sampling; 0.2 - 0.1: the interaction.
    means = {name.partition(":")[0]: one.mean for name, one in found.items()}
    assert means["agent_turn_branching - episode_parallel"] == pytest.approx(0.4)
    assert means["grouping"] == pytest.approx(0.25)
    assert means["sampling"] == pytest.approx(0.15)
    assert means["grouping x sampling"] == pytest.approx(0.1)
    assert means["agent_turn_branching - no_rl"] == pytest.approx(0.7)
    # Of 2^4 choices of signs two are as far from 0: p = 1/8. Eight tests, of which one has no difference.
    assert found["agent_turn_branching - episode_parallel"].p == 0.125
    assert found["agent_turn_branching - sft_only"].p == 1.0
    assert len(found) == 8
    assert found["agent_turn_branching - episode_parallel"].p_holm == 1.0
    assert {one.seeds for one in found.values()} == {4}


@pytest.mark.nightly(of=16)
def test_a_study_is_worked_through_once_and_goes_on_where_it_was(tmp_path: Path) -> None:
    options, done = options_of(), list[StudyJob]()

    def work(_: ProtocolOptions, job: StudyJob) -> JobResult:
        if len(done) == 13:
            raise KeyboardInterrupt
        done.append(job)
        return result_of(job, 0.9 if job.point == GRID.points()[1] else 0.2)

    def run() -> None:
        run_protocol(tmp_path, options, command="mas study x", console=Console(quiet=True), workers=0, work=work)

    with pytest.raises(KeyboardInterrupt):
        run()
    before, done[:] = list(done), []
    run()
    jobs = [*before, *done]
    # Five arms at two points, then five arms and the untrained base with two seeds.
    assert len(jobs) == len(set(jobs)) == 10 + 12
    tested = [job for job in jobs if job.stage == "test"]
    assert {job.seed for job in tested} == {1000, 1001}
    assert not {job.seed for job in tested} & {job.seed for job in jobs if job.stage == "sweep"}
    assert {job.point for job in tested if job.arm != UNTRAINED} == {GRID.points()[1]}
    raw = json.loads((tmp_path / "results.json").read_text())
    assert (len(raw["sweep"]), len(raw["test"]), raw["command"]) == (10, 12, "mas study x")
    told = (tmp_path / "results.md").read_text()
    assert (
        "| `toy` | `base` | `episode_parallel` | 0.900 | 0.900 to 0.900 | 0.500 | 2 | 9 | 0.1 | 0.0 | 0.0 | 3 | 4 "
        in told
    )
    assert "| lr=0.01 minibatches=1 tasks_per_step=2 | 0.900 | 0.500 | 1 |" in told
    assert {path.name for path in tmp_path.glob("curves-*.svg")} == {f"curves-{axis}.svg" for axis in AXES}
    done.clear()
    run()
    assert not done
    kept = min((tmp_path / "jobs").iterdir())
    kept.write_bytes(kept.read_bytes()[:40])
    for again in (run, lambda: printed_plan(tmp_path, options, 1)):
        with pytest.raises(RunDirectoryError, match=f"{kept.name} cannot be read .* delete it"):
            again()


def test_the_plan_counts_runs_tokens_and_hours_and_what_is_done() -> None:
    options = options_of()
    told = plan_text(options, {}, workers=2)
    # 5 arms x (2 points + 2 seeds) = 20 runs of 300 tokens and 2 s, two at a time.
    assert "| `toy` | `base` | 5 x 2 x 1 | 5 x 2 | 0 of 20 | 0.0 | 0.0 |" in told
    assert "20 runs, 0.0 million tokens (the prompt of every call)" in told
    slow = plan_text(options, {("toy", "base"): [3600.0, 7200.0]}, workers=2)
    # 18 runs left of 1.5 h each, two at a time.
    assert "| 2 of 20 | 0.0 | 13.5 |" in slow


def test_the_command_prints_the_plan_and_writes_nothing(mas: Callable[..., Ran], tmp_path: Path) -> None:
    ran = mas("study", "fair", "--plan", "--workers", "3", "--out", str(tmp_path / "fair"))
    assert ran.code == 0
    assert "| `relay` | `no_habits` | 5 x 12 x 2 | 5 x 12 | 0 of 180 |" in ran.out
    assert "with 3 runs at a time" in ran.out
    assert not (tmp_path / "fair").exists()
    refused = mas("study", "demo", "--plan", "--out", str(tmp_path / "demo"))
    assert refused.code != 0
    assert "--plan and --workers belong to the studies fair, fair_grid, fair_llm and fair_presets" in refused.err


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"reference": "best"}, "reference='best' is none of the arms"),
        ({"first_test_seed": 1, "sweep_seeds": 2}, "is a seed of the sweep"),
        ({"arms": {**ARMS, UNTRAINED: ()}}, "give the arm another name"),
    ],
)
def test_a_protocol_that_does_not_fit_is_refused(more: dict[str, object], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        options_of(**more)


def test_a_run_ends_by_its_budget_and_is_measured_on_the_tasks_of_its_stage(
    small_overrides: Sequence[str], mas_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = options_of(small_overrides)
    parts, asked = [], HeldOutPart.task

    def task(scenario: HeldOutPart, split: str, index: int) -> object:
        parts.append((scenario.part, split))
        return asked(scenario, split, index)  # type: ignore[arg-type]

    monkeypatch.setattr(HeldOutPart, "task", task)
    job = StudyJob(stage="sweep", case="toy", base="base", arm="sft_only", point=GRID.points()[0], seed=0)
    found = run_job(options, job)
    assert found.cost.tokens() >= 300
    assert found.optimiser_steps > 0
    assert found.curve[-1].cost == found.cost
    assert ("validation", "eval") in parts
    assert ("test", "eval") not in parts
    parts.clear()
    tested = StudyJob(stage="test", case="toy", base="base", arm=UNTRAINED, point=(), seed=1000)
    assert run_job(options, tested).cost == Cost()
    assert set(parts) == {("test", "eval")}


def test_a_run_that_cannot_be_trained_to_its_end_counts_as_no_success_and_is_listed(
    tmp_path: Path, small_overrides: Sequence[str], mas_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run(trainer: Trainer, watcher: object) -> object:
        raise TrainingError("the gradient is not finite")

    monkeypatch.setattr(Trainer, "run", run)
    options = options_of(small_overrides)
    job = StudyJob(stage="sweep", case="toy", base="base", arm="episode_parallel", point=GRID.points()[1], seed=0)
    failed = run_job(options, job)
    assert (failed.greedy, failed.failure) == (0.0, "the gradient is not finite")

    def work(_: ProtocolOptions, asked: StudyJob) -> JobResult:
        return failed if asked == job else result_of(asked, 0.5)

    run_protocol(tmp_path, options, command="x", console=Console(quiet=True), workers=0, work=work)
    told = (tmp_path / "results.md").read_text()
    assert (
        "- sweep, `toy`, `base`, `episode_parallel`, seed 0, lr=0.01 minibatches=1 tasks_per_step=2: the grad" in told
    )


@pytest.mark.nightly
def test_a_toy_study_trains_every_arm(tmp_path: Path, small_overrides: Sequence[str], mas_cache: Path) -> None:
    options = options_of(small_overrides)
    run_protocol(tmp_path, options, command="mas study toy", console=Console(quiet=True), workers=2)
    raw = json.loads((tmp_path / "results.json").read_text())
    assert [one["job"]["arm"] for one in raw["test"]] == [arm for arm in (UNTRAINED, *ARMS) for _ in range(2)]
    for one in raw["test"]:
        cost, is_trained = one["cost"], one["job"]["arm"] != UNTRAINED
        assert (cost["prompt_tokens"] + cost["completion_tokens"] >= 300) == is_trained
        assert cost["shared_prompt_tokens"] <= cost["prompt_tokens"]
        assert (one["optimiser_steps"] > 0) == is_trained
    assert len(raw["comparisons"]) == 8
    assert 0 <= fmean(one["greedy"] for one in raw["test"]) <= 1
