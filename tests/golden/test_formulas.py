"""What presets make of fixed rollouts is what `formulas` says: every advantage, and every gradient of every update.

The two have in common the logits of a single row. So packing, micro-batches, minibatches, weights of tokens, ratios to
the start of the step and to who sampled, and references are held by this, too: weights move between the minibatches,
and the sampled log-probabilities are not the policy's.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import numpy as np
import pytest
import torch
from golden import formulas as f
from golden.formulas import PolicyGradient, Preferences, compared, group, reward, with_entropy
from golden.presets import LEARNER, base_of, case_of, episodes_of, fill, setup_of
from golden.rollouts import Facts
from torch import Tensor
from torch.optim import AdamW

from mas.config.load import load_config
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.forward import ScoredRow, completion_logits
from mas.serving.model import BaseModel
from mas.training.adapters import TrainableAdapters
from mas.training.rollout import Rollout
from mas.training.updates.ppo import Ppo

Formula = PolicyGradient | Preferences
PILOTRL = f.by_stages(
    ("executor", 5, {"right": 0.0}), ("planner", 10, {"follow": 0.0}), ("planner executor", 100, {"follow": 0.0})
)
ACTIONS = reward(alpha=0.0)
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
}


@pytest.fixture(scope="module")
def base() -> BaseModel:
    return base_of()


@pytest.mark.parametrize("name", FORMULAS)
def test_advantages_and_gradients_are_those_of_the_formula(name: str, base: BaseModel) -> None:
    compare(name, FORMULAS[name], base)


@pytest.mark.nightly
@pytest.mark.parametrize("name", MORE)
def test_those_of_further_presets_are(name: str, base: BaseModel) -> None:
    compare(name, MORE[name], base)


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
    ],
)
def test_they_are_however_the_batch_is_split_and_whoever_shares_an_adapter(
    name: str, words: tuple[str, ...], base: BaseModel
) -> None:
    compare(name, replace((FORMULAS | MORE)[name], is_shared="algorithm.policy=shared" in words), base, words)


class Noting(AdamW):
    """Keeps weights and gradients of each update, and moves the weights by something else."""

    def __init__(self, parameters: Sequence[Tensor], seed: int) -> None:
        super().__init__(parameters)
        self.own, self.seed, self.updates = list(parameters), seed, list[tuple[list[Tensor], list[Tensor]]]()

    def step(self, closure: Any = None) -> None:
        gradients = [cast(Tensor, one.grad).clone() for one in self.own]
        self.updates.append(([one.detach().clone() for one in self.own], gradients))
        moved = [torch.empty_like(one) for one in self.own]
        fill(moved, 1000 * self.seed + len(self.updates), 0.02)
        with torch.no_grad():
            for one, by in zip(self.own, moved, strict=True):
                one.add_(by)


@dataclass
class Step:
    """One step of a preset, of which only what it was given and what it did is looked at."""

    base: BaseModel
    formula: Formula
    turns: list[Facts]
    episodes: list[Facts]
    done: int
    roles: set[str]
    minibatches: int
    epochs: int
    before: dict[str, AdapterWeights] = field(default_factory=dict)

    def adapter(self, turn: Facts) -> str | None:
        """None: its role does not learn in this step."""
        if turn["role"] not in (self.formula.trained(self.done) if self.formula.trained else self.roles):
            return None
        return next(iter(self.before)) if self.formula.is_shared else turn["role"]

    def read(self, weights: AdapterWeights | None, turn: Facts) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies of the completion's tokens; entropies over the choices, if there are any."""
        row = ScoredRow(tuple(turn["prompt_ids"]), tuple(turn["completion_ids"]), weights)
        logits_LV = completion_logits(self.base.model, self.base.bank, [row])[0] / turn["temperature"]
        possible_LC = (logits_LV[:, list(turn["choices"])] if turn["choices"] else logits_LV).log_softmax(-1)
        picked_L = logits_LV.log_softmax(-1)[range(f.length(turn)), list(turn["completion_ids"])]
        return picked_L, -(possible_LC.exp() * possible_LC).sum(-1)

    def minibatch(self, rows: list[Facts], *, is_whole: bool) -> list[list[Facts]]:
        """Every n-th group; rows, where there are fewer groups than n and groups need not stay whole."""
        groups = list(dict.fromkeys(map(group, rows)))
        found: list[list[Facts]] = [[] for _ in range(self.minibatches)]
        for place, row in enumerate(rows):
            unit = groups.index(group(row)) if is_whole or len(groups) >= self.minibatches else place
            found[unit % self.minibatches].append(row)
        return [part for part in found if part] * self.epochs

    def expected(self, name: str, advantages: f.Advantages, weights: AdapterWeights) -> list[Any]:
        """Of every update of an adapter, a function that gives its gradient at the weights of then."""
        own = [turn for turn in self.turns if self.adapter(turn) == name]
        if isinstance(self.formula, Preferences):
            imitated, pairs = self.formula.found(own)
            used = {*imitated, *(one for pair in pairs for one in pair)}
            parts = self.minibatch([turn for turn in own if turn["id"] in used], is_whole=True)
            return [partial(self.preferred, part, own, weights) for part in parts]
        return [partial(self.followed, part, advantages, weights) for part in self.minibatch(own, is_whole=False)]

    def preferred(self, part: list[Facts], own: list[Facts], weights: AdapterWeights) -> list[Tensor]:
        groups = set(map(group, part))
        turns = [turn for turn in own if group(turn) in groups]
        now = {turn["id"]: self.read(weights, turn)[0] for turn in turns}
        base = {turn["id"]: self.read(None, turn)[0].detach() for turn in turns}
        loss = cast(Preferences, self.formula).loss(now, base, turns)
        return list(torch.autograd.grad(loss, weights.parameters()))

    def followed(self, part: list[Facts], advantages: f.Advantages, weights: AdapterWeights) -> list[Tensor]:
        formula = cast(PolicyGradient, self.formula)
        loss = taken = torch.zeros(())
        for turn, weight in zip(part, formula.weights(part), strict=True):
            now, entropy = self.read(weights, turn)
            own = torch.as_tensor(advantages[turn["id"]], dtype=now.dtype).expand_as(now)
            start = self.read(self.before[cast(str, self.adapter(turn))], turn)[0].detach()
            sampled = torch.tensor(turn["logprobs"])
            tokens = f.Tokens(now=now, start=start, sampled=sampled, entropy=entropy, advantage=own)
            loss = loss + weight * formula.loss(tokens).sum()
            if formula.kl:
                base = self.read(None, turn)[0].detach()
                loss = loss + weight * formula.kl * (now - base).square().sum() / 2
            if formula.held is not None:
                taken = taken + weight * f.clipped(tokens, formula.held).sum()
        gradients = list(torch.autograd.grad(loss, weights.parameters(), retain_graph=True))
        if not taken.requires_grad:
            return gradients
        bias = torch.autograd.grad(taken, weights.parameters(), materialize_grads=True)
        return [one / (1 + torch.cat([c.flatten() for c in bias]).norm()) for one in gradients]

    def values(self, critic: Any, turn: Facts) -> list[float]:
        """V before each token of a turn."""
        name, start = cast(str, self.adapter(turn)), len(turn["prompt_ids"]) - 1
        ids = torch.tensor([[*turn["prompt_ids"], *turn["completion_ids"]][:-1]])
        with torch.no_grad(), self.base.bank.routing([critic.adapters[name]], ids.shape[1]):
            hidden = self.base.model.base_model(input_ids=ids, use_cache=False).last_hidden_state[0, start:]
            head, bias = critic.heads[name]
            return (hidden @ head + bias).tolist()


