"""What entropy trees draw again, and which episodes are kept, on random draws as the pages of the presets say it.

Nothing is played: decisions, their entropies and how episodes went are made up here.
"""

import math
from collections import Counter
from collections.abc import Callable, Sequence
from hashlib import blake2b
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest
from golden import comparisons as c
from golden.presets import GRID, TOOLS
from golden.rollouts import Cast, Draw, Facts, entropy_tree, parallel

from mas.algorithms.parts.advantages.entropy_trees import tree_advantages
from mas.algorithms.parts.advantages.tree import TreeOptions
from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.algorithms.parts.sampling.branching import BranchOptions
from mas.core.errors import RunError
from mas.core.records import Episode, Turn
from mas.training.sampling.chains import Chain, ChainDecision
from mas.training.sampling.entropy_tree import ByChance, ByRank, Expansion
from mas.training.sampling.parallel import ParallelSampler

Chosen = list[ChainDecision | None]


def decision(path: Sequence[ChainDecision], chain: int, random: Random) -> ChainDecision:
    """Entropies are eighths, so that many are equal; a turn has one token to four."""
    entropy = random.randrange(24) / 8
    said = SimpleNamespace(generation=SimpleNamespace(logprobs=(-entropy,) * random.randint(1, 4)))
    parent = path[-1] if path else None
    return ChainDecision(point=cast(Any, None), parent=parent, chain=chain, place=len(path), candidate=cast(Any, said))


def entropy_of(node: ChainDecision) -> float:
    return -float(np.mean(cast(Any, node.candidate).generation.logprobs))


def grow(expansion: Expansion, budget: int, seed: int, check: Callable[[list[Chain], int, Chosen], None]) -> None:
    """Episodes of one decision to five, some of which fail; each round is checked before it is played."""
    random, chains = Random(seed), list[Chain]()
    while left := budget - len(chains):
        chosen = expansion.next(chains, left)
        assert 1 <= len(chosen) <= left
        check(chains, left, chosen)
        for at in chosen:
            path = [*at.before()] if at is not None else []
            chain = Chain(number=len(chains), recorder=cast(Any, None), path=path)
            for _ in range(max(random.randint(1, 5) - len(path), 1)):
                path.append(decision(path, chain.number, random))
            chain.error = RunError("out of order") if random.random() < 0.15 else None
            chains.append(chain)


@pytest.mark.parametrize(("chains", "expand", "budget"), [(1, 1, 2), (2, 3, 9), (5, 3, 11), (3, 9, 10)])
def test_at2po_draws_the_most_uncertain_turns_again(chains: int, expand: int, budget: int) -> None:
    """The greatest H - 0.05 (siblings - 1) of turns that something follows and of the root, whose H is 0."""

    def check(played: list[Chain], left: int, chosen: Chosen) -> None:
        if not played:
            assert chosen == [None] * min(chains, left)
            return
        nodes = {id(node): node for chain in played if chain.error is None for node in chain.path}
        siblings = Counter(id(node.parent) for node in nodes.values())
        scores = {id(None): -0.05 * max(siblings[id(None)] - 1, 0)}
        for name, node in nodes.items():
            if siblings[name]:
                scores[name] = entropy_of(node) - 0.05 * (siblings[id(node.parent)] - 1)
        found = [scores[id(node)] for node in chosen]
        assert found == pytest.approx(sorted(scores.values(), reverse=True)[: min(expand, left)])
        assert len({id(node) for node in chosen}) == len(chosen)

    for seed in range(12):
        grow(ByRank(BranchOptions(chains=chains, expand=expand)), budget, seed, check)


class Chance:
    """AEPO: whole episodes of a budget, then turns in the order of their places; see docs/algorithms/aepo.md."""

    def __init__(self, budget: int, seed: int) -> None:
        self.budget, self.seed = budget, seed
        self.asked: dict[int, bool] = {}
        self.begun: dict[int, int] = {}
        self.kept: list[Any] = []
        """So that no id comes twice."""

    def branched_before(self, node: ChainDecision) -> int:
        count, before = 0, node.parent
        while before is not None and self.asked.get(id(before), False):
            count, before = count + 1, before.parent
        return count

    def u(self, node: ChainDecision) -> float:
        words = f"str:branch\x1fint:{self.seed}\x1fint:{node.chain}\x1fint:{node.place}"
        return float((int.from_bytes(blake2b(words.encode(), digest_size=8).digest(), "big") >> 1) / 2**63)

    def check(self, played: list[Chain], left: int, chosen: Chosen) -> None:
        assert [*map(id, chosen)] == [*map(id, self.wanted(played, left))]

    def wanted(self, played: list[Chain], left: int) -> Chosen:
        self.kept.append(list(played))
        if not played:
            return [None]
        if len(played) == 1:
            root, *rest = map(entropy_of, played[0].path)
            share = 1 / (1 + math.exp(-0.5 * (root - float(np.mean(rest or [root])))))
            whole = max(1, min(int(self.budget * share) + 1, self.budget))
            if whole > 1:
                return [None] * (whole - 1)
        fine = [chain for chain in played if chain.error is None]
        for chain in fine:
            if chain.number in self.begun:  # its first turn is the one that was drawn again, as uncertain as before
                self.asked[id(chain.path[self.begun[chain.number]])] = True
        turns = {id(node): node for chain in fine for node in chain.path[1:]}
        found: Chosen = []
        for node in sorted(turns.values(), key=lambda node: (node.place, node.chain)):
            if id(node) in self.asked or len(found) == left:
                continue
            above = self.u(node) + 0.2 * (entropy_of(node) - entropy_of(([*node.before(), node])[0]))
            score = above * max(0.0, 1 - 0.4 * self.branched_before(node))
            self.asked[id(node)] = score >= 0.5
            if score >= 0.5:
                self.begun[len(played) + len(found)] = node.place
                found.append(node)
        return found or [None] * left


