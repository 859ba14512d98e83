"""Parts of an algorithm that do not go together, and values that have no effect, are refused with the reason."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from mas.config.algorithm import AlgorithmOptions
from mas.config.load import load_config, presets
from mas.core.errors import ConfigError

PARALLEL = {"mode": "parallel"}
WHOLE = [
    {"components": True},
    {"strata": {}},
    {"inherit": "planner"},
]


def made(**algorithm: Any) -> AlgorithmOptions:
    return AlgorithmOptions.model_validate({"sampler": PARALLEL, **algorithm})


@pytest.mark.parametrize("sampler", [{"refill": 1}, {"filter": {"by": "equal"}}], ids=["refill", "filter"])
@pytest.mark.parametrize(
    ("algorithm", "other"),
    [
        ({"advantage": {"key": "role"}}, "advantage.key=role"),
        ({"advantage": {"key": "batch"}}, "advantage.key=batch"),
        ({"advantage": {"baseline": "none", "scale": "none"}}, "advantage.baseline=none"),
        ({"advantage": {"baseline": "running", "key": "role", "scale": "none"}}, "advantage.baseline=running"),
        ({"advantage": {"baseline": "critic"}}, "advantage.baseline=critic"),
        ({"update": "training_free"}, "update=training_free"),
    ],
)
def test_flat_tasks_are_left_out_only_where_groups_are_compared(
    sampler: dict[str, Any], algorithm: dict[str, Any], other: str
) -> None:
    made(**algorithm)
    with pytest.raises(ValidationError, match=f"differences inside groups, and {other} learns from others"):
        made(**algorithm | {"sampler": PARALLEL | sampler})
    made(sampler=PARALLEL | sampler)
    AlgorithmOptions.model_validate({"sampler": {"mode": "full_tree"} | sampler, "update": "preference"})


@pytest.mark.parametrize("advantage", WHOLE, ids=str)
def test_what_is_of_whole_trajectories_is_refused_beside_rewards_of_single_turns(advantage: dict[str, Any]) -> None:
    made(advantage=advantage)
    with pytest.raises(ValidationError, match=r"reward\.discount=0\.9"):
        made(advantage=advantage, reward={"discount": 0.9})


@pytest.mark.parametrize(
    ("advantage", "name"),
    [
        ({"step": {}}, "advantage.step"),
        ({"strata": {}}, "advantage.strata"),
        ({"key": "prompt"}, "advantage.key=prompt"),
    ],
)
def test_one_advantage_an_episode_is_inherited(advantage: dict[str, Any], name: str) -> None:
    made(advantage=advantage)
    with pytest.raises(ValidationError, match=f"the one advantage that its agent has in an episode; with {name}"):
        made(advantage=advantage | {"inherit": "planner"})


@pytest.mark.parametrize(
    "reward", [{"discount": 0.9}, {"length": {"most": 8, "margin": 2}}], ids=["discount", "length"]
)
def test_a_critic_does_not_read_shaped_rewards(reward: dict[str, Any]) -> None:
    made(reward=reward)
    with pytest.raises(ValidationError, match="baseline=critic reads what every turn was paid"):
        made(reward=reward, advantage={"baseline": "critic"})


def test_stages_name_the_roles() -> None:
    stages = [{"roles": ["planner"], "steps": 1}]
    made(roles=["planner"])
    made(stages=stages)
    with pytest.raises(ValidationError, match="names the roles of each stage"):
        made(roles=["planner"], stages=stages)


def test_a_margin_is_at_most_the_length() -> None:
    made(reward={"length": {"most": 8, "margin": 8}})
    with pytest.raises(ValidationError, match="margin=9 is more than most=8"):
        made(reward={"length": {"most": 8, "margin": 9}})


@pytest.mark.parametrize(
    ("part", "idle", "reason"),
    [
        ({"components": True}, {"single": "raw"}, "with advantage.components a group of one gets 0"),
        ({"strata": {}}, {"single": "raw"}, "with advantage.strata a group of one gets 0"),
        ({"baseline": "none", "scale": "none"}, {"single": "raw"}, "baseline=none compares with no group"),
        (
            {"baseline": "running", "key": "role", "scale": "none"},
            {"single": "raw"},
            "baseline=running compares with no group",
        ),
        ({"baseline": "critic"}, {"single": "raw"}, "baseline=critic compares with no group"),
        ({}, {"step": {"size": 4}}, "only key=random draws groups of a size"),
        ({}, {"step": {"value": "reward", "discount": 0.5}}, "value=reward is what this turn alone was paid"),
        ({}, {"step": {"key": "none", "scale": "none"}}, "key=none compares with nothing"),
        ({}, {"uncertainty": {"clarity": 0, "clarity_scale": 2}}, "clarity is 0"),
    ],
)
def test_a_value_without_effect_is_refused_and_its_default_is_not(
    part: dict[str, Any], idle: dict[str, Any], reason: str
) -> None:
    stored = made(advantage=part).model_dump(mode="json")
    assert AlgorithmOptions.model_validate(stored) == made(advantage=part)
    with pytest.raises(ValidationError, match=f"has no effect here: .*{reason}"):
        made(advantage=part | idle)


def test_a_share_is_for_filters_that_have_one() -> None:
    made(sampler=PARALLEL | {"filter": {"by": "equal", "share": 0.5}})
    with pytest.raises(
        ValidationError, match=r"share=0\.3 has no effect here: by=equal drops all groups of equal rewards"
    ):
        made(sampler=PARALLEL | {"filter": {"by": "equal", "share": 0.3}})


@pytest.mark.parametrize(
    ("words", "fixed"),
    [
        (["algorithm=gdpo", "algorithm.advantage.single=zero"], "algorithm=parallel_grpo"),
        (["algorithm=stratified_grpo", "algorithm.advantage.single=zero"], "algorithm=parallel_grpo"),
        (["algorithm=rae", "algorithm.advantage.single=zero"], "algorithm=parallel_grpo"),
        (["algorithm=ppo", "algorithm.advantage.single=zero"], "algorithm=parallel_grpo"),
        (["algorithm=gigpo", "algorithm.advantage.step.size=16"], "algorithm.advantage.step.key=random"),
        (["algorithm=srgpo", "algorithm.advantage.step.discount=0.95"], "algorithm.advantage.step.value=return"),
        (
            ["algorithm=gigpo", "algorithm.advantage.step.key=none", "algorithm.advantage.step.scale=std"],
            "algorithm.advantage.step.key=index",
        ),
        (
            ["algorithm.sampler.filter.by=equal", "algorithm.sampler.filter.share=0.5"],
            "algorithm.sampler.filter.by=std",
        ),
        (
            [
                "algorithm=empg",
                "algorithm.advantage.uncertainty.clarity=0",
                "algorithm.advantage.uncertainty.clarity_scale=1",
            ],
            "algorithm.advantage.uncertainty.clarity=0.1",
        ),
    ],
)
def test_a_default_that_somebody_sets_without_effect_is_refused(words: list[str], fixed: str) -> None:
    with pytest.raises(ConfigError, match="has no effect here"):
        load_config(words)
    load_config([*words, fixed])


@pytest.mark.parametrize("name", presets("algorithm"))
def test_a_preset_that_is_stored_with_every_default_loads(name: str) -> None:
    algorithm = load_config([f"algorithm={name}"]).algorithm
    assert AlgorithmOptions.model_validate(algorithm.model_dump(mode="json")) == algorithm


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"reward": {"of": "turn", "discount": 0.9}}, "choose one"),
        ({"reward": {"of": "turn"}, "advantage": {"strata": {}}}, "choose one"),
        ({"reward": {"of": "turn"}, "advantage": {"inherit": "planner"}}, "leave one of them out"),
        ({"reward": {"of": "turn"}, "sampler": {"mode": "tree"}}, "write sampler.mode=parallel"),
        ({"reward": {"length": {"most": 8, "margin": 2}}, "advantage": {"components": True}}, "leave reward.length"),
        ({"loss": {"kl": 0.1, "kl_in": "reward"}, "advantage": {"components": True}}, "write loss.kl_in=loss"),
    ],
)
def test_single_turns_and_terms_have_no_rewards_of_the_whole(more: dict[str, Any], reason: str) -> None:
    made(reward={"of": "turn"})
    with pytest.raises(ValidationError, match=reason):
        made(**more)


GROWN = {"sampler": {"mode": "entropy_tree"}, "advantage": {"tree": {}}}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({"advantage": {}}, r"advantage\.tree says how: write advantage\.tree\.backup=child_softmax"),
        ({"sampler": PARALLEL}, r"the ends of entropy trees: write sampler\.mode=entropy_tree"),
        ({"advantage": {"tree": {}, "key": "role"}}, r"leave advantage\.key, baseline, scale, single and components"),
        ({"advantage": {"tree": {}, "baseline": "best"}}, r"leave advantage\.key, baseline"),
        ({"advantage": {"tree": {}, "scale": "none"}}, r"leave advantage\.key, baseline"),
        ({"advantage": {"tree": {}, "step": {}}}, r"write sampler\.mode=parallel"),
        ({"advantage": {"tree": {}, "early": {}}}, r"write sampler\.mode=parallel"),
        ({"reward": {"length": {"most": 8, "margin": 2}}}, r"leave reward\.length out"),
        ({"loss": {"kl": 0.1, "kl_in": "reward"}}, r"write loss\.kl_in=loss"),
        (
            {"reward": {"late": {"judge": "j", "terms": {"good": 0.0}}}},
            r"reward\.late pays terms that nobody reads: advantage\.tree",
        ),
        ({"sampler": {"mode": "entropy_tree", "filter": {}}}, "take turns out of the midst of trees"),
        ({"update": "preference", "advantage": {}}, r"too few for that: use sampler\.mode=full_tree"),
        (
            {"sampler": {"mode": "entropy_tree", "branch": {"chains": 8}}},
            "leave nothing to branch of sampler.candidates=8",
        ),
        ({"sampler": {"mode": "entropy_tree", "branch": {"weight": 0.1}}}, "by=rank compares entropies alone"),
        (
            {"sampler": {"mode": "entropy_tree", "branch": {"by": "chance", "expand": 4}}},
            "chooses how many by entropies",
        ),
    ],
)
def test_what_does_not_go_with_an_entropy_tree_is_refused(more: dict[str, Any], reason: str) -> None:
    made(**GROWN)
    with pytest.raises(ValidationError, match=reason):
        made(**GROWN | more)


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        ({"advantage": {"early": {}, "key": "prompt"}}, "advantage.early whole episodes"),
        ({"advantage": {"early": {}}, "reward": {"of": "turn"}}, "advantage.early whole episodes"),
        ({"advantage": {"early": {}}, "reward": {"discount": 0.9}}, "advantage.early whole trajectories"),
        ({"advantage": {"early": {}, "baseline": "critic"}}, "compares with no group"),
        ({"advantage": {"entropy_weight": 0.2, "baseline": "critic"}}, "compares with no group"),
        ({"advantage": {"entropy_weight": 0.2}, "loss": {"surrogate": "gmpo"}}, "gmpo weighs a turn as one"),
    ],
)
def test_what_gives_episodes_or_tokens_an_advantage_needs_them(algorithm: dict[str, Any], reason: str) -> None:
    made(advantage={"early": {}, "entropy_weight": 0.2})
    with pytest.raises(ValidationError, match=reason):
        made(**algorithm)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["algorithm.sampler.branch.penalty=0.05"], "only algorithm.sampler.mode=entropy_tree branches"),
        (["algorithm=at2po", "algorithm.sampler.branch.weight=0.2"], "by=rank compares entropies alone"),
        (["algorithm=aepo", "algorithm.sampler.branch.chains=4"], "chooses how many by entropies"),
        (["algorithm=at2po", "algorithm.sampler.lookahead=turn"], "only mode=tree has decisions to look ahead from"),
        (["algorithm=at2po", "algorithm.loss.ratio=sequence"], "in tree sampling every turn is a trajectory"),
    ],
)
def test_keys_of_branches_are_for_entropy_trees(words: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"has no effect here.*{reason}"):
        load_config(words)


ATTEMPTS = {"mode": "parallel", "attempts": {}}


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        ({"sampler": ATTEMPTS}, "to fail first and then to succeed earns more than to succeed at once"),
        ({"sampler": {"mode": "full_tree", "attempts": {}}, "update": "preference"}, "sampler.mode=full_tree adds up"),
        ({"sampler": {"mode": "tree", "lookahead": "episode", "attempts": {}}}, "sampler.lookahead=episode adds up"),
        ({"sampler": ATTEMPTS, "reward": {"of": "attempt", "shared": True}}, "reward.shared reads whole episodes"),
        ({"sampler": ATTEMPTS, "reward": {"of": "attempt", "gain": {}}}, "reward.gain reads whole episodes"),
        ({"sampler": ATTEMPTS, "reward": {"of": "attempt", "partial": {}}}, "reward.partial reads whole episodes"),
        (
            {"sampler": ATTEMPTS, "reward": {"of": "attempt", "model": {"kind": "progress"}}},
            "reward.model reads whole episodes",
        ),
        (
            {"sampler": ATTEMPTS | {"horizon": {"turns": [2]}}, "reward": {"of": "attempt"}},
            "sampler.horizon reads whole episodes",
        ),
        (
            {
                "sampler": {"mode": "tree", "attempts": {"guide": "repair"}, "filter": {}},
                "update": "preference",
                "preference": {"value": "reward", "repairs": True},
            },
            "sampler.filter takes their groups out",
        ),
        ({"reward": {"shared": True}, "sampler": PARALLEL | {"refill": 1}}, "judge groups by what each agent was paid"),
        (
            {"sampler": {"mode": "entropy_tree"}, "advantage": {"tree": {}, "uncertainty": {}}},
            "in entropy trees every turn is one of its own",
        ),
    ],
)
def test_what_would_pay_for_failing_first_or_pay_wrongly_is_refused(algorithm: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(reason)):
        AlgorithmOptions.model_validate(algorithm)


def test_a_reflector_that_trains_alone_may_be_paid_by_the_rest_of_the_episode() -> None:
    sampler = {"mode": "tree", "lookahead": "episode", "attempts": {"guide": "reflector"}}
    AlgorithmOptions.model_validate({"sampler": sampler, "roles": ["reflector"]})
