"""Steps of a preset on fixed rollouts, compared with what `formulas` and `comparisons` say of them.

What the learner and the formulas have in common are the logits of a single row, and the last hidden states of one. So
packing, micro-batches, minibatches, weights of tokens, ratios to the start of the step and to who sampled, and
references are held by this, too: weights move between the minibatches, and the sampled log-probabilities are not the
policy's.
"""

import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, cast

import msgspec
import numpy as np
import pytest
import torch
from golden import formulas as f
from golden.formulas import PolicyGradient, Preferences, group
from golden.presets import LEARNER, case_of, episodes_of, fill, setup_of
from golden.rollouts import Facts
from torch import Tensor
from torch.optim import AdamW

from mas.config.load import load_config
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.forward import ScoredRow, completion_logits
from mas.serving.model import BaseModel
from mas.training.adapters import TrainableAdapters
from mas.training.rollout import Rollout

Formula = PolicyGradient | Preferences
Loss = Callable[[AdapterWeights, Sequence[Tensor]], Tensor]
"""Of an update, by the weights of an adapter and of its head, if it has one."""
Slope = Callable[[AdapterWeights, Sequence[Tensor]], list[Tensor]]
"""The gradient of an update, likewise."""


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
class Beside:
    """What a preset teaches beside its policy: a critic, a progress estimator or an implicit reward model.

    `heads`: adapter -> of a hidden state, as it is now; None: it scores as a policy does.
    """

    optimisers: dict[str, Noting]
    adapters: Mapping[str, AdapterWeights]
    heads: Mapping[str, tuple[Tensor, Tensor]] | None

    @classmethod
    def of(cls, owner: Any, seed: int) -> "Beside":
        parameters = getattr(owner, "parameters", {name: one.parameters() for name, one in owner.adapters.items()})
        for number, name in enumerate(sorted(parameters)):
            fill(parameters[name], seed + number, 0.3)
            owner.optimisers[name] = Noting(parameters[name], seed + number)
        return cls(owner.optimisers, owner.adapters, getattr(owner, "heads", None))