@pytest.mark.parametrize("budget", [2, 3, 8, 16])
def test_aepo_shares_a_budget_and_branches_less_where_it_just_has(budget: int) -> None:
    for seed in range(12):
        own = Chance(budget, seed)
        grow(ByChance(BranchOptions(by="chance", tokens=50, penalty=0.4), budget, seed), budget, seed, own.check)


def random_tree(cast_: Cast, number: int) -> list[Facts]:
    """Turns of a tree whose ends are anywhere, and of which some trees are paid alike."""
    draw = Draw("random tree", number)
    turns = [turn for own in entropy_tree(cast_, number) for one in own for turn in one["turns"]]
    parents = {turn["parent"] for turn in turns}
    dropped: set[str] = set()
    for turn in reversed(turns):  # cut back ends, which a turn before them inherits
        if turn["id"] not in parents - dropped and turn["parent"] is not None and draw.chance(0.4):
            before = next(one for one in turns if one["id"] == turn["parent"])
            if all(one["id"] == turn["id"] or one["id"] in dropped for one in turns if one["parent"] == before["id"]):
                before["facts"] = {"TreeEnds": {"ends": turn["facts"]["TreeEnds"]["ends"]}}
                dropped.add(turn["id"])
    kept = [turn for turn in turns if turn["id"] not in dropped]
    for turn in kept:
        for end in turn["facts"]["TreeEnds"]["ends"] if number % 3 == 0 else ():
            for terms in end.values():
                terms.update(dict.fromkeys(terms, 0.25))
    return kept


@pytest.mark.parametrize("backup", ["child_softmax", "child_mean", "leaf_mean"])
@pytest.mark.parametrize("form", ["node_value", "diff_parent", "diff_global", "diff_localglobal"])
def test_values_of_random_trees_are_backed_up_from_their_ends(backup: Any, form: Any) -> None:
    for number in range(4):
        turns = random_tree(GRID, number)
        if backup == "child_mean":  # as by softmax where all are equally uncertain
            turns = [{**turn, "logprobs": [-0.0] * len(turn["logprobs"])} for turn in turns]
        found = tree_advantages(
            msgspec.convert(turns, list[Turn]), RewardOptions(), TreeOptions(backup=backup, form=form)
        )
        wanted = c.from_ends(turns, "leaf_mean" if backup == "leaf_mean" else "child_softmax", form)
        assert found == pytest.approx([wanted[turn["id"]] for turn in turns], abs=1e-9)


def kept(episodes: Sequence[Facts], candidates: int, least: int) -> tuple[list[str], int]:
    """GRPO-RoC, arXiv 2508.20722: the successes that stay, and how many failures do."""
    played = [one for one in episodes if one.get("status", "done") == "done"]
    keep = min(candidates, len(played))
    won = [one for one in played if one["success"]]
    exact = keep * len(won) / len(played) if played else 0.0
    share = math.floor(exact) + (exact - math.floor(exact) >= 0.5 - 1e-9)
    lost = len(played) - len(won)
    least = min(least, keep // 2)
    share = max(share, min(least, len(won)))
    share = min(share, keep - min(least, lost))

    def penalty(one: Facts) -> float:
        used = [turn["facts"]["ToolUse"] for turn in one["turns"]]
        failed, right = (sum(facts[name] for facts in used) for name in ("errors", "calls"))
        unread = any(turn["failure"] is not None for turn in one["turns"])
        return (failed / (failed + right) if failed + right else 0.5) + unread

    return sorted(one["id"] for one in sorted(won, key=penalty)[:share]), keep - share


@pytest.mark.parametrize(("candidates", "least"), [(2, 2), (3, 2), (7, 0), (16, 2)])
def test_the_cleanest_successes_are_kept_and_failures_in_proportion(candidates: int, least: int) -> None:
    sampler = cast(Any, SimpleNamespace(options=SimpleNamespace(candidates=candidates)))
    for number in range(1, 9):
        facts = [one for step in range(number, number + 3) for own in parallel(TOOLS, step) for one in own]
        facts = facts[: 2 * candidates]
        for one in facts if number % 4 == 0 else ():  # of one class alone
            one["success"] = number % 8 == 0
        found = ParallelSampler._kept(sampler, msgspec.convert(facts, list[Episode]), least, number)
        stayed = [one for one in found if one.turns]
        wanted, failures = kept(facts, candidates, least)
        assert [one.id for one in found] == [one["id"] for one in facts]
        assert sorted(one.id for one in stayed if one.success) == wanted
        assert sum(not one.success for one in stayed) == failures
