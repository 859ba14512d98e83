"""The update by preference: whose adapter learns from what, in trees and in training."""

from statistics import fmean
from typing import Any

import msgspec
import pytest
from conftest import BaseFor
from parts import SKILLED, make_turn
from rows import copy_of, is_same, learner_of
from test_trainer import Notes, train

from mas.algorithms.parts.losses.preference import dpo_pair
from mas.algorithms.parts.options import AlgorithmOptions
from mas.config.load import load_config
from mas.config.options import Config, LearnerOptions
from mas.core.errors import ConfigError
from mas.core.records import Episode, Turn
from mas.runs.resolve import resolve
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel
from mas.training.batch import TrainRow
from mas.training.check_setup import check_trainable
from mas.training.trainer import TrainingOutcome
from mas.training.updates.build_update import build_update, loss_of
from mas.training.updates.preference import LIKELIHOOD
from mas.training.updates.update import UpdateResult


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


def options_of(**preference: Any) -> AlgorithmOptions:
    return AlgorithmOptions.model_validate(
        {"sampler": {"mode": "full_tree"}, "update": "preference", "preference": preference}
    )


def siblings(role: str, *outcomes: float, group: str = "g") -> list[Turn]:
    """Candidates of one prompt with these values, each another text."""
    turns = [make_turn(role=role, completion_ids=(8 + n, 9), group=f"{role}/{group}") for n in range(len(outcomes))]
    return [
        msgspec.structs.replace(turn, id=f"{role}/{group}/{n}", rewards={"outcome": value})
        for n, (turn, value) in enumerate(zip(turns, outcomes, strict=True))
    ]


def episode_of(*turns: Turn) -> Episode:
    return Episode(
        id="e", task="t", success=True, turns=turns, lines=(), rewards={}, prompt_tokens=1, completion_tokens=1, calls=1
    )


def improve(
    base: BaseModel, turns: list[Turn], algorithm: AlgorithmOptions, learner: LearnerOptions | None = None
) -> tuple[UpdateResult, set[str]]:
    """What one step did, and whose adapters changed."""
    teaching = learner_of(base, learner, **loss_of(algorithm).model_dump(exclude_unset=True))
    before = {name: copy_of(weights) for name, weights in teaching.adapters.items()}
    update = build_update(teaching, algorithm, 0)
    improved = update.improve(
        [episode_of(*turns)], dict.fromkeys(before, "") | {n: n for n in before}, step=1, lr_scale=1.0
    )
    return improved, {name for name, weights in teaching.adapters.items() if not is_same(weights, before[name])}


def test_each_role_learns_from_its_own_pairs_alone(base: BaseModel) -> None:
    turns = [*siblings("planner", 0.75, 0.25), *siblings("executor", 0.25, 0.25), *siblings("verifier", 1.0, 1.0)]
    only_pairs, changed = improve(base, turns, options_of(sft=0.0))
    assert changed == {"planner"} == set(only_pairs.learned)
    assert [row.turn.id for row in only_pairs.rows] == ["planner/g/0", "planner/g/1"]
    assert only_pairs.advantages == [1.0, -1.0, 0.0, 0.0, 0.0, 0.0]
    both, changed = improve(base, turns, options_of())
    assert changed == {"planner", "verifier"} == set(both.learned)
    assert "dpo_loss" not in both.learned["verifier"]
    assert both.advantages == [1.0, -1.0, 0.0, 0.0, 1.0, 1.0]


def test_roles_that_only_imitate_do_not_learn_from_losers(base: BaseModel) -> None:
    turns = [*siblings("planner", 1.0, 0.0), *siblings("executor", 1.0, 0.0)]
    improved, changed = improve(base, turns, options_of(sft_only=("planner",)))
    assert changed == {"planner", "executor"}
    assert [row.turn.id for row in improved.rows] == ["executor/g/0", "executor/g/1", "planner/g/0"]
    assert "margin" not in improved.learned["planner"]
    told = improved.metrics["preference"]
    assert told["planner"] == {"value": 0.5, "positives": 1.0, "pairs": 0.0}
    assert told["executor"] == {"value": 0.5, "positives": 1.0, "pairs": 1.0}


def test_every_positive_and_every_pair_counts(base: BaseModel) -> None:
    algorithm = options_of(beta=0.5)
    learner = learner_of(base, **LIKELIHOOD.model_dump(exclude_unset=True))
    turns = siblings("planner", 1.0, 0.0, 1.0, 0.0)
    rows = [TrainRow(turn, "planner", 0.0, 1.0) for turn in turns]
    now, reference = learner.logprobs(rows), learner.logprobs(rows, is_reference=True)
    gap = [sum(now[id(turn)]) - sum(reference[id(turn)]) for turn in turns]
    pairs = [dpo_pair(gap[w], gap[x], beta=0.5) for w, x in ((0, 1), (0, 3), (2, 1), (2, 3))]
    update = build_update(learner, algorithm, 0)
    improved = update.improve([episode_of(*turns)], {"planner": "planner"}, step=1, lr_scale=1.0)
    told = improved.learned["planner"]
    assert told["dpo_loss"] == pytest.approx(fmean(pair.loss for pair in pairs), rel=1e-4)
    assert told["margin"] == pytest.approx(fmean(pair.margin for pair in pairs), rel=1e-4, abs=1e-6)
    assert told["accuracy"] == fmean(pair.margin > 0 for pair in pairs)
    assert told["sft_loss"] == pytest.approx(-fmean([*now[id(turns[0])], *now[id(turns[2])]]), rel=1e-4)


def test_nothing_to_learn_changes_nothing(base: BaseModel) -> None:
    improved, changed = improve(base, siblings("planner", 0.0, 0.0), options_of())
    assert (changed, improved.rows, improved.learned) == (set(), [], {})


