"""A team is trained on an OpenEnv server, and sessions that the server drops are failed episodes, not a failed run."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL, TINY, BaseFor
from test_openenv import observed, served

from mas.config.load import load_config
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.training.trainer import Trainer
from mas.training.watch import Silent

pytest.importorskip("websockets")
TEAM = """
name: short
roles:
  solo: {type: executor, view: player, template: "{seen}>", max_tokens: 1}
edges: [start -> solo, solo -> done]
output: solo
seat: player
"""


async def test_a_team_is_trained_on_a_server_and_dropped_sessions_are_failed_episodes(
    base_for: BaseFor, tmp_path: Path
) -> None:
    sessions = itertools.count()

    def handle(connection: Any) -> None:
        """A digit pays its value; every fourth session ends at its first step."""
        is_dropped = next(sessions) % 4 == 3
        for message in connection:
            asked = json.loads(message)
            if asked["type"] == "reset":
                connection.send(observed("Say a digit"))
                continue
            if is_dropped:
                return
            said = asked["data"]["message"]
            connection.send(observed("thanks", reward=float(said.isdecimal()), done=True))

    (tmp_path / "team.yaml").write_text(TEAM)
    model = SMALL.model_copy(update={"tiny": TINY})
    with served(handle) as name:
        words = ["scenario=bridge", f'scenario.options.id="{name}"', "scenario.options.style=words"]
        few = ["train.steps=2", "train.tasks_per_step=2", "train.eval_tasks=2", "train.eval_every=0"]
        config = load_config([*words, *few, "algorithm=parallel_grpo", f"algorithm.team={tmp_path}/team.yaml"])
        config = config.model_copy(update={"model": model.model_copy(update={"path": "anything"})})
        setup = resolve_training(config, build_scenario(config.scenario))
        outcome = await Trainer(setup, base_for("relay", model)).run(Silent())
    assert len(outcome.history) == 2
    assert all(0 < metrics["episodes"]["failed"] < metrics["episodes"]["done"] for metrics in outcome.history)
    assert all(metrics["tokens"] > 0 for metrics in outcome.history)
    assert outcome.adapters["solo"].parameters()[1].any(), "it has learned"
