"""Where an entropy tree grows next: turns that are drawn again, None being a whole new episode."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

from mas.config.sampling import BranchOptions
from mas.core.seeds import derive_seed
from mas.training.advantages.uncertainty import surprise
from mas.training.sampling.branching import BRANCH_FROM, branch_score, to_expand, whole_rollouts
from mas.training.sampling.chains import Chain, ChainDecision


class Expansion(Protocol):
    """Chooses round by round."""

    def next(self, chains: Sequence[Chain], left: int) -> list[ChainDecision | None]:
        """The decisions to draw again, at least one and at most `left`. `chains`: all, failed ones included."""


@dataclass(slots=True)
class ByRank:
    """`chains` whole episodes, then rounds of the `expand` turns of the greatest entropy - penalty (siblings - 1).

    A turn that an episode ended with is not drawn again; the root, with entropy 0, is a node like others.
    Source: AT2PO, arXiv 2601.04767 (as its code has it).
    """

    options: BranchOptions

    def next(self, chains: Sequence[Chain], left: int) -> list[ChainDecision | None]:
        """See `Expansion`."""
        if not chains:
            return [None] * min(self.options.chains, left)
        every = list(dict.fromkeys(node for chain in chains if chain.error is None for node in chain.path))
        children = Counter(node.parent for node in every)
        inner = [node for node in every if node.candidate is not None and children[node]]
        nodes: list[ChainDecision | None] = [None, *inner]
        entropies = [0.0, *(_entropy(node, self.options) for node in inner)]
        siblings = [max(children[None], 1), *(children[node.parent] for node in inner)]
        count = min(self.options.expand, left)
        return [nodes[k] for k in to_expand(entropies, siblings, count=count, penalty=self.options.penalty)]


@dataclass(slots=True)
class ByChance:
    """Whole episodes by `whole_rollouts`, of which the first one tells the entropies; then every turn but an episode's
    first is drawn again if its `branch_score` says so, as far as the budget goes; what is left are whole episodes.

    Source: AEPO, arXiv 2510.14545 (as its code has it); that the first episode counts as one of the whole ones is our
    reading. Turns are asked in order of their place, of equals that of the earlier chain first.

    Attributes:
        run: how many turns in a row up to this one have branched, of those that were asked.
        begun: the same for the first turn of each branch, which is not asked; by the number of its chain.
    """

    options: BranchOptions
    budget: int
    seed: int
    run: dict[ChainDecision, int] = field(default_factory=dict)
    begun: dict[int, int] = field(default_factory=dict)

    def next(self, chains: Sequence[Chain], left: int) -> list[ChainDecision | None]:
        """See `Expansion`."""
        if not chains:
            return [None]
        if len(chains) == 1 and (more := min(self._whole(chains[0]) - 1, left)):
            return [None] * more
        played = [chain for chain in chains if chain.error is None and chain.spoken]
        for chain in played:
            if chain.number in self.begun:
                # Where it failed and that is isolated, it was not said, and is the branch's first one all the same.
                drawn_again = next(node for node in chain.path if node.chain == chain.number)
                self.run.setdefault(drawn_again, self.begun[chain.number])
        roots = {chain.number: _entropy(chain.spoken[0], self.options) for chain in played}
        nodes = dict.fromkeys(node for chain in played for node in chain.spoken[1:])
        branched: list[ChainDecision | None] = []
        for node in sorted(nodes, key=lambda node: (node.place, node.chain)):
            if node not in self.run and len(branched) < left and self._branches(node, roots[node.chain]):
                self.begun[len(chains) + len(branched)] = self.run[node]
                branched.append(node)
        return branched or [None] * left

    def _branches(self, node: ChainDecision, root: float) -> bool:
        """Asks a turn."""
        before = self.run.get(node.parent, 0) if node.parent is not None else 0
        score = branch_score(
            derive_seed("branch", self.seed, node.chain, node.place) / 2**63,
            entropy=_entropy(node, self.options),
            root_entropy=root,
            consecutive=before,
            weight=self.options.weight,
            penalty=self.options.penalty,
        )
        self.run[node] = before + 1 if score >= BRANCH_FROM else 0
        return score >= BRANCH_FROM

    def _whole(self, chain: Chain) -> int:
        entropies = [_entropy(node, self.options) for node in chain.spoken]
        root = entropies[0] if entropies else 0.0
        return whole_rollouts(self.budget, root_entropy=root, tool_entropy=fmean(entropies[1:] or [root]))


def _entropy(node: ChainDecision, options: BranchOptions) -> float:
    assert node.candidate is not None
    return surprise(node.candidate.generation.logprobs[: options.tokens])
