"""Training a team whose roles restrict what is drawn: nothing is lost to format, and ratios stay exact."""

from typing import Any

import numpy as np
import pytest
import torch
from conftest import BaseFor
from parts import SKILLED, make_turn
from rows import CHOICES, batch_of
from test_trainer import Notes, config_of, with_role

from mas.bus.memory import MemoryBus
from mas.bus.serve import EnvelopeFactory
from mas.config.options import EngineOptions
from mas.core.environment import Observation
from mas.core.errors import ConfigError
from mas.core.role import Constraint, View
from mas.core.support import pack_support
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runs.resolve import resolve, resolve_training
from mas.runtime.agents import ModelEndpoint, RoleAgent
from mas.scenarios import build_scenario
from mas.serving.logits import Head
from mas.serving.transformers_engine import TransformersEngine
from mas.testing.scripted import ScriptedEngine
from mas.training.batch import MicroBatch, build_tree
from mas.training.batch_tensors import BatchTensors
from mas.training.check_setup import check_trainable
from mas.training.distributed import Elsewhere
from mas.training.over_bus import AgentsEngine
from mas.training.remote_adapter_sync import SyncedEngine
from mas.training.trainer import Trainer

DIGIT = Constraint(regex="[0-9]")
RESTRICTIONS = [
    {"constraint": DIGIT, "temperature": 2.0, "max_tokens": 3},
    {"top_k": 5, "temperature": 2.0},
    {"top_p": 0.8},
    {"min_p": 0.05, "constraint": Constraint(one_of=tuple("0123456789")), "max_tokens": 2},
]


@pytest.mark.parametrize("limits", [{"top_p": 0.8}, {"min_p": 0.1}, {"top_k": 101}])
def test_limits_whose_supports_vllm_does_not_say_are_refused_before_anything_starts(limits: dict[str, Any]) -> None:
    config = config_of()
    scenario = build_scenario(config.scenario)
    vllm = config.model_copy(update={"engine": EngineOptions(name="vllm")})
    with pytest.raises(ConfigError, match=r"role 'executor': .* only with a top_k from 1 to 100"):
        check_trainable(resolve(vllm, with_role(scenario, "executor", **limits)))
    check_trainable(resolve(vllm, with_role(scenario, "executor", **(limits | {"top_k": 20}))))
    check_trainable(resolve(config, with_role(scenario, "executor", **limits)))


@pytest.mark.parametrize("restriction", RESTRICTIONS)
async def test_a_restricted_role_trains_on_the_policy_that_was_sampled(
    base_for: BaseFor, restriction: dict[str, Any]
) -> None:
    config = config_of(steps=3, eval_tasks=8)
    scenario = with_role(build_scenario(config.scenario), "executor", **restriction)
    base, notes = base_for("relay", SKILLED), Notes()
    await Trainer(resolve_training(config, scenario), base).run(notes)
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
        await Trainer(resolve_training(config, scenario), base_for("relay", SKILLED)).run(notes)
        turns = [turn for episode in notes.steps[0][2] for turn in episode.turns if turn.role == "executor"]
        failures[constraint] = sum(turn.failure is not None for turn in turns) / len(turns)
    assert failures[None] > 0.3
    assert failures[DIGIT] == 0


@pytest.mark.parametrize("restriction", [{"top_k": 3}, {"top_p": 0.5}, {"min_p": 0.1}, {"constraint": DIGIT}])
def test_an_engine_that_cannot_restrict_is_refused_before_anything_is_asked(restriction: dict[str, Any]) -> None:
    scenario = with_role(build_scenario(config_of().scenario), "executor", **restriction)
    plan = compile_team(scenario.teams["team"], build_roles(scenario.teams["team"]))
    with pytest.raises(ConfigError, match=f"'executor' has {next(iter(restriction))}"):
        RoleAgent(plan.roles["executor"], ModelEndpoint(engine=ScriptedEngine(lambda _: "0")))


@pytest.mark.parametrize("engine", [Elsewhere, AgentsEngine])
def test_processes_that_do_not_generate_leave_the_check_to_those_that_do(engine: type[Any], base_for: BaseFor) -> None:
    scenario = with_role(build_scenario(config_of().scenario), "executor", constraint=DIGIT)
    plan = compile_team(scenario.teams["team"], build_roles(scenario.teams["team"]))
    made = engine.__new__(engine)
    made._text = base_for("relay", SKILLED)
    RoleAgent(plan.roles["executor"], ModelEndpoint(engine=made))


async def test_an_agents_process_restricts_if_its_engine_does(base_for: BaseFor) -> None:
    base = base_for("relay", SKILLED)
    scenario = with_role(build_scenario(config_of().scenario), "executor", constraint=DIGIT)
    plan = compile_team(scenario.teams["team"], build_roles(scenario.teams["team"]))
    inner, bus = TransformersEngine(base), MemoryBus()
    follower = SyncedEngine(inner, base.bank, bus, trainer="t", envelopes=EnvelopeFactory("executor"))
    agent = RoleAgent(plan.roles["executor"], ModelEndpoint(engine=follower))
    view = View(observation=Observation({"table": "1234"}))
    answers = await agent.answer(view, tuple(range(6)), 3.0)
    assert all(answer.text.strip() in set("0123456789") for answer in answers)
    assert all(answer.generation.supports for answer in answers)
    await inner.close()
    await bus.close()


def test_a_token_that_could_be_no_choice_has_no_entropy(base_for: BaseFor) -> None:
    base = base_for("relay", SKILLED)
    end_V = np.zeros(base.limits.vocabulary, dtype=np.bool_)
    end_V[1] = True
    digits_V = np.zeros(base.limits.vocabulary, dtype=np.bool_)
    digits_V[list(CHOICES[:2])] = True
    supports = (pack_support(digits_V), pack_support(end_V))
    turn = make_turn(completion_ids=(CHOICES[0], 1), choices=CHOICES, supports=supports)
    feed = BatchTensors(MicroBatch((build_tree(batch_of([turn], [1.0])),)), base.bank.device)
    with torch.no_grad(), base.bank.segmented(feed.segments({})):
        scores = feed.scores(Head.of(base.model), feed.hidden(base.model), 0)
    two = torch.distributions.Bernoulli(logits=torch.tensor(0.0)).entropy()
    assert 0 < float(scores.entropy_J[0]) <= float(two) + 1e-6  # of the two that are possible, not of all four
    assert float(scores.entropy_J[1]) == 0
    assert float(scores.logprobs_J[1]) == pytest.approx(0, abs=1e-6)
