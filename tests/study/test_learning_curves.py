"""`mas curves`: which runs come together, what is drawn of them, and what is refused."""

import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
import yaml

from mas.config.load import load_config
from mas.core.errors import ConfigError, RunDirectoryError
from mas.observe.charts import curves_svg
from mas.study.curves import learning_curves, read_run

Mas = Callable[..., Any]
Evaluated = Sequence[tuple[int, int, float]]
LEARNED: Evaluated = ((0, 0, 0.0), (20, 1000, 0.5), (40, 2000, 1.0))


def make_run(path: Path, *overrides: str, seed: int = 0, points: Evaluated = LEARNED) -> Path:
    """A run directory of 40 steps; `points`: (step, tokens spent until then, greedy success)."""
    chosen = ("scenario=relay", "train.steps=40", f"train.seed={seed}", *overrides)
    config = load_config([*chosen, f"run_dir='{path}'"])
    lines: list[dict[str, Any]] = []
    for step, tokens, success in points:
        if step:
            lines.append(
                {
                    "step": step,
                    "reward": success / 2,
                    "tokens": tokens,
                    "prompt_tokens": tokens,
                    "roles": {"planner": {"reward": 1.0}},
                }
            )
        lines.append({"step": step, "eval": {"greedy": {"success": success}}})
    path.mkdir(parents=True)
    (path / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    (path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return path


def texts(svg: str) -> list[str]:
    return [element.text or "" for element in ElementTree.fromstring(svg).iter("{http://www.w3.org/2000/svg}text")]


def test_runs_come_together_by_scenario_options_and_team_and_seeds_become_lines(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "a0"),
        make_run(tmp_path / "a1", seed=1, points=((0, 0, 0.5), (20, 3000, 0.5), (40, 4000, 0.5))),
        make_run(tmp_path / "b", "algorithm.team=solo"),
        make_run(tmp_path / "c", "scenario=plan_path", "scenario.options.size=5"),
        make_run(tmp_path / "d", "scenario=plan_path"),
    ]
    relay, five, usual = learning_curves([read_run(run) for run in runs])
    assert [chart.title for chart in (relay, five, usual)] == ["relay", "plan_path, size=5", "plan_path"]
    assert [series.name for series in relay.series] == ["team", "solo"]
    team = relay.series[0]
    assert (team.xs, team.ys) == ((0, 20, 40), (0.25, 0.5, 0.75))
    assert (team.lo, team.hi) == ((0.0, 0.5, 0.5), (0.5, 0.5, 1.0))
    assert team.seeds == ((0.0, 0.5, 1.0), (0.5, 0.5, 0.5))
    assert (relay.x_label, relay.y_label) == ("training step", "success, greedy")


def test_over_tokens_every_point_of_every_seed_counts_and_a_run_that_ended_stays_where_it_was(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "a0"),
        make_run(tmp_path / "a1", seed=1, points=((0, 0, 0.5), (20, 3000, 0.5), (40, 4000, 0.5))),
    ]
    (chart,) = learning_curves([read_run(run) for run in runs], x="tokens")
    (team,) = chart.series
    assert team.xs == (0, 1000, 2000, 3000, 4000)
    assert team.seeds == ((0.0, 0.5, 1.0, 1.0, 1.0), (0.5,) * 5)
    # (0.0 + 0.5) / 2, (0.5 + 0.5) / 2, then three times (1.0 + 0.5) / 2
    assert team.ys == (0.25, 0.5, 0.75, 0.75, 0.75)
    assert chart.x_label == "tokens, the prompt of every call"


def test_a_run_that_goes_on_ends_its_series_where_it_is(tmp_path: Path) -> None:
    runs = [make_run(tmp_path / "a0"), make_run(tmp_path / "a1", seed=1, points=LEARNED[:2])]
    (chart,) = learning_curves([read_run(run) for run in runs])
    assert chart.series[0].xs == (0, 20)


@pytest.mark.parametrize("limit", ["train.target=0.5", "train.token_budget=1000"])
def test_a_run_that_reached_its_target_or_spent_its_budget_has_ended(limit: str, tmp_path: Path) -> None:
    runs = [make_run(tmp_path / str(seed), limit, seed=seed, points=LEARNED[: 2 + seed]) for seed in (0, 1)]
    (chart,) = learning_curves([read_run(run) for run in runs])
    assert chart.series[0].ys == (0.0, 0.5, 0.75)


