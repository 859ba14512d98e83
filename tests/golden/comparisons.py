"""Advantages of further presets in numpy, as `formulas` has those of the others: nothing of `mas` is used.

Some read what the policy said as the step began, which the caller has noted in each turn that is trained: `entropies`
of its tokens, what each of them pays for its KL to the base, `kl`, and the adapter, `policy`.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from random import Random

import numpy as np
from golden.formulas import (
    Advantages,
    Compare,
    by_rows,
    compared,
    group,
    length,
    less_mean,
    outcome,
    paid,
    parts,
    reward,
    trajectories,
    whitened,
    z,
)
from golden.rollouts import Facts


def kl_of(row: Sequence[Facts]) -> float:
    """What the tokens of a trajectory pay."""
    return math.fsum(one for turn in row for one in turn.get("kl", ()))


def less_others(values: Sequence[float]) -> list[float]:
    """RLOO, arXiv 2402.14740."""
    if len(values) < 2:
        return [0.0] * len(values)
    return [one - (sum(values) - one) / (len(values) - 1) for one in values]


def best_of(values: Sequence[float]) -> list[float]:
    """Pass@k, as verl has it: what the best is above the second, by the spread; all others nothing."""
    if len(values) < 2 or not np.ptp(values):
        return [0.0] * len(values)
    *_, second, best = sorted(values)
    return [(best - second) / (np.std(values, ddof=1) + 1e-6) if one == best else 0.0 for one in values]


def by_length(turns: Sequence[Facts]) -> Advantages:
    """OPO: R less the mean of its group, weighed by tokens."""
    found: Advantages = {}
    for own in parts(trajectories(turns), lambda row: group(row[0])):
        sizes = [sum(map(length, row)) for row in own]
        rewards = [paid(row[0]["rewards"]) for row in own]
        for row, one in zip(own, rewards, strict=True):
            alone = len(own) == 1
            found |= {turn["id"]: 0.0 if alone else one - np.average(rewards, weights=sizes) for turn in row}
    return found


def by_share(turns: Sequence[Facts]) -> Advantages:
    """GPG as verl has it: R less its group's mean, by the share of the batch's rewards that are not 0."""
    rewards = [paid(row[0]["rewards"]) for row in trajectories(turns)]
    share = np.count_nonzero(rewards) / len(rewards) or 1.0
    return {name: one / share for name, one in compared(turns, reward(), less_mean).items()}


def by_batch(turns: Sequence[Facts], compare: Compare = list) -> Advantages:
    """REINFORCE++, arXiv 2501.03262: R less the KL of its trajectory, whitened over the tokens of a role's batch;
    with a baseline R less the mean of its group."""
    raw = by_rows(turns, lambda row: paid(row[0]["rewards"]) - kl_of(row), compare)
    return {name: one for own in parts(turns, _role) for name, one in whitened(raw, own, length).items()}


def of_turns(turns: Sequence[Facts], worth: Callable[[Mapping[str, float]], float]) -> Advantages:
    """Each turn is paid for itself, less its KL, and compared with all of its role."""
    raw = {turn["id"]: worth(turn["paid"]) - kl_of([turn]) for turn in turns}
    found: Advantages = {}
    for own in parts(turns, _role):
        found |= whitened(raw, own, lambda turn: 1)
    return found


def running(turns: Sequence[Facts], done: int, means: dict[str, float]) -> Advantages:
    """SPIRAL, arXiv 2506.24119: R - b of the role, then b <- 0.95 b + 0.05 R. `means`: b, from step to step."""
    if not done:
        means.clear()
    found: Advantages = {}
    for row in sorted(trajectories(turns), key=lambda row: (row[0]["task"], row[0]["agent"], row[0]["trajectory"])):
        role, own = row[0]["role"], paid(row[0]["rewards"])
        found |= {turn["id"]: own - means.get(role, 0.0) for turn in row}
        means[role] = 0.95 * means.get(role, 0.0) + 0.05 * own
    return found


def with_states(turns: Sequence[Facts], gamma: float = 0.95, weight: float = 1, compare: Compare = z) -> Advantages:
    """GiGPO, arXiv 2505.10978, section 3: and z of the discounted returns of turns that began in one state."""
    found, returns = compared(turns, reward()), dict[str, float]()
    for row in trajectories(turns):
        own = [paid(turn["paid"]) for turn in row]
        for place, turn in enumerate(row):
            returns[turn["id"]] = sum(gamma**k * one for k, one in enumerate(own[place:]))
    for own in parts(turns, lambda turn: (group(turn), turn["facts"]["Anchor"]["state"])):
        for turn, one in zip(own, compare([returns[turn["id"]] for turn in own]), strict=True):
            found[turn["id"]] += weight * one
    return found


def with_random_steps(turns: Sequence[Facts], step: int, size: int = 16, weight: float = 0.5) -> Advantages:
    """SRGPO, arXiv 2512.02631: and z of what turns were paid in random groups of a role's.

    Which turns are in one is no formula, and drawn here as the project draws it.
    """
    found = compared(turns, reward())
    for own in parts(turns, _role):
        drawn = sorted(own, key=lambda turn: turn["id"])
        words = f"str:random groups\x1fint:{step}\x1fstr:{drawn[0]['id']}"
        Random(int.from_bytes(blake2b(words.encode(), digest_size=8).digest(), "big") >> 1).shuffle(drawn)
        for start in range(0, len(drawn), size):
            some = drawn[start : start + size]
            for turn, one in zip(some, z([paid(turn["paid"]) for turn in some]), strict=True):
                found[turn["id"]] += weight * one
    return found


def discounted(turns: Sequence[Facts], gamma: float = 0.95) -> Advantages:
    """EAPO, arXiv 2511.07327: z of gamma^(turns that follow) R over all turns of a group."""
    worth = {
        turn["id"]: gamma ** (len(row) - 1 - place) * paid(turn["rewards"])
        for row in trajectories(turns)
        for place, turn in enumerate(row)
    }
    found: Advantages = {}
    for own in parts(turns, group):
        found |= zip([turn["id"] for turn in own], z([worth[turn["id"]] for turn in own]), strict=True)
    return found


def by_confidence(turns: Sequence[Facts]) -> Advantages:
    """EMPG, arXiv 2509.09265, with weights 1, 0.05 and 1: A g(H) + 0.05 f(H of the next turn), less its mean."""
    base, found = compared(turns, reward()), Advantages()
    for own in parts(turns, _role):
        raw = np.array([np.mean(turn["entropies"]) for turn in own])
        scaled = (raw - raw.min()) / np.ptp(raw) if np.ptp(raw) else np.zeros(len(raw))
        entropy = dict(zip([turn["id"] for turn in own], scaled, strict=True))
        middle = np.mean(np.exp(-scaled))
        changed = {turn["id"]: base[turn["id"]] * math.exp(-entropy[turn["id"]]) / middle for turn in own}
        for row in trajectories(own):
            for turn, after in pairwise(row):
                changed[turn["id"]] += 0.05 * math.exp(-entropy[after["id"]])
        found |= {name: one - np.mean([*changed.values()]) for name, one in changed.items()}
    return found


def stratified(turns: Sequence[Facts], blend: float = 0.8) -> Advantages:
    """Stratified GRPO, arXiv 2510.06214: strata are numbers of calls in an episode, of all members."""
    calls = {
        own[0]["episode"]: sum(turn["facts"]["ToolUse"]["calls"] for turn in own)
        for own in parts(turns, lambda turn: turn["episode"])
    }
    inside = by_rows(turns, lambda row: paid(row[0]["rewards"]), key=lambda turn: (group(turn), calls[turn["episode"]]))
    whole = compared(turns, reward())
    return {name: blend * inside[name] + (1 - blend) * whole[name] for name in whole}


def by_entities(
    turns: Sequence[Facts], episodes: Sequence[Facts], alpha: float = 0.3, most: float = math.inf
) -> Advantages:
    """E-GRPO, arXiv 2510.24694: a wrong answer earns alpha x its rate / the greatest of the group; what does not parse
    nothing. What has more than `most` tokens is worth 0, which the others are compared with, and has no advantage."""
    rate = {one["id"]: one["facts"]["EntityRate"]["share"] for one in episodes if one["turns"]}
    won = {one["id"] for one in episodes if one["success"]}
    found: Advantages = {}
    for own in parts(trajectories(turns), lambda row: group(row[0])):
        best = max(rate[row[0]["episode"]] for row in own) or 1.0
        is_long = [sum(map(length, row)) > most for row in own]
        worth = []
        for row, long in zip(own, is_long, strict=True):
            one = 0.0 if long else outcome(row[0])
            if row[0]["episode"] not in won and not long and all(turn["failure"] is None for turn in row):
                one += alpha * rate[row[0]["episode"]] / best
            worth.append(one)
        for row, long, advantage in zip(own, is_long, z(worth), strict=True):
            found |= {turn["id"]: 0.0 if long else float(advantage) for turn in row}
    return found


def with_early_tools(turns: Sequence[Facts], episodes: Sequence[Facts]) -> Advantages:
    """ASPO, arXiv 2508.19201, delta -2, k 0.7: A + clip(delta (p - mean p) / mean L, -k |A|, k |A|) where a tool was
    used and the answer is right."""
    found, first, sizes = compared(turns, reward()), dict[str, int](), dict[str, int]()
    for own in parts(turns, lambda turn: turn["episode"]):
        name, said = own[0]["episode"], np.cumsum([0, *map(length, own)])
        called = [place for place, turn in enumerate(own) if turn["facts"]["ToolUse"]["calls"]]
        sizes[name] = said[-1]
        if called and any(one["id"] == name and one["success"] for one in episodes):
            first[name] = said[called[0]]
    for own in parts(trajectories(turns), lambda row: group(row[0])):
        rows = [row for row in own if row[0]["episode"] in first]
        places = [first[row[0]["episode"]] for row in rows]
        for row, place in zip(rows, places, strict=True):
            a = found[row[0]["id"]]
            more = -2 * (place - np.mean(places)) / np.mean([sizes[one[0]["episode"]] for one in rows])
            found |= {turn["id"]: a + float(np.clip(more, -0.7 * abs(a), 0.7 * abs(a))) for turn in row}
    return found


class Backed:
    """A tree of turns as one agent is paid for its ends, which are z of all of them (ddof 0).

    `leaf_mean`: a turn is worth the mean of all ends below it; `child_softmax`: the mean of its children, by the
    softmax of -mean log p of their tokens.
    """

    def __init__(self, turns: Sequence[Facts], agent: str, backup: str) -> None:
        self.backup = backup
        self.children: dict[str | None, list[str]] = {}
        for turn in turns:
            self.children.setdefault(turn["parent"], []).append(turn["id"])
        self.surprise = {turn["id"]: -np.mean(turn["logprobs"]) for turn in turns}
        ends = [(turn["id"], paid(end[agent])) for turn in turns for end in turn["facts"]["TreeEnds"]["ends"]]
        worth = np.array([one for _, one in ends])
        worth = (worth - worth.mean()) / (worth.std() + 1e-6) if np.ptp(worth) else 0 * worth
        self.ends: dict[str | None, list[float]] = {}
        for (name, _), one in zip(ends, worth, strict=True):
            self.ends.setdefault(name, []).append(float(one))

    def below(self, name: str | None) -> list[float]:
        own = self.children.get(name, ())
        return self.ends.get(name, []) + [one for child in own for one in self.below(child)]

    def value(self, name: str | None) -> float:
        """None: of the root."""
        if self.backup == "leaf_mean":
            return float(np.mean(self.below(name)))
        own, ends = self.children.get(name, []), self.ends.get(name, [])
        weights = np.exp([self.surprise[child] for child in own] + [0.0] * len(ends))
        return float(np.average([*map(self.value, own), *ends], weights=weights))


def from_ends(turns: Sequence[Facts], backup: str, form: str = "node_value") -> Advantages:
    """AT2PO, arXiv 2601.04767, and AEPO, 2510.14545: what turns are worth by the ends of their tree."""
    found: Advantages = {}
    for own in parts(turns, lambda turn: (turn["task"], turn["group"]["episode"])):
        for agent in {turn["agent"] for turn in own}:
            tree = Backed(own, agent, backup)
            for turn in (turn for turn in own if turn["agent"] == agent):
                value = tree.value(turn["id"])
                local, whole = value - tree.value(turn["parent"]), value - tree.value(None)
                of = {
                    "node_value": value,
                    "diff_parent": local,
                    "diff_global": whole,
                    "diff_localglobal": local + whole,
                }
                found[turn["id"]] = of[form]
    return found


def by_uncertainty(turns: Sequence[Facts], advantages: Advantages) -> Advantages:
    """AEPO, arXiv 2510.14545: A (1 + 0.2 z(H)) of each token, z over the tokens of an adapter's batch."""
    found: Advantages = {}
    for own in parts(turns, lambda turn: turn["policy"]):
        scores = iter(1 + 0.2 * z([one for turn in own for one in turn["entropies"]]))
        for turn in own:
            found[turn["id"]] = [advantages[turn["id"]] * next(scores) for _ in turn["entropies"]]
    return found


def unsolved(turns: Sequence[Facts], most: float = 0.75) -> list[Facts]:
    """MLPO, arXiv 2507.08960: without tasks of which so many of the peers' answers are right."""
    found = []
    for own in parts(turns, lambda turn: turn["task"]):
        right = [turn["rewards"]["own.answer"] for turn in own if turn["role"] == "peer"]
        found += own if np.mean(right) < most else []
    return found


def shared(turns: Sequence[Facts]) -> list[Facts]:
    """CORY, arXiv 2410.06101: everybody is paid the sum of all agents' own terms of an episode."""
    found = []
    for own in parts(turns, lambda turn: turn["episode"]):
        agents = {turn["agent"]: turn["rewards"] for turn in own}
        total = sum(paid(terms, alpha=0.0) for terms in agents.values())
        found += [{**turn, "rewards": {"own.sum": total}} for turn in own]
    return found


def band_weight(done: int, steps: int = 60) -> float:
    """EPO's beta, arXiv 2509.22576, as its code has it."""
    half = steps // 2
    return 1 - 0.2 * (1 - math.exp(-2 * done / half)) if done <= half else 0.8 * math.exp(-3 * (done - half) / half)


def _role(turn: Facts) -> str:
    return turn["role"]
