"""A run without gradients in its directory: what it leaves, and every command that plays with it."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import BaseFor, Ran
from rich.console import Console

from mas.config.load import load_config
from mas.config.options import Config
from mas.config.stored_run import load_run_config
from mas.core.errors import CheckpointError, ConfigError, RunDirectoryError
from mas.endpoint.command import served_team
from mas.observe.files import read_lines
from mas.runs.resolve import resolve
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario
from mas.training.over_bus import over_bus
from mas.training.sampling.chains import play_once
from mas.training.saved import open_run, saved_experiences, saved_libraries
from mas.training.session import open_team

SHORT = (
    "scenario=relay", "algorithm=training_free", "algorithm.options.editor=quote", "algorithm.options.most=6",
    "train.steps=2", "train.tasks_per_step=4", "train.eval_tasks=3", "train.eval_every=0", "train.checkpoint_every=1",
)  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, small_overrides: tuple[str, ...], base_for: BaseFor) -> Path:
    """A finished run."""
    base_for("relay")
    path = tmp_path / "run"
    train(load_config([*SHORT, *small_overrides[:-1], f"run_dir='{path}'"]))
    return path


def train(config: Config) -> str:
    console = Console(file=io.StringIO(), width=200)
    train_in_directory(config, build_scenario(config.scenario), console=console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


async def first_prompts(run: Path | None, config: Config) -> dict[str, str]:
    """Agent -> what it is shown in the first held-out task."""
    scenario = build_scenario(config.scenario)
    async with open_run(resolve(config, scenario), run, print) as players:
        episode = await play_once(players.runtime, scenario.environment(), scenario.task("eval", 0), 0, temperature=0.0)
    return {line.agent: line.prompt for line in episode.lines}


async def test_a_run_leaves_what_its_roles_have_learned_and_every_command_plays_with_it(
    run: Path, mas: Callable[..., Ran], base_for: BaseFor
) -> None:
    config = load_run_config(run)
    scenario = build_scenario(config.scenario)
    assert not (run / "adapters").exists()
    left = {path.stem: json.loads(path.read_text()) for path in (run / "experiences").iterdir()}
    known = saved_experiences(run, config.algorithm)
    assert {role: tuple(one["experiences"].values()) for role, one in left.items()} == known
    assert known["executor"]
    notes = [line for line in read_lines(run / "samples.jsonl") if line["source"] == "editor"]
    assert [(note["step"], note["role"]) for note in notes] == [(s, r) for s in (1, 2) for r in ("planner", "executor")]
    assert notes[-1]["experiences"] == left["executor"]["experiences"]

    bare, taught = await first_prompts(None, config), await first_prompts(run, config)
    for agent, prompt in taught.items():
        assert prompt == "".join(f"{text}\n" for text in known[agent]) + prompt.rpartition("\n")[2]
    assert "->" not in "".join(bare.values())

    base = base_for("relay")
    async with open_team(resolve(config, scenario).with_experiences(known), base) as crew:
        served = served_team(crew, base)
        assert [card["kind"] for card in served.cards()] == ["base", "team"]
        assert crew.plan.roles["executor"].spec.experiences == known["executor"]


def test_a_run_can_be_evaluated_reported_and_asked_again(run: Path, mas: Callable[..., Ran]) -> None:
    done = mas("eval", str(run), "--tasks", "4")
    assert done.code == 0, done.err
    assert "untrained" in done.out
    assert "trained" in done.out.replace("untrained", "")
    refused = mas("eval", str(run), "--swap", "planner,executor")
    assert "exchanges adapters" in refused.err
    report = mas("report", str(run))
    assert report.code == 0, report.err
    assert "Experiences of each role" in (run / "report.html").read_text()
    assert "was finished already: 2 steps done" in train(load_run_config(run))


def test_a_damaged_library_is_refused_and_a_run_without_any_says_how_to_go_on(run: Path) -> None:
    latest = max((run / "checkpoints").iterdir()) / "experiences" / "planner.json"
    latest.write_text(latest.read_text() + " ")
    with pytest.raises(CheckpointError, match=r"corrupt: experiences/planner\.json"):
        saved_libraries(run)
    empty = run.parent / "empty"
    empty.mkdir()
    (empty / "config.yaml").write_text((run / "config.yaml").read_text())
    with pytest.raises(RunDirectoryError, match="holds no experiences yet"):
        saved_libraries(empty)


def test_training_over_a_bus_is_refused() -> None:
    config = load_config(list(SHORT))
    scenario = build_scenario(config.scenario)
    with pytest.raises(ConfigError, match="cannot be trained with --bus yet"):
        over_bus(resolve(config, scenario), "mqtt://coordinator@127.0.0.1:1/lab", note=print)
