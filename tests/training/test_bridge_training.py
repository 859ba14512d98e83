"""Bridged ids are trained: every role gets turns, rewards and a gradient, whatever the kind of game."""

from importlib.util import find_spec

import pytest
from conftest import SMALL, BaseFor

from mas.config.load import load_config
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.training.trainer import Trainer
from mas.training.watch import Silent

pytest.importorskip("pyspiel")


@pytest.mark.nightly(of=16)
@pytest.mark.matrix(
    "name,words",
    [
        ("open_spiel:tic_tac_toe", ("algorithm=spiral", "algorithm.policy=per_role")),
        ("open_spiel:matrix_coordination", ("algorithm=parallel_grpo",)),
        ("open_spiel:catch", ()),
        ("pettingzoo:classic/leduc_holdem_v4", ("algorithm=spiral", "algorithm.policy=per_role")),
        ("jaxmarl:switch_riddle", ("algorithm=parallel_grpo",)),
        ("gymnasium:Blackjack-v1", ()),
        ("gymnasium:CliffWalking-v1", ("algorithm=parallel_grpo",)),
    ],
    default=[
        ("open_spiel:tic_tac_toe", ("algorithm=spiral", "algorithm.policy=per_role")),
        ("jaxmarl:switch_riddle", ("algorithm=parallel_grpo",)),
        ("gymnasium:Blackjack-v1", ()),
    ],
    ids=lambda case: case[0],
)
async def test_a_bridged_id_is_trained_by_name(base_for: BaseFor, name: str, words: tuple[str, ...]) -> None:
    if (package := name.partition(":")[0]) != "open_spiel" and find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    few = ("train.steps=1", "train.tasks_per_step=4", "train.eval_tasks=2", "train.eval_every=0")
    config = load_config(["scenario=bridge", f"scenario.options.id={name}", *words, *few, "learner.minibatches=1"])
    config = config.model_copy(update={"model": SMALL})
    base = base_for({"name": "bridge", "options": {"id": name}})
    scenario = build_scenario(config.scenario)
    outcome = await Trainer(resolve_training(config, scenario), base).run(Silent())
    (metrics,) = outcome.history
    assert metrics["tokens"] > 0
    assert set(outcome.adapters) == set(scenario.teams["team"].roles)
    assert all(adapter.parameters()[1].any() for adapter in outcome.adapters.values()), "every role has learned"
