"""Programs that are trained: what they call is what is learned from, and they learn."""

import json
from pathlib import Path

import pytest
from conftest import BaseFor
from relay_program import ROLES, play_all, play_relay, say, text_of, write_tasks
from trained_program import train_program

from mas.config.options import ModelOptions
from mas.gateway.client import Episode


@pytest.fixture
def options(base_for: BaseFor, tmp_path: Path) -> list[str]:
    """A base that knows relay's letters, and tasks."""
    base = base_for("relay", ModelOptions())
    tasks = write_tasks(tmp_path / "tasks.jsonl", 60, 40)
    return [
        f"model.path={base.name}",
        f"scenario.options.path={tasks}",
        "scenario.options.split=part",
        f"scenario.options.roles=[{','.join(ROLES)}]",
        "scenario.options.max_tokens=1",
        "algorithm.sampler.candidates=8",
        "train.tasks_per_step=4",
        "train.eval_tasks=20",
        "train.eval_every=0",
        "learner.lr=0.005",
        "learner.minibatches=4",
        "algorithm.loss.entropy=0.05",
    ]


def test_a_program_learns(options: list[str], tmp_path: Path) -> None:
    run = tmp_path / "run"
    outcome, count = train_program([*options, "train.steps=10"], run, play_all)
    assert outcome.progress.step == 10
    assert count == 10 * 4 * 8 + 2 * 2 * 20
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    greedy = [line["eval"]["greedy"]["success"] for line in lines if "greedy" in line.get("eval", {})]
    print(greedy, [line.get("reward") for line in lines])
    assert greedy[0] < 0.5
    assert greedy[-1] > 0.8
    assert sorted(path.name for path in (run / "adapters").iterdir()) == sorted(ROLES)