def test_one_team_trained_in_two_ways_is_two_series_that_say_what_differs(tmp_path: Path) -> None:
    runs = [
        make_run(tmp_path / "a"),
        make_run(tmp_path / "b", "learner.lr=0.5"),
        make_run(tmp_path / "c", "learner.lr=0.5", seed=1),
        make_run(tmp_path / "d", "algorithm=parallel_grpo"),
        make_run(tmp_path / "e", "algorithm.team=solo", "train.eval_every=7"),
        make_run(tmp_path / "f", "algorithm.team=solo", seed=1),
    ]
    (chart,) = learning_curves([read_run(run) for run in runs])
    usual = load_config(["scenario=relay"])
    assert [(series.name, len(series.seeds)) for series in chart.series] == [
        (f"team, algorithm=at_grpo, lr={usual.learner.lr}", 0),
        ("team, algorithm=at_grpo, lr=0.5", 2),
        (f"team, algorithm=parallel_grpo, lr={usual.learner.lr}", 0),
        ("solo", 2),
    ]


def test_a_team_from_a_file_is_called_by_its_name(tmp_path: Path) -> None:
    text = "name: pair\nroles: {writer: {type: executor}}\nedges: [start -> writer, writer -> done]\noutput: writer\n"
    runs = []
    for seed in (0, 1):
        runs.append(make_run(tmp_path / str(seed), "algorithm.team=mine.yaml", seed=seed))
        (runs[-1] / "team.yaml").write_text(text)
    (chart,) = learning_curves([read_run(run) for run in runs])
    assert [(series.name, len(series.seeds)) for series in chart.series] == [("pair", 2)]


def test_the_same_seed_twice_in_one_series_is_refused(tmp_path: Path) -> None:
    runs = [read_run(make_run(tmp_path / name)) for name in ("a", "b")]
    with pytest.raises(ConfigError, match=r"/a and .*/b are the same training of relay, team, with the same seed 0"):
        learning_curves(runs)


def test_a_metric_that_one_run_lacks_is_refused_with_the_run_and_the_nearest(tmp_path: Path) -> None:
    runs = [read_run(make_run(tmp_path / "a"))]
    assert learning_curves(runs, metric="roles/planner/reward")[0].series[0].ys == (1.0, 1.0)
    with pytest.raises(
        ConfigError, match=r"/a: No value of 'roles/planer/reward' .* Did you mean 'roles/planner/reward'.*: 'roles/"
    ):
        learning_curves(runs, metric="roles/planer/reward")
    with pytest.raises(ConfigError, match=r"no x axis 'token'. Did you mean 'tokens'"):
        learning_curves(runs, x="token")


def test_what_is_no_run_and_what_has_not_begun_is_refused(tmp_path: Path) -> None:
    begun = make_run(tmp_path / "a")
    with pytest.raises(RunDirectoryError, match="holds no run"):
        read_run(tmp_path / "b")
    (begun / "metrics.jsonl").unlink()
    with pytest.raises(RunDirectoryError, match="holds no metrics yet"):
        read_run(begun)


def test_the_command_writes_the_same_bytes_again_and_in_another_process(tmp_path: Path, mas: Mas) -> None:
    runs = [str(make_run(tmp_path / f"a{seed}", seed=seed)) for seed in range(2)]
    runs.append(str(make_run(tmp_path / "c", "algorithm.team=solo", points=LEARNED[:2])))
    out = tmp_path / "curves.svg"
    ran = mas("curves", *runs, "--out", str(out), "--x", "tokens")
    assert (ran.code, ran.out) == (0, f"{out}\n")
    assert "c has not ended: step 20" in ran.err
    drawn = out.read_bytes()
    assert {"relay", "team", "solo", "tokens, the prompt of every call", "success, greedy"} <= set(
        texts(drawn.decode())
    )
    code = "import sys; sys.argv[0] = 'mas'; from mas.cli import main; main()"
    words = ["curves", *runs, "--out", str(tmp_path / "again.svg"), "--x", "tokens"]
    subprocess.run([sys.executable, "-c", code, *words], check=True, capture_output=True)
    assert (tmp_path / "again.svg").read_bytes() == drawn


def test_what_cannot_be_written_is_said(tmp_path: Path, mas: Mas) -> None:
    run = str(make_run(tmp_path / "a"))
    assert "ends in .svg" in mas("curves", run, "--out", str(tmp_path / "a.png")).err
    ran = mas("curves", run, "--out", str(tmp_path / "nowhere/a.svg"))
    assert ran.code == 2
    assert "cannot be written: No such file or directory" in ran.err


def test_a_series_has_one_colour_in_all_panels_and_thin_lines_for_its_seeds(tmp_path: Path) -> None:
    names = ("relay", "two_hop")
    paths = [make_run(tmp_path / f"{name}{seed}", f"scenario={name}", seed=seed) for name in names for seed in range(2)]
    charts = learning_curves([read_run(path) for path in paths])
    assert [chart.title for chart in charts] == list(names)
    strokes = [line for line in curves_svg(charts, names=("solo",)).splitlines() if "stroke: #ff7f0e" in line]
    # the second colour, as `solo` has the first: in both panels two seeds, the mean and the legend's sample of it
    assert len(strokes) == 2 * 4
    assert "#1f77b4" not in curves_svg(charts, names=("solo",))