def compare(name: str, formula: Formula, base: BaseModel, words: tuple[str, ...] = ()) -> None:
    """Two steps or more of a preset, each compared with its formula."""
    case = case_of(name)
    case = replace(case, words=(*case.words, *words))
    config = load_config([f"algorithm={name}", *LEARNER, *case.words])
    setup = setup_of(case, config)
    trainable = TrainableAdapters(setup, base)
    adapters, optimisers = trainable.learner.adapters, trainable.learner.optimisers
    for number, (adapter, weights) in enumerate(sorted(adapters.items())):
        fill(weights.parameters(), 10 + number, 0.3)
        optimisers[adapter] = Noting(weights.parameters(), number)
    critic = trainable.update.critic if isinstance(trainable.update, Ppo) else None
    for number, (adapter, parameters) in enumerate(sorted(critic.parameters.items()) if critic else ()):
        fill(parameters, 50 + number, 0.3)
        cast(Any, critic).optimisers[adapter] = Noting(parameters, 50 + number)
    rollout, counts = Rollout(setup, cast(Any, None)), (config.learner.minibatches, config.learner.epochs)
    for number, done in enumerate(case.done, 1):
        episodes = [one for own in case.sampler(case.cast, number) for one in own]
        turns = json.loads(json.dumps([turn for one in episodes for turn in one["turns"]]))
        roles = {turn["role"] for turn in turns} - set(case.frozen)
        step = Step(base, formula, turns, episodes, done, roles, *counts)
        step.before = {adapter: weights.snapshot() for adapter, weights in adapters.items()}
        advantages = advantages_of(step, critic)
        trained = trainable.assignment.trained_adapters(done)
        replayed = episodes_of(config, rollout, case, number, done, trained)
        calls = trainable.improve(cast(Any, None), replayed, trained, step=done + 1, lr_scale=1.0)
        improved = asyncio.run(calls)
        of_turn = [float(np.mean(advantages[turn["id"]])) for turn in turns]
        assert improved.advantages == pytest.approx(of_turn, rel=1e-5, abs=1e-5 if critic else 1e-9), f"{name}, {done}"
        check_updates(step, advantages, adapters, cast(Mapping[str, Noting], optimisers))


def advantages_of(step: Step, critic: Any) -> f.Advantages:
    if isinstance(step.formula, Preferences):
        imitated, pairs = step.formula.found(step.turns)
        signs = dict.fromkeys((turn["id"] for turn in step.turns), 0.0) | {worse: -1.0 for _, worse in pairs}
        return signs | dict.fromkeys((*imitated, *(better for better, _ in pairs)), 1.0)
    if step.formula.advantages is not None:
        return step.formula.advantages(step.turns, step.episodes, step.done)
    found: f.Advantages = {}
    for own in f.parts(step.turns, step.adapter):
        values = {turn["id"]: step.values(critic, turn) for turn in own}
        found |= f.expected_by_critic(own, values, step.formula.level, step.formula.gamma)
    return found


def check_updates(
    step: Step, advantages: f.Advantages, adapters: Mapping[str, AdapterWeights], optimisers: Mapping[str, Noting]
) -> None:
    """Every gradient, at the weights that it was computed at."""
    for name in adapters:
        weights = adapters[name].snapshot()
        for parameter in weights.parameters():
            parameter.requires_grad_()
        updates, wanted = optimisers[name].updates, step.expected(name, advantages, weights)
        assert len(updates) == len(wanted), name
        for (then, gradients), gradient in zip(updates, wanted, strict=True):
            with torch.no_grad():
                for one, value in zip(weights.parameters(), then, strict=True):
                    one.copy_(value)
            own, right = (torch.cat([one.flatten() for one in ones]) for ones in (gradients, gradient()))
            assert (own - right).norm() <= 1e-4 * right.norm() + 1e-7, name
        updates.clear()