def test_pairs_are_pulled_apart_step_by_step(base: BaseModel) -> None:
    algorithm = options_of(sft=0.0, beta=0.5)
    learner = learner_of(base, spread=0.01, **LIKELIHOOD.model_dump(exclude_unset=True))
    update = build_update(learner, algorithm, 0)
    told = []
    for step in range(1, 6):
        turns = siblings("planner", 1.0, 0.0, 0.0)
        told.append(
            update.improve([episode_of(*turns)], {"planner": "planner"}, step=step, lr_scale=1.0).learned["planner"]
        )
    losses, margins = [one["dpo_loss"] for one in told], [one["margin"] for one in told]
    assert losses == sorted(losses, reverse=True)
    assert margins == sorted(margins)
    assert margins[-1] > 0.5 > margins[0]
    assert told[-1]["accuracy"] == 1.0


@pytest.mark.parametrize(("reference", "first"), [("start", True), ("base", False)])
def test_the_reference_is_the_base_or_the_adapter_as_the_step_began(
    base: BaseModel, reference: str, first: bool
) -> None:
    turns = siblings("planner", 1.0, 0.0)
    improved, _ = improve(base, turns, options_of(sft=0.0, reference=reference))
    assert (abs(improved.learned["planner"]["margin"]) < 1e-6) is first


def test_minibatches_tear_no_pair_and_see_the_policy_of_their_own_time(base: BaseModel) -> None:
    turns = [turn for group in "abc" for turn in siblings("planner", 1.0, 0.0, group=group)]
    options = LearnerOptions(minibatches=3)
    improved, _ = improve(base, turns, options_of(sft=0.0, reference="start"), options)
    learned = improved.learned["planner"]
    assert learned["rows"] == 6.0
    # The three are the same pair: the first sees margin 0, the others what those before have reached.
    assert learned["margin"] > 0.01
    assert learned["behaviour_gap"] == improve(base, turns, options_of(sft=0.0))[0].learned["planner"]["behaviour_gap"]


def config_of(algorithm: str, *words: str) -> Config:
    overrides = ["scenario=refine", f"algorithm={algorithm}", "train.steps=2", "train.tasks_per_step=4"]
    overrides += ["train.eval_tasks=5", "train.eval_every=0", "learner.minibatches=2", *words]
    return load_config(overrides).model_copy(update={"model": SKILLED})


async def trained(config: Config, base_for: BaseFor) -> tuple[TrainingOutcome, Notes]:
    return await train(config, build_scenario(config.scenario), base_for("refine", SKILLED))


async def test_malt_trains_the_team_of_refine(base_for: BaseFor) -> None:
    outcome, notes = await trained(config_of("malt"), base_for)
    assert outcome.progress.step == 2
    _, metrics, episodes = notes.steps[-1]
    assert all(episode.status == "done" for episode in episodes)
    told, learned = metrics["preference"], metrics["adapters"]
    assert set(told) == {"generator", "verifier", "refiner"}
    assert told["generator"]["pairs"] == 0.0
    assert told["refiner"]["pairs"] > 0
    assert {"sft_loss", "dpo_loss", "margin", "accuracy", "behaviour_gap", "gradient_norm"} <= set(learned["refiner"])
    assert {"terms", "groups", "advantage_std"} <= set(metrics["roles"]["refiner"])
    assert 0 <= metrics["roles"]["generator"]["terms"]["outcome"] <= 1


@pytest.mark.parametrize(
    ("algorithm", "words"),
    [("dpo", ()), ("at_grpo", ("algorithm.sampler.mode=full_tree", "algorithm.sampler.candidates=2"))],
)
async def test_samplers_and_updates_go_together_otherwise(
    base_for: BaseFor, algorithm: str, words: tuple[str, ...]
) -> None:
    outcome, notes = await trained(config_of(algorithm, *words), base_for)
    assert outcome.progress.step == 2
    assert set(notes.steps[-1][1]["adapters"]) <= {"generator", "verifier", "refiner"}
    assert notes.steps[-1][1]["adapters"]


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["algorithm=malt", "algorithm.sampler.mode=parallel"], "sampler.mode=parallel: candidates of one prompt"),
        (["algorithm=malt", "algorithm.sampler.mode=tree"], "sampler.mode=tree: no episode is played from a candidate"),
        (["algorithm=malt", "algorithm.options.sft=0"], r"roles \['generator'\] only imitate and sft is 0"),
        (["algorithm=dpo", "algorithm.options.dpo=0"], "sft and dpo are both 0"),
        (["algorithm=malt", "algorithm.options.dpo=0", "algorithm.options.beta=1"], "dpo is 0: nothing is"),
        (["algorithm=malt", "algorithm.loss.kl=0.1"], "only update=policy_gradient has it"),
        (["algorithm=malt", "algorithm.advantage.scale=none"], "only update=policy_gradient has it"),
        (["algorithm=malt", "algorithm.reward.discount=0.5"], "which sampler.mode=parallel plays"),
        (["algorithm=malt", "algorithm.sampler.lookahead=episode"], "carries every candidate on to the end"),
    ],
)
def test_what_cannot_be_or_would_do_nothing_is_refused(words: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        load_config(["scenario=refine", *words])


def test_a_role_that_only_imitates_must_be_one_that_is_trained() -> None:
    config = load_config(["scenario=refine", "algorithm=malt", "algorithm.options.sft_only=[generatr]"])
    with pytest.raises(ConfigError, match=r"'generatr', which team 'refine' does not train\. Did you mean 'generator'"):
        check_trainable(resolve(config))


def test_the_learner_minimises_what_the_update_needs() -> None:
    assert loss_of(options_of()) == LIKELIHOOD
    plain = AlgorithmOptions()
    assert loss_of(plain) is plain.loss
