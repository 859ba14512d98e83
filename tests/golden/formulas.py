"""What the papers say of the rollouts of `rollouts`: advantages in numpy, losses of one turn in plain torch.

Nothing of `mas` is used. A turn is the plain dict of `rollouts`, its reward the sum of named terms. Constants are those
that the page of each preset in docs/algorithms has, and are not read from its options.
"""

import json
import math
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Any, TypeVar

import numpy as np
import torch
from golden.rollouts import Facts
from torch import Tensor

Advantages = dict[str, Any]
"""Of each turn by its id: a number, or one for each token."""
Reward = Callable[[Facts], float]
Compare = Callable[[Sequence[float]], Sequence[float]]
T = TypeVar("T")
ENTROPY = 0.03
"""The bonus that is on where a preset does not say otherwise."""


def parts(items: Iterable[T], key: Callable[[T], Hashable]) -> list[list[T]]:
    """Items of equal keys, in order of appearance."""
    found: dict[Hashable, list[T]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return list(found.values())


def group(turn: Facts) -> str:
    return json.dumps(turn["group"], sort_keys=True)


def trajectory(turn: Facts) -> tuple[str, str]:
    return group(turn), turn["trajectory"]


def trajectories(turns: Iterable[Facts]) -> list[list[Facts]]:
    """Each with its turns in the order in which its agent spoke."""
    return [sorted(own, key=lambda turn: (turn["turn"], turn["visit"])) for own in parts(turns, trajectory)]


def length(turn: Facts) -> int:
    return len(turn["completion_ids"])


def paid(terms: Mapping[str, float], alpha: float = 1.0, **weights: float) -> float:
    """alpha x team + own, AT-GRPO, arXiv 2510.11062."""
    shares = {"team": alpha, "own": 1.0}
    named = [(*name.split(".", 1), value) for name, value in terms.items() if "." in name]
    return sum(shares[kind] * weights.get(name, 1.0) * value for kind, name, value in named)


def reward(alpha: float = 1.0, **weights: float) -> Reward:
    return lambda turn: paid(turn["rewards"], alpha, **weights)


def outcome(turn: Facts) -> float:
    """1 for a success, and what output that does not parse costs."""
    return turn["rewards"]["outcome"] + turn["rewards"].get("own.failure", 0.0)


def z(values: Sequence[float]) -> np.ndarray:
    """GRPO, arXiv 2402.03300, section 4.1."""
    x = np.asarray(values, float)
    return (x - x.mean()) / (x.std(ddof=1) + 1e-6) if len(x) > 1 and np.ptp(x) else np.zeros(len(x))


def less_mean(values: Sequence[float]) -> np.ndarray:
    """Dr.GRPO, arXiv 2503.20783."""
    return np.asarray(values, float) - np.mean(values)


def by_rows(
    turns: Iterable[Facts],
    worth: Callable[[list[Facts]], float],
    compare: Compare = z,
    key: Callable[[Facts], Hashable] = group,
) -> Advantages:
    """Every trajectory once among those of equal keys, and its advantage for all its turns."""
    found: Advantages = {}
    for own in parts(trajectories(turns), lambda row: key(row[0])):
        for row, advantage in zip(own, compare([worth(row) for row in own]), strict=True):
            found |= {turn["id"]: float(advantage) for turn in row}
    return found


def compared(turns: Iterable[Facts], worth: Reward, compare: Compare = z) -> Advantages:
    """Every trajectory once in its group, and its advantage for all its turns."""
    return by_rows(turns, lambda row: worth(row[0]), compare)


def bnpo(turns: Sequence[Facts], low: float, high: float) -> Advantages:
    """(R - p) / f(p; 1 + a/3, 1 + b/3), 1/f at most 1e6. arXiv 2506.02864, section 4; a, b by the method of moments."""
    found: Advantages = {}
    for own in parts(turns, lambda turn: turn["agent"]):
        groups = parts(trajectories(own), lambda row: group(row[0]))
        rewards = [[(outcome(row[0]) - low) / (high - low) for row in one] for one in groups]
        rates = np.array([np.mean(one) for one in rewards])
        total = rates.mean() * (1 - rates.mean()) / rates.var(ddof=1) - 1
        alpha, beta = (max(1 + total * share / 3, 1.0) for share in (rates.mean(), 1 - rates.mean()))
        density = torch.distributions.Beta(torch.tensor(alpha).double(), torch.tensor(beta).double())
        for rows, own_rewards, rate in zip(groups, rewards, rates, strict=True):
            for row, one in zip(rows, own_rewards, strict=True):
                weight = min(1 / density.log_prob(torch.tensor(rate)).exp().item(), 1e6) if one != rate else 0.0
                found |= {turn["id"]: (one - rate) * weight for turn in row}
    return found


def igpo(turns: Sequence[Facts], episodes: Sequence[Facts], gamma: float = 1.0) -> Advantages:
    """Gains and outcomes, z of each in its group; each turn has the discounted sum from itself on.

    arXiv 2510.14967v2, section 3.2; the gain is that of the probability, as in v1.
    """
    found: Advantages = {}
    known = {one["id"]: np.exp(one["facts"]["AnswerKnowledge"]["logprobs"]) for one in episodes if one["turns"]}
    for own in parts(trajectories(turns), lambda row: group(row[0])):
        gains = [[after - before for before, after in pairwise(known[row[0]["episode"]])] for row in own]
        compared_gains = iter(z([gain for one in gains for gain in one]))
        ends = z([outcome(row[0]) for row in own])
        for row, gain, end in zip(own, gains, ends, strict=True):
            steps = [*(next(compared_gains) for _ in gain), end]
            for turn in row:
                rest = steps[turn["facts"]["Wave"]["number"] :]
                found[turn["id"]] = sum(gamma**place * one for place, one in enumerate(rest))
    return found


def whitened(found: Mapping[str, float], turns: Sequence[Facts], counts: Callable[[Facts], int]) -> Advantages:
    """(x - mean) / sqrt(var + 1e-8), each turn counted so often. REINFORCE++, arXiv 2501.03262."""
    values = np.repeat([found[turn["id"]] for turn in turns], [counts(turn) for turn in turns])
    if not np.ptp(values):
        return {turn["id"]: 0.0 for turn in turns}
    mean, spread = values.mean(), math.sqrt(values.var(ddof=1) + 1e-8)
    return {turn["id"]: (found[turn["id"]] - mean) / spread for turn in turns}


def gdpo(turns: Sequence[Facts]) -> Advantages:
    """z of every term by itself, their sum whitened over an adapter's trajectories. arXiv 2601.05242."""
    names = {name for turn in turns for name in turn["rewards"] if "." in name}
    terms = [compared(turns, lambda turn, name=name: turn["rewards"].get(name, 0.0)) for name in names]
    total = {turn["id"]: math.fsum(one[turn["id"]] for one in terms) for turn in turns}
    found: Advantages = {}
    for own in parts(turns, lambda turn: turn["role"]):
        first = {row[0]["id"] for row in trajectories(own)}
        found |= whitened(total, own, lambda turn, first=first: int(turn["id"] in first))
    return found


def self_play(turns: Sequence[Facts]) -> Advantages:
    """Search Self-Play, arXiv 2510.18821: the proposer's raw 1 - p, 0 where it was refused; solvers z per question."""
    found: Advantages = {}
    for own in parts(turns, lambda turn: turn["episode"]):
        solvers = [turn for turn in own if turn["role"] != "proposer"]
        solved = [turn["rewards"]["team.right"] for turn in solvers]
        found |= {turn["id"]: float(one) for turn, one in zip(solvers, z(solved) if solved else (), strict=True)}
        for turn in own:
            if turn["role"] == "proposer":
                found[turn["id"]] = paid(turn["rewards"], accepted=0.0) + (1 - np.mean(solved) if solved else 0.0)
    return found


def inherited(turns: Sequence[Facts]) -> Advantages:
    """MATPO, arXiv 2510.04678: everybody has the advantage of the planner's trajectory in the episode."""
    planners = [turn for turn in turns if turn["role"] == "planner"]
    own = compared(planners, reward(right=0.9, format=0.1))
    of_episode = {turn["episode"]: own[turn["id"]] for turn in planners}
    return {turn["id"]: of_episode.get(turn["episode"], 0.0) for turn in turns}


def with_actions(turns: Sequence[Facts], weight: float) -> Advantages:
    """Beside the trajectory's advantage what a turn was paid by itself. HRPO, arXiv 2506.08507, our reading."""
    found = compared(turns, reward())
    return {turn["id"]: found[turn["id"]] + weight * paid(turn["paid"], alpha=0.0) for turn in turns}


def gae(rewards: Sequence[float], values: Sequence[float], discounts: Sequence[float], lam: float) -> list[float]:
    """arXiv 1506.02438, equation 16, as the sum that it is, with a discount of its own behind each step."""
    after = [*values[1:], 0.0]
    deltas = [r + g * v - own for r, g, v, own in zip(rewards, discounts, after, values, strict=True)]
    return [
        math.fsum(
            delta * math.prod(lam * g for g in discounts[start : start + k]) for k, delta in enumerate(deltas[start:])
        )
        for start in range(len(deltas))
    ]


def expected_by_critic(
    turns: Sequence[Facts],
    values: Mapping[str, Sequence[float]],
    level: str,
    gamma: float,
    worth: Callable[[Mapping[str, float]], float] = paid,
    lam: float = 0.95,
) -> tuple[Advantages, dict[str, list[float]]]:
    """Of all turns of an adapter, whitened over their tokens, and what V should have been: A + V, before that.

    A turn is paid on its last token, the last one also what was paid while its agent did not speak; each token pays its
    `kl`, if turns have some. `values`: V before each token, by turn. `level`: `token` (PPO), `bad` (POAD, arXiv
    2405.15821: gamma counts turns), `turn` (Turn-PPO, arXiv 2512.17008). `worth`: of named terms.
    """
    found: Advantages = {}
    targets: dict[str, list[float]] = {}
    for row in trajectories(turns):
        own = [worth(turn["paid"]) for turn in row]
        own[-1] += worth(row[0]["rewards"]) - math.fsum(own)
        counts = [1] * len(row) if level == "turn" else [length(turn) for turn in row]
        costs = [[0.0] if level == "turn" else turn.get("kl", [0.0] * length(turn)) for turn in row]
        rewards = [
            (value if place == count - 1 else 0.0) - cost[place]
            for value, count, cost in zip(own, counts, costs, strict=True)
            for place in range(count)
        ]
        inside = 1.0 if level == "bad" else gamma
        discounts = [one for count in counts for one in (*[inside] * (count - 1), gamma)]
        flat = [v for turn, count in zip(row, counts, strict=True) for v in values[turn["id"]][:count]]
        advantages = iter(gae(rewards, flat, discounts, lam))
        for turn, count in zip(row, counts, strict=True):
            of_turn = [next(advantages) for _ in range(count)]
            targets[turn["id"]] = [a + v for a, v in zip(of_turn, values[turn["id"]], strict=False)]
            found[turn["id"]] = of_turn * length(turn) if level == "turn" else of_turn
    every = [one for turn in turns for one in found[turn["id"]]]
    mean, spread = np.mean(every), np.std(every, ddof=1) + 1e-6
    return {name: [(one - mean) / spread for one in own] for name, own in found.items()}, targets


@dataclass(frozen=True, kw_only=True)
class Tokens:
    """Of one turn: log pi now (with gradient), as the step began, and of who sampled; entropy; A."""

    now: Tensor
    start: Tensor
    sampled: Tensor
    entropy: Tensor
    advantage: Tensor


Loss = Callable[[Tokens], Tensor]


def of_token(one: Tokens) -> Tensor:
    return (one.now - one.start).exp()


def of_turn(one: Tokens) -> Tensor:
    """GSPO-token, arXiv 2507.18071, equation 14: the geometric mean, with each token's own gradient."""
    return (one.now - one.start).detach().mean().exp() * (one.now - one.now.detach()).exp()


def of_sampler(one: Tokens) -> Tensor:
    return (one.now - one.sampled).exp()


def capped(one: Tokens) -> Tensor:
    """min(start / sampled, 2), by which the loss of a token is weighed."""
    return (one.start - one.sampled).exp().clamp(max=2)


def ppo(
    one: Tokens,
    ratio: Callable[[Tokens], Tensor] = of_token,
    high: float = 0.2,
    low: float = 0.2,
    dual: float = 3,
    weight: Callable[[Tokens], Tensor] | None = capped,
) -> Tensor:
    """arXiv 1707.06347, equation 7; dual clip (1912.09729, equation 5)."""
    rho, a = ratio(one), one.advantage
    gain = torch.minimum(rho * a, rho.clamp(1 - low, 1 + high) * a)
    gain = torch.where(a < 0, torch.maximum(gain, dual * a), gain)
    return -gain if weight is None else -weight(one) * gain


def aepo(one: Tokens) -> Tensor:
    """PPO, but for A > 0 above the bound the value 1.2 A has the gradient of 1.2 A log pi. arXiv 2510.14545."""
    rho, a = of_token(one), one.advantage
    beyond = (a > 0) & (rho.detach() > 1.2)
    kept = 1.2 * a * (1 + one.now - one.now.detach())
    return torch.where(beyond, -capped(one) * kept, ppo(one))


def cispo(one: Tokens) -> Tensor:
    """-sg(min(rho, 5)) A log pi. arXiv 2506.13585; the cap of 2510.13786."""
    return -capped(one) * of_token(one).detach().clamp(max=5) * one.advantage * one.now


def sapo(one: Tokens) -> Tensor:
    """arXiv 2511.20347: the gate 4 / tau sigmoid(tau (rho - 1)), tau 1 where A > 0, else 1.05."""
    tau = torch.where(one.advantage > 0, 1.0, 1.05)
    return -capped(one) * one.advantage * 4 / tau * torch.sigmoid(tau * (of_token(one) - 1))


def gmpo(one: Tokens) -> Tensor:
    """arXiv 2507.20673, equation 4: the geometric mean of bounded ratios; of a turn the sum over n is n times it."""
    d = one.now - one.start
    mean = torch.where(one.advantage > 0, d.clamp(max=0.4), d.clamp(min=-0.4)).mean().exp()
    return -capped(one) * one.advantage * mean


def reinforce(one: Tokens) -> Tensor:
    return -capped(one) * one.advantage * one.now


def clipped(one: Tokens, ratio: Callable[[Tokens], Tensor]) -> Tensor:
    """The part of the loss that the bounds hold, as if they did not. ST-PPO, arXiv 2511.20718, lemma 4.2."""
    rho, a = ratio(one), one.advantage
    held = ((a > 0) & (rho > 1.2)) | ((a < 0) & (rho < 0.8))
    return -(one.start - one.sampled).exp().clamp(max=2) * held * rho * a


def with_entropy(policy: Loss = ppo, weight: float = ENTROPY) -> Loss:
    return lambda one: policy(one) - weight * one.entropy


def topr(one: Tokens) -> Tensor:
    """arXiv 2503.14286, equation 6: weight 1 where A >= 0, else the ratio of the whole answer, at most 1."""
    answer = (one.now.detach() - one.sampled).sum().exp().clamp(max=1)
    return -torch.where(one.advantage < 0, answer, torch.ones(())) * one.advantage * one.now


def turn_means(turns: Sequence[Facts]) -> list[float]:
    """Of every token: turns weigh equally, then tokens."""
    return [1 / (len(turns) * length(turn)) for turn in turns]


def turn_sums(turns: Sequence[Facts]) -> list[float]:
    return [1 / len(turns) for _ in turns]


def token_means(turns: Sequence[Facts]) -> list[float]:
    """DAPO, arXiv 2503.14476: every token of the batch weighs the same."""
    return [1 / sum(map(length, turns)) for _ in turns]


def sums_by_8(turns: Sequence[Facts]) -> list[float]:
    """Dr.GRPO, arXiv 2503.20783: the sum over a turn's tokens by a constant."""
    return [1 / (8 * len(turns)) for _ in turns]


def trajectory_means(turns: Sequence[Facts]) -> list[float]:
    """Flow-GRPO, arXiv 2510.05592, equation 5: trajectories weigh equally, then turns, then tokens."""
    rows = trajectories(turns)
    own = {turn["id"]: len(row) for row in rows for turn in row}
    return [1 / (len(rows) * own[turn["id"]] * length(turn)) for turn in turns]


def episode_means(turns: Sequence[Facts]) -> list[float]:
    """MATPO: rows / main rollouts x the mean over rows."""
    return [1 / (len({turn["episode"] for turn in turns}) * length(turn)) for turn in turns]


def by_stages(*stages: tuple[str, int, dict[str, float]]) -> Callable[[int], tuple[set[str], dict[str, float]]]:
    """From steps done to who trains, and to weights: `stages` are roles, steps, weights."""

    def now(done: int) -> tuple[set[str], dict[str, float]]:
        ends = np.cumsum([steps for _, steps, _ in stages])
        roles, _, weights = stages[int(np.searchsorted(ends, done, side="right"))]
        return set(roles.split()), weights

    return now


@dataclass(frozen=True, kw_only=True)
class PolicyGradient:
    """A preset. `advantages`: of turns and episodes after so many steps; None: those of the critic.

    `kl`: weight of k2 = (log pi - log base)^2 / 2 (Schulman 2020); `paid_kl`: what a nat of log pi - log base costs in
    the reward. `level`, `gamma`, `worth` (of named terms): of the critic's advantages. `held`: the ratio whose clipping
    bias the update is divided by. `trained`: who learns after so many steps; None: everybody. `is_shared`: with one
    adapter. `kept`: the turns that are learned from, as they are paid. `by_token`: from the advantages of turns to
    those of their tokens. `band`: weight of EPO's band by steps done. `reads_entropies`: of the policy as the step
    began. `model`: a `progress` estimator or an `implicit` reward model, a trajectory's turns as its scores pay them,
    and its passes over a batch. `swapped`: every so many steps roles change to these adapters, and back.
    """

    advantages: Callable[[Sequence[Facts], Sequence[Facts], int], Advantages] | None
    loss: Loss = field(default_factory=with_entropy)
    kl: float = 0.0
    paid_kl: float = 0.0
    weights: Callable[[Sequence[Facts]], list[float]] = turn_means
    trained: Callable[[int], set[str]] | None = None
    is_shared: bool = False
    level: str = "token"
    gamma: float = 1.0
    worth: Callable[[Mapping[str, float]], float] = paid
    held: Callable[[Tokens], Tensor] | None = None
    kept: Callable[[Sequence[Facts]], Sequence[Facts]] = list
    by_token: Callable[[Sequence[Facts], Advantages], Advantages] | None = None
    band: Callable[[int], float] | None = None
    reads_entropies: bool = False
    swapped: tuple[int, Mapping[str, str]] = (1, MappingProxyType({}))
    model: tuple[str, Callable[[Sequence[Facts], Sequence[float]], list[Facts]], int] | None = None


@dataclass(frozen=True, kw_only=True)
class Preferences:
    """A preset of pairs and imitation: `worth` of a turn, better above `threshold` (None: above its siblings' mean).

    loss = sft x mean of -log pi over all tokens of better turns + dpo x mean over pairs of -log sigmoid(margin), DPO,
    arXiv 2305.18290, equation 7, beta 0.1. Roles `sft_only` have no pairs. `fork`: for so many steps all roles
    learn through this adapter. `more`: turns that are learned from beside those that were played.
    """

    worth: Reward
    threshold: float | None = None
    sft: float = 0.0
    dpo: float = 1.0
    sft_only: tuple[str, ...] = ()
    trained: Callable[[int], set[str]] | None = None
    is_shared: bool = False
    fork: tuple[int, str] = (0, "")
    more: Callable[[Sequence[Facts]], list[Facts]] = lambda turns: []

    def found(self, turns: Sequence[Facts]) -> tuple[list[str], list[tuple[str, str]]]:
        """Ids of what is imitated, and pairs (better, worse)."""
        imitated, pairs = [], []
        for own in parts(turns, group):
            values = [self.worth(turn) for turn in own]
            middle = np.mean(values) if self.threshold is None else self.threshold
            better = [turn for turn, value in zip(own, values, strict=True) if value > middle + 1e-9]
            least = middle - 1e-9 if self.threshold is None else middle + 1e-9
            worse = [turn for turn, value in zip(own, values, strict=True) if value < least]
            imitated += [turn["id"] for turn in better if self.sft]
            if self.dpo and own[0]["role"] not in self.sft_only:
                pairs += [(one["id"], other["id"]) for one in better for other in worse]
        return imitated, pairs

    def loss(self, own: Mapping[str, Tensor], base: Mapping[str, Tensor], turns: Sequence[Facts]) -> Tensor:
        """Of turns of one adapter: log pi and log base by id."""
        imitated, pairs = self.found(turns)
        total = torch.zeros(())
        if imitated:
            total = total - self.sft * torch.cat([own[name] for name in imitated]).mean()
        if pairs:
            gap = {name: (own[name] - base[name]).sum() for pair in pairs for name in pair}
            margins = torch.stack([0.1 * (gap[one] - gap[other]) for one, other in pairs])
            total = total - self.dpo * torch.nn.functional.logsigmoid(margins).mean()
        return total
