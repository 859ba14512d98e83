"""Training with sinks: they get what `metrics.jsonl` has, also when they come later, and cannot end a training."""

import io
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from rich.console import Console

from mas.config.load import load_config
from mas.config.options import Config
from mas.observe.metrics import flatten, read_metrics
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel

SHORT = (
    "scenario=relay", "train.steps=4", "train.tasks_per_step=2", "train.eval_tasks=3", "train.eval_every=2",
    "train.checkpoint_every=2", "algorithm.sampler.candidates=3",
)  # fmt: skip
SINKS = """
import json

class Mine:
    def open(self, run, config, earlier):
        self.file = run / (type(self).__name__ + ".jsonl")
        self.add({"config": config, "earlier": None if earlier is None else earlier.id})
        return "an-id"

    def log(self, step, metrics):
        self.add({"step": step, **metrics})

    def close(self, error):
        self.add({"error": error})

    def add(self, line):
        with self.file.open("a") as file:
            file.write(json.dumps(line) + "\\n")

class Later(Mine):
    pass

class Broken(Mine):
    def log(self, step, metrics):
        if step == 2:
            raise ConnectionError("the network is gone")
        super().log(step, metrics)
"""


@pytest.fixture
def config(
    tmp_path: Path, small_overrides: tuple[str, ...], base_for: Callable[..., BaseModel]
) -> Callable[..., Config]:
    base_for("relay")
    (tmp_path / "my_sinks.py").write_text(SINKS)

    def made(*names: str) -> Config:
        sinks = ",".join(f"'{tmp_path}/my_sinks.py:{name}'" for name in names)
        return load_config([*SHORT, *small_overrides, f"run_dir='{tmp_path}/run'", f"train.sinks=[{sinks}]"])

    return made


def train(config: Config, from_step: int | None = None) -> str:
    console = Console(file=io.StringIO(), width=200)
    train_in_directory(config, build_scenario(config.scenario), console=console, from_step=from_step)
    text: str = console.file.getvalue()
    return text


def sent(run: Path, name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / f"{name}.jsonl").read_text().splitlines()]


def flat_metrics(run: Path) -> list[dict[str, Any]]:
    lines = [
        {key: value for key, value in flatten(line).items() if value is not None}
        for line in read_metrics(run / "metrics.jsonl")
    ]
    success = {
        name: [line[f"eval/{name}/success"] for line in lines if f"eval/{name}/success" in line]
        for name in ("greedy", "sampled")
    }
    return [*lines, {"step": 4, **{f"final/{name}/success": values[-1] for name, values in success.items()}}]


def test_sinks_get_what_is_written_once_and_may_be_added_later(tmp_path: Path, config: Callable[..., Config]) -> None:
    run = tmp_path / "run"
    assert "the sink" not in train(config("Mine"))
    first, *lines, last = sent(run, "Mine")
    stored = yaml.safe_load((run / "config.yaml").read_text())
    assert (first, last) == ({"config": stored, "earlier": None}, {"error": None})
    before = flat_metrics(run)
    assert lines == before
    # steps 3 and 4 again: what they measure of time differs, and is not sent
    train(config("Mine"), from_step=2)
    again, end = sent(run, "Mine")[len(lines) + 2 :]
    assert (again["earlier"], end) == ("an-id", {"error": None})
    # a sink that is named later gets all of it, though no step is left to do
    assert "was finished already" in train(config("Mine", "Later"))
    assert sent(run, "Later")[1:-1] == flat_metrics(run)
    assert len(sent(run, "Mine")) == len(lines) + 6


def test_training_ends_as_ever_where_a_sink_fails(tmp_path: Path, config: Callable[..., Config]) -> None:
    printed = train(config("Broken", "Mine"))
    assert printed.count("failed at step 2 (ConnectionError: the network is gone)") == 2
    assert "is finished: 4 steps done" in printed
    assert sent(tmp_path / "run", "Mine")[1:-1] == flat_metrics(tmp_path / "run")
    assert {line["step"] for line in sent(tmp_path / "run", "Broken")[1:]} == {0, 1}
