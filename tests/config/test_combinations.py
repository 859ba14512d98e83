"""Parts of an algorithm that do not go together, and values that have no effect, are refused with the reason."""

import re
from typing import Any

import pytest
from pydantic import ValidationError

from mas.algorithms.parts.options import AlgorithmOptions
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
    with pytest.raises(ValidationError, match=f"together with {other}: not only differences inside groups teach"):
        made(**algorithm | {"sampler": PARALLEL | sampler})
    made(sampler=PARALLEL | sampler)
    AlgorithmOptions.model_validate({"sampler": {"mode": "full_tree"} | sampler, "update": "preference"})


@pytest.mark.parametrize("sampler", [{"refill": 1}, {"filter": {"by": "equal"}}], ids=["refill", "filter"])
@pytest.mark.parametrize(
    ("algorithm", "other"),
    [
        ({"reward": {"of": "turn"}}, "reward.of=turn"),
        ({"reward": {"discount": 0.9}}, "reward.discount=0.9"),
        ({"advantage": {"components": True}}, "advantage.components"),
    ],
)
def test_groups_of_equal_trajectories_are_not_left_out_where_their_turns_or_terms_are_compared(
    sampler: dict[str, Any], algorithm: dict[str, Any], other: str
) -> None:
    made(**algorithm)
    with pytest.raises(
        ValidationError, match=f"together with {other}: where all trajectories of a group are paid alike"
    ):
        made(**algorithm | {"sampler": PARALLEL | sampler})


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
    with pytest.raises(ValidationError, match=f"inherit=planner does not go together with {name}"):
        made(advantage=advantage | {"inherit": "planner"})


@pytest.mark.parametrize(
    "reward", [{"discount": 0.9}, {"length": {"most": 8, "margin": 2}}], ids=["discount", "length"]
)
def test_a_critic_does_not_read_shaped_rewards(reward: dict[str, Any]) -> None:
    made(reward=reward)
    with pytest.raises(ValidationError, match="a critic reads what every turn was paid"):
        made(reward=reward, advantage={"baseline": "critic"})


def test_stages_name_the_roles() -> None:
    stages = [{"roles": ["planner"], "steps": 1}]
    made(roles=["planner"])
    made(stages=stages)
    with pytest.raises(ValidationError, match="stages name the roles of each"):
        made(roles=["planner"], stages=stages)


def test_a_margin_is_at_most_the_length() -> None:
    made(reward={"length": {"most": 8, "margin": 8}})
    with pytest.raises(ValidationError, match="margin=9 is more than most=8"):
        made(reward={"length": {"most": 8, "margin": 9}})


@pytest.mark.parametrize(
    ("part", "idle", "reason"),
    [
        ({"components": True}, {"single": "raw"}, "a group of one is not compared as a group"),
        ({"strata": {}}, {"single": "raw"}, "a group of one is not compared as a group"),
        ({"baseline": "none", "scale": "none"}, {"single": "raw"}, "a group of one is not compared as a group"),
        (
            {"baseline": "running", "key": "role", "scale": "none"},
            {"single": "raw"},
            "a group of one is not compared as a group",
        ),
        ({"baseline": "critic"}, {"single": "raw"}, "a group of one is not compared as a group"),
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
    with pytest.raises(ValidationError, match=f"has no effect.*{reason}"):
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
        (
            ["algorithm=empg", "algorithm.options.clarity=0", "algorithm.options.clarity_scale=1"],
            "algorithm.options.clarity=0.1",
        ),
        (["algorithm=epo", "algorithm.loss.entropy=0", "algorithm.options.low=0.5"], "algorithm.loss.entropy=0.1"),
        (["algorithm=dpo", "algorithm.options={dpo: 0, sft: 1, beta: 0.1}"], "algorithm.options.dpo=1"),
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
        ({"reward": {"of": "turn", "discount": 0.9}}, "turns are compared by themselves"),
        ({"reward": {"of": "turn"}, "advantage": {"strata": {}}}, "turns are compared by themselves"),
        ({"reward": {"of": "turn"}, "advantage": {"inherit": "planner"}}, "must have one advantage in an episode"),
        ({"reward": {"of": "turn"}, "sampler": {"mode": "tree"}}, "which sampler.mode=parallel plays"),
        ({"reward": {"length": {"most": 8, "margin": 2}}, "advantage": {"components": True}}, "with reward.length"),
        ({"loss": {"kl": 0.1, "kl_in": "reward"}, "advantage": {"components": True}}, "with loss.kl_in=reward"),
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
        ({"advantage": {}}, r"the ends of a tree are compared as advantage\.tree says"),
        ({"sampler": PARALLEL}, r"it compares the ends of entropy trees"),
        ({"advantage": {"tree": {}, "key": "role"}}, r"with advantage\.key=role"),
        ({"advantage": {"tree": {}, "baseline": "best"}}, r"with advantage\.baseline=best"),
        ({"advantage": {"tree": {}, "scale": "none"}}, r"with advantage\.scale=none"),
        ({"advantage": {"tree": {}, "step": {}}}, r"which sampler\.mode=parallel plays"),
        ({"advantage": {"tree": {}, "early": {}}}, r"which sampler\.mode=parallel plays"),
        ({"reward": {"length": {"most": 8, "margin": 2}}}, r"with reward\.length"),
        ({"loss": {"kl": 0.1, "kl_in": "reward"}}, r"with loss\.kl_in=reward"),
        (
            {"reward": {"late": {"judge": "j", "terms": {"good": 0.0}}}},
            r"reward\.late does not go together with advantage\.tree: it pays terms that nobody reads",
        ),
        ({"sampler": {"mode": "entropy_tree", "filter": {}}}, "a turn is read beside the rest of its tree"),
        ({"update": "preference", "advantage": {}}, r"use sampler\.mode=full_tree"),
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
        ({"advantage": {"early": {}, "key": "prompt"}}, "turns are compared by themselves"),
        ({"advantage": {"early": {}}, "reward": {"of": "turn"}}, "turns are compared by themselves"),
        ({"advantage": {"early": {}}, "reward": {"discount": 0.9}}, "turns are compared by themselves"),
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
        (["algorithm=at2po", "algorithm.sampler.lookahead=turn"], "only mode=tree has decisions to look ahead from"),
        (["algorithm=at2po", "algorithm.loss.ratio=sequence"], "in tree sampling every turn is a trajectory"),
        (["algorithm=at2po", "algorithm.loss.aggregation=trajectory_mean"], "in tree sampling every turn is a traj"),
    ],
)
def test_keys_of_branches_are_for_entropy_trees(words: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"has no effect here.*{reason}"):
        load_config(words)


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        (["algorithm=pass_at_k", "algorithm.loss.clip_low=0.1"], "leaves no advantage below 0"),
        (["algorithm=pass_at_k", "algorithm.loss.dual_clip=2"], "leaves no advantage below 0"),
        (["algorithm=malt", "algorithm.reward.alpha=0.5"], "reads whether episodes were won, and no term"),
        (["algorithm=malt", "algorithm.reward.failure=0"], "reads whether episodes were won, and no term"),
        (["algorithm=malt", "algorithm.reward.weights.right=2"], "reads whether episodes were won, and no term"),
    ],
)
def test_what_only_a_loss_or_a_reward_of_another_kind_reads_is_refused(words: list[str], reason: str) -> None:
    with pytest.raises(ConfigError, match=f"has no effect here.*{reason}"):
        load_config(words)


