"""Studies: what is compared, at which budget, and what is told of it."""

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.console import Console

from mas.core.errors import ConfigError
from mas.core.records import Cost
from mas.observe.charts import curves_svg
from mas.study.chain import ArmRun, StudyChain
from mas.study.options import REFERENCE, CaseOptions, StudyOptions, load_study
from mas.study.run import _KeptRuns, run_study
from mas.study.summary import arm_charts, by_arm, learning_charts, markdown_table
from mas.study.workers import run_chains
from mas.training.watch import Point


def run_of(arm: str, seed: int, greedy: float, curve: tuple[tuple[int, float], ...] = ()) -> ArmRun:
    points = tuple(
        Point(cost=Cost(calls=spent, completion_tokens=spent), optimiser_steps=1, seconds=spent / 10, value=value)
        for spent, value in curve
    )
    cost = Cost(calls=5, prompt_tokens=4200, shared_prompt_tokens=900, completion_tokens=300)
    return ArmRun(
        case="relay", arm=arm, seed=seed, greedy=greedy, sampled=greedy / 2, cost=cost, optimiser_steps=7, curve=points
    )


def small(overrides: Sequence[str], seeds: int = 1) -> StudyOptions:
    case = CaseOptions(
        scenario="relay",
        overrides=(*overrides, "train.steps=2", "train.tasks_per_step=2", "train.eval_tasks=4", "train.target=null"),
        arms=(REFERENCE, "single_agent_grpo"),
        seeds=seeds,
        swap=("planner", "executor"),
    )
    return StudyOptions(cases={"relay": case}, eval_tasks=4)


@pytest.mark.parametrize("name", ["demo", "full", "algorithms"])
def test_every_arm_of_a_preset_makes_a_configuration(name: str) -> None:
    for case, options in load_study(name).cases.items():
        for arm in options.arms:
            config = StudyChain(case=case, options=options, seed=3, eval_tasks=1).configure(arm)
            assert config.train.seed == 3
            assert config.scenario.name == options.scenario


def test_other_arms_end_by_the_budget_alone() -> None:
    chain = StudyChain(case="x", options=CaseOptions(scenario="relay"), seed=0, eval_tasks=1)
    config = chain.configure("single_agent_grpo", budget=1234)
    assert config.train.token_budget == 1234
    assert config.train.target is None
    assert config.train.steps > 10_000
    assert config.algorithm.team == "solo"


def test_an_unknown_study_lists_what_there_is() -> None:
    with pytest.raises(ConfigError, match="'full'"):
        load_study("ful")


def test_the_mean_is_greedy_success_and_the_spread_is_over_seeds() -> None:
    runs = [run_of("team_at_grpo", 0, 0.8), run_of("team_at_grpo", 1, 1.0)]
    result = by_arm(runs)["relay"]["team_at_grpo"]
    # mean of 0.8 and 1.0; ddof 1: sqrt(2 * 0.1^2 / 1) = 0.1414
    assert result["mean"] == 0.9
    assert result["std"] == 0.1414
    assert result["seeds"] == [0, 1]
    assert result["sampled"] == {"mean": 0.45, "std": 0.0707}
    told = markdown_table(by_arm(runs))
    assert "| `relay` | `team_at_grpo` | 0.900 ± 0.141 | 0.450 ± 0.071 | 2 | 5 | 4.2 | 0.9 | 0.3 | 7 |" in told


def test_a_curve_holds_the_last_known_success_and_the_spread_over_seeds() -> None:
    runs = [
        run_of("team_at_grpo", 0, 1.0, ((0, 0.0), (50, 0.5), (100, 1.0))),
        run_of("team_at_grpo", 1, 1.0, ((0, 0.0), (100, 0.8))),
    ]
    (chart,) = learning_charts(runs)
    series = chart.series[0]
    at_60 = series.xs.index(60.0)
    assert series.ys[at_60] == 0.25
    assert series.lo is not None
    assert series.hi is not None
    assert (series.lo[-1], series.hi[-1]) == (0.8, 1.0)
    assert curves_svg([chart]) == curves_svg([chart])


def test_a_curve_without_an_evaluation_before_training_begins_with_the_first_one() -> None:
    """As with `train.eval_first=false`, or after a warm start."""
    runs = [
        run_of("team_at_grpo", 0, 1.0, ((40, 0.5), (100, 1.0))),
        run_of("team_at_grpo", 1, 1.0, ((50, 0.1), (90, 0.8))),
    ]
    (chart,) = learning_charts(runs)
    series = chart.series[0]
    assert (series.xs[0], series.xs[-1]) == (50.0, 100.0)
    assert (series.ys[0], series.ys[-1]) == (0.3, 0.9)


