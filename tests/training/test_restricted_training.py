"""Training a team whose roles restrict what is drawn: nothing is lost to format, and ratios stay exact."""

from typing import Any

import pytest
from conftest import BaseFor
from parts import SKILLED
from test_trainer import Notes, config_of, with_role

from mas.core.errors import ConfigError
from mas.core.team import Constraint
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.agents import RoleAgent, Voice
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine
from mas.training.trainer import Trainer

DIGIT = Constraint(regex="[0-9]")
RESTRICTIONS = [
    {"constraint": DIGIT, "temperature": 2.0, "max_tokens": 3},
    {"top_k": 5, "temperature": 2.0},
    {"top_p": 0.8},
    {"min_p": 0.05, "constraint": Constraint(one_of=tuple("0123456789")), "max_tokens": 2},
]


@pytest.mark.parametrize("restriction", RESTRICTIONS)
async def test_a_restricted_role_trains_on_the_policy_that_was_sampled(
    base_for: BaseFor, restriction: dict[str, Any]
) -> None:
    config = config_of(steps=3, eval_tasks=8)
    scenario = with_role(build_scenario(config.scenario), "executor", **restriction)
    base, notes = base_for("relay", SKILLED), Notes()
    await Trainer(config, scenario, base).run(notes)
    assert len(notes.steps) == 3
    for _, metrics, episodes in notes.steps:
        told = metrics["adapters"]["executor"]
        assert told["behaviour_gap"] < 1e-4
        assert told["ratio"] == pytest.approx(1, abs=1e-3)
        turns = [turn for episode in episodes for turn in episode.turns if turn.role == "executor"]
        assert all(len(turn.supports) == len(turn.completion_ids) for turn in turns)
        if "constraint" in restriction:
            assert not any(turn.failure for turn in turns)
    assert any(metrics["adapters"]["executor"]["gradient_norm"] > 0 for _, metrics, _ in notes.steps)


async def test_a_temperature_that_loses_episodes_to_format_loses_none_with_a_constraint(base_for: BaseFor) -> None:
    config, failures = config_of(steps=1), {}
    for constraint in (None, DIGIT):
        scenario = with_role(
            build_scenario(config.scenario), "executor", constraint=constraint, temperature=3.0, max_tokens=3
        )
        notes = Notes()
        await Trainer(config, scenario, base_for("relay", SKILLED)).run(notes)
        turns = [turn for episode in notes.steps[0][2] for turn in episode.turns if turn.role == "executor"]
        failures[constraint] = sum(turn.failure is not None for turn in turns) / len(turns)
    assert failures[None] > 0.3
    assert failures[DIGIT] == 0


@pytest.mark.parametrize("restriction", [{"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.1}, {"constraint": DIGIT}])
def test_an_engine_that_cannot_restrict_is_refused_before_anything_is_asked(restriction: dict[str, Any]) -> None:
    scenario = with_role(build_scenario(config_of().scenario), "executor", **restriction)
    plan = compile_team(scenario.teams["team"], build_roles(scenario.teams["team"]))
    with pytest.raises(ConfigError, match=f"'executor' has {next(iter(restriction))}"):
        RoleAgent(plan.roles["executor"], Voice(engine=ScriptedEngine(lambda _: "0")))