@pytest.mark.parametrize(
    "words",
    [
        ["algorithm=pass_at_k", "algorithm.loss.clip_high=0.1"],
        ["algorithm=pass_at_k", "algorithm.loss.clip_low=0.1", "algorithm.advantage.whiten=turns"],
        ["algorithm=pass_at_k", "algorithm.loss.surrogate=cispo", "algorithm.loss.clip_low=0.1"],
        ["algorithm=malt", "algorithm.reward.alpha=0.5", "algorithm.warm_start.threshold=0.5"],
        ["algorithm=dpo", "algorithm.reward.alpha=0.5"],
        ["algorithm=flow_grpo", "algorithm.loss.aggregation=trajectory_mean"],
    ],
)
def test_what_is_read_is_not(words: list[str]) -> None:
    load_config(words)


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        ({"advantage": {"baseline": "none", "scale": "none", "key": "role"}}, "so that there are no groups"),
        ({"advantage": {"scale": "nonzero", "whiten": "tokens"}}, "whitening takes any factor of a batch out again"),
        (
            {"advantage": {"baseline": "critic"}, "reward": {"of": "turn"}, "sampler": {"mode": "parallel"}},
            "a critic reads what every turn was paid",
        ),
    ],
)
def test_what_the_advantage_would_not_change_is_refused(algorithm: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=reason):
        made(**algorithm)


ATTEMPTS = {"mode": "parallel", "attempts": {}}


@pytest.mark.parametrize(
    ("algorithm", "reason"),
    [
        ({"sampler": ATTEMPTS}, "to fail first and then to succeed would earn more than to succeed at once"),
        (
            {"sampler": {"mode": "full_tree", "attempts": {}}, "update": "preference"},
            "with sampler.mode=full_tree: to fail",
        ),
        ({"sampler": {"mode": "tree", "lookahead": "episode", "attempts": {}}}, "sampler.lookahead=episode adds up"),
        (
            {"sampler": ATTEMPTS, "reward": {"of": "attempt", "shared": True}},
            "with reward.shared: it reads whole episodes",
        ),
        ({"sampler": ATTEMPTS, "reward": {"of": "attempt", "gain": {}}}, "with reward.gain: it reads whole episodes"),
        (
            {"sampler": ATTEMPTS, "reward": {"of": "attempt", "partial": {}}},
            "with reward.partial: it reads whole episodes",
        ),
        (
            {"sampler": ATTEMPTS, "reward": {"of": "attempt", "model": {"kind": "progress"}}},
            "with reward.model: it reads whole episodes",
        ),
        (
            {"sampler": ATTEMPTS | {"horizon": {"turns": [2]}}, "reward": {"of": "attempt"}},
            "with sampler.horizon: it reads whole episodes",
        ),
        (
            {
                "sampler": {"mode": "tree", "attempts": {"guide": "repair"}, "filter": {}},
                "update": "preference",
                "preference": {"value": "reward", "repairs": True},
            },
            "sampler.filter: a repair belongs to one failed answer",
        ),
        (
            {"reward": {"shared": True}, "sampler": PARALLEL | {"refill": 1}},
            "what each agent, or each turn, was paid alone",
        ),
        (
            {"sampler": {"mode": "entropy_tree"}, "advantage": {"tree": {}, "uncertainty": {}}},
            "a turn is read beside the rest of its tree",
        ),
    ],
)
def test_what_would_pay_for_failing_first_or_pay_wrongly_is_refused(algorithm: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValidationError, match=re.escape(reason)):
        AlgorithmOptions.model_validate(algorithm)


def test_a_reflector_that_trains_alone_may_be_paid_by_the_rest_of_the_episode() -> None:
    sampler = {"mode": "tree", "lookahead": "episode", "attempts": {"guide": "reflector"}}
    AlgorithmOptions.model_validate({"sampler": sampler, "roles": ["reflector"]})