def test_every_arm_has_a_drawing_of_its_own_beside_the_baselines_of_its_case() -> None:
    baseline = run_of("team_at_grpo", 0, 1.0, ((0, 0.0), (100, 1.0)))
    runs = [
        baseline,
        run_of("rloo", 0, 0.5, ((0, 0.0), (50, 0.4), (100, 0.5))),
        run_of("rloo", 1, 0.5, ((0, 0.2), (100, 0.6))),
        run_of("random", 0, 0.1),
    ]
    charts = arm_charts(runs)
    assert {name: [series.name for series in chart.series] for name, chart in charts.items()} == {
        "at_grpo": ["at_grpo"],
        "rloo": ["at_grpo", "rloo"],
    }
    rloo = charts["rloo"].series[1]
    assert rloo.xs == (0, 50, 100)
    # at 50 tokens seed 1 is halfway from 0.2 to 0.6
    assert rloo.ys == pytest.approx((0.1, 0.4, 0.55))
    assert charts["rloo"].title == "relay"


def test_without_workers_chains_are_worked_through_here_in_order() -> None:
    chains = [StudyChain(case=str(n), options=CaseOptions(scenario="relay"), seed=n, eval_tasks=1) for n in range(3)]
    done = list(run_chains(chains, lambda text: None, lambda chain, note: [run_of("random", chain.seed, 0)], workers=0))
    assert [chain.case for chain, _ in done] == ["0", "1", "2"]
    assert [runs[0].seed for _, runs in done] == [0, 1, 2]


@pytest.mark.nightly(of=16)
def test_a_case_of_self_play_tells_its_measure_and_stays_out_of_success(
    tmp_path: Path, small_overrides: Sequence[str], mas_cache: Path
) -> None:
    few = ("train.steps=2", "train.eval_every=1", "train.tasks_per_step=2", "train.eval_tasks=2")
    case = CaseOptions(
        scenario="two_player",
        overrides=(*small_overrides, *few),
        arms=(REFERENCE, "plain"),
        own_arms={"plain": ("algorithm=spiral", "algorithm.advantage.key=group", "algorithm.advantage.baseline=none")},
        measure="nash_conv",
        seeds=1,
    )
    study = StudyOptions(cases={"kuhn": case}, eval_tasks=2)
    summary = run_study(tmp_path / "study", study, command="mas study", console=Console(quiet=True))
    assert summary["success"] == {}
    arms = summary["measures"]["nash_conv"]["kuhn"]
    assert list(arms) == ["untrained_team", REFERENCE, "plain"]
    # The greatest NashConv of Kuhn poker is 4: each seat loses at most 2 in every deal.
    assert all(0 < arm["mean"] <= 4 and 0 < arm["sampled"]["mean"] <= 4 for arm in arms.values())
    assert all(arm["mean"] != arm["sampled"]["mean"] for arm in arms.values())
    # The first chain's reference is trained in a run directory, and its curve read from its metrics.
    for run in summary["runs"]:
        if run["arm"] in (REFERENCE, "plain"):
            assert run["curve"][0]["value"] == pytest.approx(arms["untrained_team"]["sampled"]["mean"], abs=1e-4)
    told = (tmp_path / "study/summary.md").read_text()
    assert told.startswith("| case | arm | nash_conv, greedy | nash_conv, sampled |")
    assert "nash_conv" in (tmp_path / "study/report.html").read_text()


def test_what_was_kept_of_one_measure_is_not_told_of_another(tmp_path: Path) -> None:
    kept = _KeptRuns(tmp_path)
    success, other = (
        StudyChain(case="x", options=CaseOptions(scenario="relay", measure=measure), seed=0, eval_tasks=1)
        for measure in ("success", "nash_conv")
    )
    kept.save(success, [run_of("random", 0, 0.5)])
    assert kept.load(success) == [run_of("random", 0, 0.5)]
    assert kept.load(other) is None


def test_a_measure_that_nothing_tells_is_refused_with_those_there_are(
    tmp_path: Path, small_overrides: Sequence[str], mas_cache: Path
) -> None:
    study = small(small_overrides)
    case = study.cases["relay"].model_copy(update={"measure": "nash_conv"})
    with pytest.raises(ConfigError, match=r"no measure 'nash_conv'.*success"):
        run_study(tmp_path, StudyOptions(cases={"relay": case}, eval_tasks=2), command="", console=Console(quiet=True))


