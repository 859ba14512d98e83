"""A team is trained on a class of TRL's `environment_factory`, by the name of its file."""

import json
from pathlib import Path

import pytest
from conftest import SMALL, TINY, BaseFor

from mas.config.load import load_config
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.training.trainer import Trainer
from mas.training.watch import Silent

CLASS = '''
class Lamp:
    """You switch lamps."""

    made = 0

    def reset(self, prompt: str, lamps: int, **row) -> str:
        Lamp.made += 1
        self.pays, self.switched = float(Lamp.made % 2), 0
        return f" There are {lamps} lamps."

    def switch(self, lamp: int) -> str:
        """Switch a lamp.

        Args:
            lamp: Its number.
        """
        self.switched += 1
        return "on"

    def get_reward(self) -> float:
        """Every other rollout is paid: what the tiny base writes is no call, and candidates must differ."""
        return self.pays + self.switched
'''
TEAM = """
name: short
roles:
  solo: {type: executor, view: solo, template: "{prompt}>", max_tokens: 1}
edges: [start -> solo, solo -> done]
output: solo
"""


async def test_two_steps_on_a_class_of_trl_by_name_change_the_adapter(
    base_for: BaseFor, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [
        {"prompt": "Dark.", "lamps": number, "part": "test" if number % 5 == 0 else "train"} for number in range(20)
    ]
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "lamps.py").write_text(CLASS)
    (tmp_path / "team.yaml").write_text(TEAM)
    model = SMALL.model_copy(update={"tiny": TINY})
    scenario = ["scenario=lamps.py:Lamp", "scenario.options.rows=rows.jsonl", "scenario.options.split=part"]
    few = ["train.steps=2", "train.tasks_per_step=2", "train.eval_tasks=2", "train.eval_every=0"]
    config = load_config([*scenario, *few, "algorithm=parallel_grpo", "algorithm.team=team.yaml"])
    config = config.model_copy(update={"model": model.model_copy(update={"path": "anything"})})
    setup = resolve_training(config, build_scenario(config.scenario))
    outcome = await Trainer(setup, base_for("relay", model)).run(Silent())
    assert len(outcome.history) == 2
    assert all(metrics["episodes"]["failed"] == 0 < metrics["tokens"] for metrics in outcome.history)
    assert outcome.adapters["solo"].parameters()[1].any(), "it has learned"
