"""What presets make of fixed rollouts is what `formulas` and `comparisons` say: every advantage, and every gradient of
every update, of policies, critics and reward models.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
import pytest
import torch
from golden import comparisons as c
from golden import formulas as f
from golden.formulas import PolicyGradient, Preferences, compared, paid, reward, with_entropy
from golden.presets import base_of
from golden.rollouts import Facts
from golden.steps import Compared, Formula
from torch import Tensor

from mas.config.load import presets
from mas.serving.model import BaseModel

PILOTRL = f.by_stages(
    ("executor", 5, {"right": 0.0}), ("planner", 10, {"follow": 0.0}), ("planner executor", 100, {"follow": 0.0})
)
WALTZRL = f.by_stages(("feedback", 5, {}), ("conversation feedback", 100, {"label": 0.0}))
HIERSEARCH = f.by_stages(("local web", 8, {"right": 0.0}), ("planner", 100, {"found": 0.0}))
ACTIONS = reward(alpha=0.0)
MEANS: dict[str, float] = {}


def alone(row: Sequence[Facts], scores: Sequence[float]) -> list[Facts]:
    """SPA-RL, arXiv 2505.20732: r = c + 0.5 g, g is 1 for what was grounded and at the end; nothing else is paid."""
    own = [c + 0.5 * turn["facts"]["Grounded"]["is_grounded"] for turn, c in zip(row, scores, strict=True)]
    own[-1] = scores[-1] + 0.5
    pairs = zip(row, own, strict=True)
    return [{**turn, "paid": {"own.model": one}, "rewards": {"own.model": sum(own)}} for turn, one in pairs]


def bounded(row: Sequence[Facts], scores: Sequence[float]) -> list[Facts]:
    """Clip and Delta, arXiv 2410.15115: min(r - 0.5, 0); then what each is above the next, the last but one its own,
    the last 0."""
    own = [min(one - 0.5, 0.0) for one in scores]
    own = [*(one - after for one, after in pairwise(own[:-1])), *own[-2:-1], 0.0]
    return added(row, own)


def added(row: Sequence[Facts], scores: Sequence[float]) -> list[Facts]:
    whole = {"own.model": sum(scores)}
    return [
        {**turn, "paid": {**turn["paid"], "own.model": one}, "rewards": {**turn["rewards"], **whole}}
        for turn, one in zip(row, scores, strict=True)
    ]


def noted(row: Sequence[Facts], scores: Sequence[float]) -> list[Facts]:
    return [{**turn, "score": one} for turn, one in zip(row, scores, strict=True)]


def with_scores(turns: Sequence[Facts]) -> f.Advantages:
    """iStar, arXiv 2509.19199: RLOO of outcomes, and of scores by their spread over all turns of the group."""
    found = compared(turns, f.outcome, c.less_others)
    for own in f.parts(turns, f.group):
        scores = [turn["score"] for turn in own]
        for turn, one in zip(own, c.less_others(scores), strict=True):
            found[turn["id"]] += one / (np.std(scores, ddof=1) + 1e-6) if len(own) > 1 else 0.0
    return found


def repairs(turns: Sequence[Facts]) -> list[Facts]:
    """Re-ReST, arXiv 2406.01495: what the reflector said, as the answer of who failed."""
    by_id, found = {turn["id"]: turn for turn in turns}, []
    for turn in turns:
        if turn["role"] == "reflector":
            failed = by_id[turn["parent"]]
            as_failed = {name: failed[name] for name in ("prompt_ids", "role", "group", "temperature", "choices")}
            found.append({**turn, **as_failed, "id": f"{turn['id']}/repair"})
    return found


FORMULAS: dict[str, Formula] = {
    "bnpo": PolicyGradient(advantages=lambda turns, *_: f.bnpo(turns, -4, 1)),
    "topr": PolicyGradient(
        advantages=lambda turns, *_: compared(turns, reward(), f.less_mean), loss=f.topr, weights=f.turn_sums
    ),
    "igpo": PolicyGradient(advantages=lambda turns, episodes, _: f.igpo(turns, episodes), kl=0.001),
    "search_self_play": PolicyGradient(
        advantages=lambda turns, *_: f.self_play(turns),
        loss=with_entropy(partial(f.ppo, high=0.285)),
        kl=0.01,
        is_shared=True,
    ),
    "dpo": Preferences(worth=reward()),
    "malt": Preferences(worth=lambda turn: turn["rewards"]["outcome"], threshold=0.5, sft=1.0, sft_only=("generator",)),
}
"""In every run; the others in a nightly one."""
MORE: dict[str, Formula] = {
    "gdpo": PolicyGradient(advantages=lambda turns, *_: f.gdpo(turns)),
    "matpo": PolicyGradient(
        advantages=lambda turns, *_: f.inherited(turns),
        loss=f.ppo,
        weights=f.episode_means,
        is_shared=True,
    ),
    "pilotrl": PolicyGradient(
        advantages=lambda turns, _, done: compared(turns, reward(**PILOTRL(done)[1])),
        trained=lambda done: PILOTRL(done)[0],
    ),
    "retroformer": PolicyGradient(
        advantages=lambda turns, *_: compared(turns, reward()), trained=lambda done: {"reflector"}
    ),
    "agent_rlvr": PolicyGradient(advantages=lambda turns, *_: compared(turns, reward())),
    "tool_rl": PolicyGradient(advantages=lambda turns, *_: compared(turns, ACTIONS)),
    "replan": PolicyGradient(advantages=lambda turns, *_: compared(turns, reward(follow=0.2))),
    "action_grpo": PolicyGradient(advantages=lambda turns, *_: f.with_actions(turns, 0.5)),
    "ppo": PolicyGradient(advantages=None),
    "poad": PolicyGradient(advantages=None, level="bad", gamma=0.95, loss=with_entropy(weight=0.01)),
    "turn_ppo": PolicyGradient(
        advantages=None, level="turn", gamma=0.99, loss=with_entropy(partial(f.ppo, ratio=f.of_turn))
    ),
    "s_ppo": PolicyGradient(advantages=None, held=f.of_token),
    "st_ppo": PolicyGradient(
        advantages=None, level="turn", gamma=0.99, loss=with_entropy(partial(f.ppo, ratio=f.of_turn)), held=f.of_turn
    ),
    "owl": Preferences(worth=reward(), trained=lambda done: {"planner"}),
    "rise": Preferences(worth=reward(), sft=1.0, dpo=0.0),
    "oprl": PolicyGradient(advantages=lambda turns, *_: with_scores(turns), model=("implicit", noted, 4)),
    "aepo": PolicyGradient(
        advantages=lambda turns, *_: c.from_ends(turns, "leaf_mean"),
        loss=f.aepo,
        by_token=c.by_uncertainty,
        reads_entropies=True,
    ),
    "at2po": PolicyGradient(
        advantages=lambda turns, *_: c.from_ends(turns, "child_softmax"),
        loss=partial(f.ppo, ratio=f.of_turn, low=0.003, high=0.004, dual=1e9),
    ),
    "epo": PolicyGradient(
        advantages=lambda turns, *_: compared(turns, reward()), loss=with_entropy(weight=0.02), band=c.band_weight
    ),
    "srgpo": PolicyGradient(advantages=lambda turns, _, done: c.with_random_steps(turns, done + 1), kl=0.01),
    "grpo_roc": PolicyGradient(advantages=lambda turns, *_: compared(turns, reward()), loss=partial(f.ppo, high=0.28)),
    "mlpo": PolicyGradient(
        advantages=lambda turns, *_: compared(turns, reward(), f.less_mean), weights=f.sums_by_8, kept=c.unsolved
    ),
    "reward_stack": PolicyGradient(
        advantages=lambda turns, *_: compared(turns, reward(model=0.1, cost_tokens=0.1, verbose=-0.1)),
        model=("progress", added, 4),
    ),
    "spa_rl": PolicyGradient(advantages=None, model=("progress", alone, 8)),
    "clip_delta": PolicyGradient(advantages=None, model=("progress", bounded, 8)),
    "waltzrl": PolicyGradient(
        advantages=lambda turns, _, done: c.of_turns(turns, partial(paid, alpha=0.0, **WALTZRL(done)[1])),
        trained=lambda done: WALTZRL(done)[0],
    ),
    "self_redteam": PolicyGradient(
        advantages=lambda turns, *_: f.by_rows(
            turns, lambda row: paid(row[0]["rewards"]) - c.kl_of(row), key=lambda turn: turn["role"]
        ),
        paid_kl=0.01,
        is_shared=True,
    ),
    "rae": PolicyGradient(advantages=lambda turns, _, done: c.running(turns, done, MEANS)),
    "spiral": PolicyGradient(advantages=lambda turns, _, done: c.running(turns, done, MEANS), is_shared=True),
    "cory": PolicyGradient(
        advantages=None,
        loss=f.ppo,
        paid_kl=0.4,
        kept=c.shared,
        worth=partial(paid, alpha=0.0),
        swapped=(5, {"pioneer": "observer", "observer": "pioneer"}),
    ),
    "mmoa_rag": PolicyGradient(
        advantages=None,
        loss=f.ppo,
        paid_kl=0.01,
        worth=partial(paid, found=0.0, waste=0.0, empty=0.0, choice=0.0),
        is_shared=True,
    ),
    "comas": PolicyGradient(advantages=lambda turns, *_: c.of_turns(turns, partial(paid, alpha=0.0)), paid_kl=0.01),
    "reinforce_pp": PolicyGradient(advantages=lambda turns, *_: c.by_batch(turns), paid_kl=0.01),
    "reinforce_pp_baseline": PolicyGradient(advantages=lambda turns, *_: c.by_batch(turns, f.less_mean)),
    "gigpo": PolicyGradient(advantages=lambda turns, *_: c.with_states(turns), kl=0.01),
    "empg": PolicyGradient(advantages=lambda turns, *_: c.by_confidence(turns), reads_entropies=True),
    "stratified_grpo": PolicyGradient(advantages=lambda turns, *_: c.stratified(turns)),
    "e_grpo": PolicyGradient(
        advantages=lambda turns, episodes, _: c.by_entities(turns, episodes),
        loss=with_entropy(partial(f.ppo, high=0.28)),
    ),
    "aspo": PolicyGradient(
        advantages=lambda turns, episodes, _: c.with_early_tools(turns, episodes),
        loss=partial(f.ppo, high=0.28),
        weights=f.token_means,
    ),
    "eapo": PolicyGradient(
        advantages=lambda turns, *_: c.discounted(turns),
        loss=with_entropy(partial(f.ppo, ratio=f.of_turn, high=0.28, dual=1e9)),
    ),
    "hiersearch": PolicyGradient(
        advantages=lambda turns, _, done: compared(turns, reward(**HIERSEARCH(done)[1])),
        trained=lambda done: HIERSEARCH(done)[0],
    ),
    "flow_grpo": PolicyGradient(
        advantages=lambda turns, *_: compared(turns, reward()),
        loss=with_entropy(partial(f.ppo, high=0.3)),
        weights=f.trajectory_means,
        kl=0.001,
    ),
    "arpo": PolicyGradient(
        advantages=lambda turns, *_: compared(turns, reward()),
        loss=with_entropy(partial(f.ppo, ratio=f.of_sampler, weight=None)),
    ),
    "cispo": PolicyGradient(
        advantages=lambda turns, *_: compared(turns, reward()), loss=with_entropy(f.cispo), weights=f.token_means
    ),
    "sapo": PolicyGradient(advantages=lambda turns, *_: compared(turns, reward()), loss=with_entropy(f.sapo)),
    "gmpo": PolicyGradient(advantages=lambda turns, *_: compared(turns, reward()), loss=with_entropy(f.gmpo)),
    "gspo": PolicyGradient(
        advantages=lambda turns, *_: compared(turns, reward()),
        loss=with_entropy(partial(f.ppo, ratio=f.of_turn, low=3e-4, high=4e-4, dual=1e9)),
    ),
    "gpg": PolicyGradient(advantages=lambda turns, *_: c.by_share(turns), loss=f.reinforce),
    "opo": PolicyGradient(advantages=lambda turns, *_: c.by_length(turns), loss=f.reinforce),
    "pass_at_k": PolicyGradient(advantages=lambda turns, *_: compared(turns, reward(), c.best_of)),
    "rloo": PolicyGradient(advantages=lambda turns, *_: compared(turns, reward(), c.less_others)),
    "dapo": PolicyGradient(
        advantages=lambda turns, *_: compared(turns, reward()),
        loss=partial(f.ppo, high=0.28),
        weights=f.token_means,
    ),
    "dr_grpo": PolicyGradient(advantages=lambda turns, *_: compared(turns, reward(), f.less_mean), weights=f.sums_by_8),
    **dict.fromkeys(
        ("at_grpo", "hi_agent", "parallel_grpo", "scaling_inter", "single_grpo"),
        PolicyGradient(advantages=lambda turns, *_: compared(turns, reward())),
    ),
    "tool_learner": Preferences(worth=reward(), sft=1.0, dpo=0.0, fork=(8, "planner")),
    "re_rest": Preferences(worth=reward(), threshold=0.5, sft=1.0, dpo=0.0, more=repairs),
}
WORDS = {"eapo": ("algorithm.options.multiple_of=null",)}
"""What is drawn, and not compared."""


@pytest.fixture(scope="module")
def base() -> BaseModel:
    return base_of()


@pytest.mark.parametrize("name", FORMULAS)
def test_advantages_and_gradients_are_those_of_the_formula(name: str, base: BaseModel) -> None:
    Compared(name, FORMULAS[name], base).run()


@pytest.mark.nightly
@pytest.mark.parametrize("name", MORE)
def test_those_of_further_presets_are(name: str, base: BaseModel) -> None:
    Compared(name, MORE[name], base, WORDS.get(name, ())).run()


def test_every_preset_with_gradients_has_a_formula() -> None:
    assert {*FORMULAS, *MORE} == {*presets("algorithm")} - {"training_free"}


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("word", "is_kept"),
    [
        ("token_band=[0.5,2]", lambda weight: (weight >= 0.5) & (weight <= 2)),
        ("sequence_band=[0.7,1.5]", lambda weight: 0.7 <= weight.log().mean().exp() <= 1.5),
        ("veto=[0.4,3]", lambda weight: weight.min() >= 0.4 and weight.max() <= 3),
    ],
)
def test_what_is_far_from_the_policy_has_its_entropy_alone(
    word: str, is_kept: Callable[[Tensor], Tensor | bool], base: BaseModel
) -> None:
    """IcePop's band, arXiv 2510.18855, of a token or of a turn, and turns with a token far out; weights stay."""

    def masked(one: f.Tokens) -> Tensor:
        return f.ppo(one).where(torch.as_tensor(is_kept((one.start - one.sampled).exp())), torch.zeros(()))

    formula = replace(MORE["parallel_grpo"], loss=with_entropy(masked))
    Compared("parallel_grpo", formula, base, (f"algorithm.loss.off_policy.{word}",)).run()


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("topr", ("learner.epochs=2", "learner.micro_batch_tokens=16")),
        ("topr", ("learner.minibatches=3", "learner.pack=false")),
        ("bnpo", ("algorithm.policy=shared",)),
        ("topr", ("algorithm.policy=shared",)),
        ("igpo", ("algorithm.policy=shared", "learner.micro_batch_tokens=16")),
        ("dpo", ("algorithm.policy=shared", "learner.micro_batch_tokens=16")),
        ("malt", ("algorithm.policy=shared", "learner.epochs=2")),
        ("s_ppo", ("algorithm.policy=shared", "learner.micro_batch_tokens=16")),
        ("oprl", ("algorithm.policy=shared", "learner.micro_batch_tokens=16")),
        ("spa_rl", ("algorithm.policy=shared", "learner.micro_batch_tokens=16")),
        ("aepo", ("algorithm.policy=shared", "learner.epochs=2")),
        ("epo", ("algorithm.policy=shared", "learner.epochs=2")),
    ],
)
def test_they_are_however_the_batch_is_split_and_whoever_shares_an_adapter(
    name: str, words: tuple[str, ...], base: BaseModel
) -> None:
    formula = replace((FORMULAS | MORE)[name], is_shared="algorithm.policy=shared" in words)
    Compared(name, formula, base, words).run()