def test_a_study_leaves_summary_table_plot_and_page_and_is_not_done_twice(
    tmp_path: Path, small_overrides: Sequence[str], mas_cache: Path
) -> None:
    console = Console(quiet=True)
    summary = run_study(tmp_path / "study", small(small_overrides), command="mas study", console=console)
    arms = summary["success"]["relay"]
    assert list(arms) == [
        "random",
        "scripted",
        "untrained_team",
        "untrained_single",
        REFERENCE,
        "leader_alone",
        "best_of_n_verified",
        "best_of_n_voted",
        f"{REFERENCE}, planner and executor swapped",
        "single_agent_grpo",
    ]
    assert (arms["scripted"]["mean"], arms["scripted"]["calls"]) == (1.0, 0)
    # relay's team makes two calls for a task, its leader alone one: best of 2
    assert [arms[name]["calls"] for name in (REFERENCE, "leader_alone", "best_of_n_verified")] == [2, 1, 2]
    assert {run["attempts"] for run in summary["runs"] if run["arm"] == "best_of_n_voted"} == {2}
    assert arms["best_of_n_verified"]["sampled"]["mean"] >= arms["leader_alone"]["sampled"]["mean"]
    assert arms["single_agent_grpo"]["tokens"] >= arms[REFERENCE]["tokens"] > 0
    (watched,) = (run for run in summary["runs"] if run["arm"] == REFERENCE)
    assert watched["curve"][-1]["cost"] == watched["cost"]
    assert watched["optimiser_steps"] == watched["curve"][-1]["optimiser_steps"] > 0
    assert watched["cost"]["prompt_tokens"] > watched["cost"]["shared_prompt_tokens"] > 0
    assert json.loads((tmp_path / "study/summary.json").read_text())["success"] == summary["success"]
    for name in ("report.html", "summary.md", "curves.svg", "curves/single_grpo.svg", "train/metrics.jsonl"):
        assert (tmp_path / "study" / name).is_file(), name
    kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "study/chains").iterdir()}
    again = run_study(tmp_path / "study", small(small_overrides), command="mas study", console=console)
    assert again["success"] == summary["success"]
    assert {path: path.stat().st_mtime_ns for path in (tmp_path / "study/chains").iterdir()} == kept


@pytest.mark.nightly
def test_workers_end_with_a_study_that_is_killed(tmp_path: Path) -> None:
    script = """
import os, time
from mas.study import workers

def slow(chain):
    print(os.getpid(), flush=True)
    time.sleep(100)

if __name__ == "__main__":
    workers.run_chain = slow
    list(workers.run_chains([1, 2], print, lambda chain, note: time.sleep(100), workers=1))
"""
    path = tmp_path / "script.py"
    path.write_text(script)
    with subprocess.Popen([sys.executable, str(path)], stdout=subprocess.PIPE, text=True) as study:
        assert study.stdout is not None
        worker = int(study.stdout.readline())
        study.kill()
    ended = time.monotonic() + 20
    while _is_alive(worker):
        assert time.monotonic() < ended, "the worker outlived the study"
        time.sleep(0.05)


@pytest.mark.nightly
def test_an_error_ends_a_study_without_the_chains_that_nobody_has_begun(tmp_path: Path) -> None:
    script = """
import pathlib, time
from mas.study import workers

begun = pathlib.Path(__file__).with_name("begun")

def quick(chain):
    with begun.open("a") as file:
        file.write(f"{chain} ")
    time.sleep(0.5)
    return []

def refused(chain, note):
    while not begun.exists():
        time.sleep(0.05)
    raise RuntimeError("another configuration")

if __name__ == "__main__":
    workers.run_chain = quick
    list(workers.run_chains(range(9), print, refused, workers=1))
"""
    path = tmp_path / "script.py"
    path.write_text(script)
    study = subprocess.run([sys.executable, str(path)], capture_output=True, text=True, check=False)
    assert "another configuration" in study.stderr
    # the first, and those that the pool has handed on: one more than it has workers
    assert len((tmp_path / "begun").read_text().split()) <= 3


def _is_alive(process: int) -> bool:
    state = Path(f"/proc/{process}/stat")
    return state.exists() and state.read_text().rpartition(")")[2].split()[0] != "Z"