@dataclass
class Step:
    """One step of a preset, of which only what it was given and what it did is looked at.

    `usual`: adapter and team turn -> entropies of all tokens of earlier steps.
    """

    base: BaseModel
    formula: Formula
    turns: list[Facts]
    episodes: list[Facts]
    done: int
    roles: set[str]
    minibatches: int
    epochs: int
    before: dict[str, AdapterWeights] = field(default_factory=dict)
    usual: dict[tuple[str, int], float] = field(default_factory=dict)
    _known: dict[tuple[str, bool], Tensor] = field(default_factory=dict)

    def adapter(self, turn: Facts) -> str | None:
        """None: its role does not learn in this step."""
        if turn["role"] not in (self.formula.trained(self.done) if self.formula.trained else self.roles):
            return None
        if self.formula.is_shared:
            return next(iter(self.before))
        if isinstance(self.formula, Preferences) and self.done < self.formula.fork[0]:
            return self.formula.fork[1]
        every, to = self.formula.swapped if isinstance(self.formula, PolicyGradient) else (1, {})
        return str(to.get(turn["role"], turn["role"]) if self.done // every % 2 else turn["role"])

    def own(self, name: str) -> list[Facts]:
        """All turns of an adapter."""
        return [turn for turn in self.turns if self.adapter(turn) == name]

    def read(self, weights: AdapterWeights | None, turn: Facts) -> tuple[Tensor, Tensor]:
        """Log-probabilities and entropies of the completion's tokens; entropies over the choices, if there are any."""
        row = ScoredRow(tuple(turn["prompt_ids"]), tuple(turn["completion_ids"]), weights)
        logits_LV = completion_logits(self.base.model, self.base.bank, [row])[0] / turn["temperature"]
        possible_LC = (logits_LV[:, list(turn["choices"])] if turn["choices"] else logits_LV).log_softmax(-1)
        picked_L = logits_LV.log_softmax(-1)[range(f.length(turn)), list(turn["completion_ids"])]
        return picked_L, -(possible_LC.exp() * possible_LC).sum(-1)

    def fixed(self, turn: Facts, *, is_base: bool = False) -> Tensor:
        """Log-probabilities of the policy as the step began, or of the base."""
        place = (turn["id"], is_base)
        if place not in self._known:
            with torch.no_grad():
                weights = None if is_base else self.before[cast(str, self.adapter(turn))]
                self._known[place] = self.read(weights, turn)[0]
        return self._known[place]

    def hidden(self, weights: AdapterWeights, ids: Sequence[int]) -> Tensor:
        """The last hidden states of a text, [T, D]."""
        with self.base.bank.routing([weights], len(ids)):
            found = self.base.model.base_model(input_ids=torch.tensor([list(ids)]), use_cache=False)
        return cast(Tensor, found.last_hidden_state[0])

    def values(self, weights: AdapterWeights, head: Sequence[Tensor], turn: Facts) -> Tensor:
        """V before each token of a turn."""
        ids = [*turn["prompt_ids"], *turn["completion_ids"]][:-1]
        return self.hidden(weights, ids)[len(turn["prompt_ids"]) - 1 :] @ head[0] + head[1]

    def share(self, weights: AdapterWeights, head: Sequence[Tensor], turn: Facts) -> Tensor:
        """What a turn is estimated to have contributed, read behind its last token."""
        return self.hidden(weights, [*turn["prompt_ids"], *turn["completion_ids"]])[-1] @ head[0] + head[1]

    def note(self) -> None:
        """What the formulas read of the policy as the step began."""
        formula = self.formula
        if isinstance(formula, Preferences) or not (formula.paid_kl or formula.band or formula.reads_entropies):
            return
        with torch.no_grad():
            for turn in self.turns:
                if (name := self.adapter(turn)) is not None:
                    own, entropy = self.read(self.before[name], turn)
                    turn["entropies"], turn["policy"] = entropy.double().tolist(), name
                    if formula.paid_kl:
                        turn["kl"] = (formula.paid_kl * (own - self.read(None, turn)[0]).double()).tolist()

    def minibatch(self, rows: Sequence[Facts], count: int, *, is_whole: bool) -> list[list[Facts]]:
        """Every n-th group; rows, where there are fewer groups than n and groups need not stay whole."""
        groups = list(dict.fromkeys(map(group, rows)))
        found: list[list[Facts]] = [[] for _ in range(count)]
        for place, row in enumerate(rows):
            unit = groups.index(group(row)) if is_whole or len(groups) >= count else place
            found[unit % count].append(row)
        return [part for part in found if part]

    def losses(self, name: str, advantages: f.Advantages) -> list[Loss]:
        """Of every update of an adapter."""
        own = self.own(name)
        if isinstance(self.formula, Preferences):
            own += [turn for turn in self.formula.more(self.turns) if self.adapter(turn) == name]
            imitated, pairs = self.formula.found(own)
            used = {*imitated, *(one for pair in pairs for one in pair)}
            rows = [turn for turn in own if turn["id"] in used]
            parts = self.minibatch(rows, self.minibatches, is_whole=True) * self.epochs
            return [partial(self.preference_loss, part, own) for part in parts]
        parts = self.minibatch(own, self.minibatches, is_whole=False) * self.epochs
        return [partial(self.policy_loss, part, advantages) for part in parts]

    def slopes(self, name: str, advantages: f.Advantages) -> list[Slope]:
        """Of every update of an adapter."""
        if isinstance(self.formula, Preferences) or self.formula.held is None:
            return [partial(slope, loss) for loss in self.losses(name, advantages)]
        parts = self.minibatch(self.own(name), self.minibatches, is_whole=False) * self.epochs
        return [partial(self._corrected, part, advantages) for part in parts]

    def preference_loss(self, part: Sequence[Facts], own: Sequence[Facts], weights: AdapterWeights, _: Any) -> Tensor:
        groups = set(map(group, part))
        turns = [turn for turn in own if group(turn) in groups]
        now = {turn["id"]: self.read(weights, turn)[0] for turn in turns}
        base = {turn["id"]: self.fixed(turn, is_base=True) for turn in turns}
        return cast(Preferences, self.formula).loss(now, base, turns)

    def policy_loss(self, part: Sequence[Facts], advantages: f.Advantages, weights: AdapterWeights, _: Any) -> Tensor:
        formula = cast(PolicyGradient, self.formula)
        loss = torch.zeros(())
        for turn, weight in zip(part, formula.weights(part), strict=True):
            tokens = self.tokens(turn, advantages, weights)
            loss = loss + weight * formula.loss(tokens).sum()
            if formula.kl:
                gap = tokens.now - self.fixed(turn, is_base=True)
                loss = loss + weight * formula.kl * gap.square().sum() / 2
            place = (cast(str, self.adapter(turn)), turn["turn"])
            if formula.band is not None and place in self.usual:
                above = (tokens.entropy - 2 * self.usual[place]).clamp(min=0)
                loss = loss + weight * 0.02 * formula.band(self.done) * above.sum()
        return loss

    def tokens(self, turn: Facts, advantages: f.Advantages, weights: AdapterWeights) -> f.Tokens:
        now, entropy = self.read(weights, turn)
        own = torch.as_tensor(advantages[turn["id"]], dtype=now.dtype).expand_as(now)
        sampled = torch.tensor(turn["logprobs"])
        return f.Tokens(now=now, start=self.fixed(turn), sampled=sampled, entropy=entropy, advantage=own)

    def _corrected(
        self, part: Sequence[Facts], advantages: f.Advantages, weights: AdapterWeights, _: Any
    ) -> list[Tensor]:
        """The gradient by 1 + the norm of that of what the bounds hold, as if they did not."""
        formula = cast(PolicyGradient, self.formula)
        gradients = slope(partial(self.policy_loss, part, advantages), weights, ())
        assert formula.held is not None
        taken = torch.zeros(())
        for turn, weight in zip(part, formula.weights(part), strict=True):
            taken = taken + weight * f.clipped(self.tokens(turn, advantages, weights), formula.held).sum()
        bias = torch.autograd.grad(taken, weights.parameters(), materialize_grads=True)
        return [one / (1 + torch.cat([c.flatten() for c in bias]).norm()) for one in gradients]

    def value_losses(self, name: str, targets: Mapping[str, Sequence[float]]) -> list[Loss]:
        """Of the critic's four passes in four minibatches each: (V - target)^2, the mean over all tokens with one."""
        parts = self.minibatch(self.own(name), 4, is_whole=False) * 4
        return [partial(self.value_loss, part, targets) for part in parts]

    def value_loss(
        self, part: Sequence[Facts], targets: Mapping[str, Sequence[float]], weights: AdapterWeights, head: Any
    ) -> Tensor:
        errors = []
        for turn in part:
            wanted = torch.tensor(targets[turn["id"]])
            errors.append(self.values(weights, head, turn)[: len(wanted)] - wanted)
        return torch.cat(errors).square().mean()

    def model_losses(self, name: str, kind: str, epochs: int) -> list[Loss]:
        """Of a reward model's passes."""
        if kind == "progress":
            return [partial(self._progress_loss, name)] * epochs
        groups = f.parts(f.trajectories(self.own(name)), lambda row: group(row[0]))
        has_pairs = any(len({self._won(row) for row in rows}) == 2 for rows in groups)
        return [partial(self._implicit_loss, name)] * (epochs * has_pairs)

    def _won(self, row: Sequence[Facts]) -> bool:
        return next(bool(one["success"]) for one in self.episodes if one["id"] == row[0]["episode"])

    def _progress_loss(self, name: str, weights: AdapterWeights, head: Any) -> Tensor:
        """(sum of shares - R)^2, over the number of turns. SPA-RL, arXiv 2505.20732."""
        rows = f.trajectories(self.own(name))
        shares = [torch.stack([self.share(weights, head, turn) for turn in row]) for row in rows]
        sums = [own.sum() - float(self._won(row)) for own, row in zip(shares, rows, strict=True)]
        return torch.stack(sums).square().sum() / len(self.own(name))

    def scores(self, kind: str, name: str, weights: AdapterWeights, head: Any, turn: Facts) -> Tensor:
        """What a reward model says of a turn; iStar, arXiv 2509.19199: 0.05 x sum of log phi - log pi."""
        if kind == "progress":
            return self.share(weights, head, turn)
        return 0.05 * (self.read(weights, turn)[0] - self.fixed(turn)).sum()

    def _implicit_loss(self, name: str, weights: AdapterWeights, head: Any) -> Tensor:
        """-log sigmoid(Q+ - Q-), the mean over a group's pairs, then over groups with pairs."""
        losses = []
        for rows in f.parts(f.trajectories(self.own(name)), lambda row: group(row[0])):
            q: dict[bool, list[Tensor]] = {True: [], False: []}
            for row in rows:
                own = [self.scores("implicit", name, weights, head, turn) for turn in row]
                q[self._won(row)].append(torch.stack(own).sum())
            gaps = [good - bad for good in q[True] for bad in q[False]]
            losses += [-torch.nn.functional.logsigmoid(torch.stack(gaps)).mean()] if gaps else []
        return torch.stack(losses).mean()


def slope(loss: Loss, weights: AdapterWeights, head: Sequence[Tensor]) -> list[Tensor]:
    own = [*weights.parameters(), *head]
    return list(torch.autograd.grad(loss(weights, head), own, materialize_grads=True))


class Compared:
    """A preset whose steps are taken one after the other, each compared with its formula."""

    def __init__(self, name: str, formula: Formula, base: BaseModel, words: tuple[str, ...] = ()) -> None:
        case = case_of(name)
        self.case = replace(case, words=(*case.words, *words))
        self.name, self.formula, self.base = name, formula, base
        self.config = load_config([f"algorithm={name}", *LEARNER, *self.case.words])
        setup = setup_of(self.case, self.config)
        self.trainable = TrainableAdapters(setup, base)
        self.rollout = Rollout(setup, cast(Any, None))
        self.adapters = self.trainable.learner.adapters
        self.optimisers = cast(dict[str, Noting], self.trainable.learner.optimisers)
        for number, (adapter, weights) in enumerate(sorted(self.adapters.items())):
            fill(weights.parameters(), 10 + number, 0.3)
            self.optimisers[adapter] = Noting(weights.parameters(), number)
        update: Any = self.trainable.update
        model = getattr(update, "model", None)
        owner = getattr(model, "estimator", None) or getattr(model, "phi", None)
        self.model = Beside.of(owner, 70) if owner is not None else None
        critic = getattr(getattr(update, "update", update), "critic", None)
        self.critic = Beside.of(critic, 50) if critic is not None else None
        self.usual: dict[tuple[str, int], list[float]] = {}

    def run(self) -> None:
        for number, done in enumerate(self.case.done, 1):
            self._compare(number, done)

    def step(self, number: int, done: int) -> tuple[Step, Sequence[float]]:
        """Take a step; returns it as it began, and the advantages that it had."""
        case, formula = self.case, self.formula
        trained = self.trainable.assignment.trained_adapters(done)
        replayed = episodes_of(self.config, self.rollout, case, number, done, trained)
        episodes = [one for own in case.sampler(case.cast, number) for one in own]
        if self.rollout.replay is not None:  # which failure gives way to which success is drawn: no formula
            episodes = cast(list[Facts], msgspec.to_builtins(replayed))
        turns = json.loads(json.dumps([turn for one in episodes for turn in one["turns"]]))
        roles = {turn["role"] for turn in turns} - set(case.frozen)
        learner = self.config.learner
        kept = list(formula.kept(turns)) if isinstance(formula, PolicyGradient) else turns
        step = Step(self.base, formula, kept, episodes, done, roles, learner.minibatches, learner.epochs)
        step.before = {adapter: weights.snapshot() for adapter, weights in self.adapters.items()}
        step.usual = {place: float(np.mean(own)) for place, own in self.usual.items()}
        step.note()
        if self.critic is not None:
            self._note_values(step)
        calls = self.trainable.improve(cast(Any, None), replayed, trained, step=done + 1, lr_scale=1.0)
        return step, asyncio.run(calls).advantages

    def _note_values(self, step: Step) -> None:
        assert self.critic is not None
        assert self.critic.heads is not None
        with torch.no_grad():
            for turn in step.turns:
                if (name := step.adapter(turn)) is not None:
                    head = self.critic.heads[name]
                    turn["values"] = step.values(self.critic.adapters[name], head, turn).tolist()

    def _compare(self, number: int, done: int) -> None:
        step, found = self.step(number, done)
        if self.model is not None:
            self._check_model(step)
        advantages, targets = self.expected(step)
        of_turn = [float(np.mean(advantages[turn["id"]])) for turn in step.turns]
        exact = 1e-5 if self.critic or self.model or "entropies" in step.turns[0] else 1e-9
        assert found == pytest.approx(of_turn, rel=1e-5, abs=exact), f"{self.name}, {done}"
        if isinstance(self.formula, PolicyGradient) and self.formula.by_token is not None:
            advantages = self.formula.by_token(step.turns, advantages)
        for name, weights in self.adapters.items():
            check_updates(name, self.optimisers[name], weights, step.slopes(name, advantages))
            if self.critic is not None:
                slopes = [partial(slope, loss) for loss in step.value_losses(name, targets)]
                check_updates(f"critic {name}", self.critic.optimisers[name], self.critic.adapters[name], slopes, 5)
        for turn in step.turns:
            if (adapter := step.adapter(turn)) is not None:
                self.usual.setdefault((adapter, turn["turn"]), []).extend(turn.get("entropies", ()))
        self.usual = {place: own for place, own in self.usual.items() if own}

    def _check_model(self, step: Step) -> None:
        """The reward model's updates, and what it then pays."""
        assert self.model is not None
        assert isinstance(self.formula, PolicyGradient)
        assert self.formula.model is not None
        kind, pays, epochs = self.formula.model
        paid: dict[str, Facts] = {}
        for name, weights in self.model.adapters.items():
            slopes = [partial(slope, loss) for loss in step.model_losses(name, kind, epochs)]
            check_updates(f"{kind} {name}", self.model.optimisers[name], weights, slopes, 2)
            head = () if self.model.heads is None else self.model.heads[name]
            for row in f.trajectories(step.own(name)):
                with torch.no_grad():
                    scores = [float(step.scores(kind, name, weights, head, turn)) for turn in row]
                paid |= {turn["id"]: turn for turn in pays(row, scores)}
        step.turns = [paid.get(turn["id"], turn) for turn in step.turns]

    def expected(self, step: Step) -> tuple[f.Advantages, dict[str, list[float]]]:
        """Advantages, and what a critic is taught, if there is one."""
        formula = step.formula
        if isinstance(formula, Preferences):
            imitated, pairs = formula.found([*step.turns, *formula.more(step.turns)])
            signs = dict.fromkeys((turn["id"] for turn in step.turns), 0.0) | {worse: -1.0 for _, worse in pairs}
            return signs | dict.fromkeys((*imitated, *(better for better, _ in pairs)), 1.0), {}
        if formula.advantages is not None:
            return formula.advantages(step.turns, step.episodes, step.done), {}
        found: f.Advantages = {}
        targets: dict[str, list[float]] = {}
        for own in f.parts(step.turns, step.adapter):
            values = {turn["id"]: turn["values"] for turn in own}
            of_own, wanted = f.expected_by_critic(own, values, formula.level, formula.gamma, formula.worth)
            found, targets = found | of_own, targets | wanted
        return found, targets


def check_updates(
    what: str, optimiser: Noting, adapter: AdapterWeights, slopes: Sequence[Slope], most: int | None = None
) -> None:
    """Every gradient, or the first ones, at the weights that it was computed at; how many there are in any case."""
    weights = adapter.snapshot()
    assert len(optimiser.updates) == len(slopes), what
    for (then, gradients), slope in list(zip(optimiser.updates, slopes, strict=True))[:most]:
        head = set_to(weights, then)
        own, right = (torch.cat([one.flatten() for one in ones]) for ones in (gradients, slope(weights, head)))
        assert (own - right).norm() <= 1e-4 * right.norm() + 1e-7, what
    optimiser.updates.clear()


def set_to(weights: AdapterWeights, then: Sequence[Tensor]) -> list[Tensor]:
    """Set an adapter to numbers of then; returns those of its head, if it has one."""
    own = weights.parameters()
    for parameter, value in zip(own, then, strict=False):
        parameter.requires_grad_(False)
        parameter.copy_(value)
        parameter.requires_grad_()
    return [one.clone().requires_grad_() for one in then[len(own) :]]
