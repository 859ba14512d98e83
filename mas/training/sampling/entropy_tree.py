"""Entropy trees: whole episodes of a task, and branches that begin where the policy was uncertain.

Every decision is one record, however many episodes go through it. A branch begins with a decision that is drawn again;
what was decided before it stays, in the team turn at hand, too. `candidates` episodes are played in all. `ByRank` and
`ByChance` choose the turns that branch, by `mas.algorithms.parts.sampling.branching`.
Source: AEPO, arXiv 2510.14545; AT2PO, arXiv 2601.04767.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from typing import Protocol

import msgspec

from mas.algorithms.parts.advantages.adjustments import surprise
from mas.algorithms.parts.advantages.entropy_trees import TreeEnds
from mas.algorithms.parts.rewards.names import TEAM
from mas.algorithms.parts.sampling.branching import BRANCH_FROM, BranchOptions, branch_score, to_expand, whole_rollouts
from mas.core.concurrency import together
from mas.core.environment import Environment, Task
from mas.core.errors import MasError
from mas.core.records import Episode, Group, Turn, facts_of
from mas.core.seeds import derive_seed
from mas.core.tracing import in_environment
from mas.training.sampling.chains import Chain, ChainDecision, ChainPlay
from mas.training.sampling.sampler import EpisodeRecorder, Sampler, record_turn

Terms = dict[str, float]


@dataclass(frozen=True, slots=True)
class EntropyTreeSampler(Sampler):
    """Plays one tree of `candidates` episodes per task."""

    async def sample(self, task: Task, environment: Environment, seed: int) -> tuple[Episode, ...]:
        """One record per episode, with the turns that were drawn in it and not in the one that it branches off from.

        An episode that cannot be played to its end is a record with status `failed`, and nothing branches off from it.
        """
        count, branch = self.options.candidates, self.options.branch
        try:
            with in_environment():
                environment.reset(task)
        except MasError as error:
            seeds = (derive_seed("episode", seed, k) for k in range(count))
            return tuple(EpisodeRecorder.open(task, one).failed(error) for one in seeds)
        expansion: Expansion = ByRank(branch) if branch.by == "rank" else ByChance(branch, count, seed)
        chains: list[Chain] = []
        while left := count - len(chains):
            plays = [
                ChainPlay.begin(
                    self,
                    task,
                    seed,
                    len(chains) + k,
                    root=environment,
                    other=None if at is None else chains[at.chain],
                    at=at,
                )
                for k, at in enumerate(expansion.next(chains, left))
            ]
            chains += await together((play.run() for play in plays), "episode")
        return _records(chains, f"{seed:016x}")


def _records(chains: Sequence[Chain], tree: str) -> tuple[Episode, ...]:
    """What was played, as episodes with turns."""
    played = [chain for chain in chains if chain.error is None]
    agents = dict.fromkeys(node.point.agent for chain in played for node in chain.spoken)
    ends = {chain.number: _terms(chain, agents) for chain in played}
    below: dict[ChainDecision, list[int]] = defaultdict(list)
    last: dict[ChainDecision, list[int]] = defaultdict(list)
    for chain in played:
        for node in chain.spoken:
            below[node].append(chain.number)
        for node in chain.spoken[-1:]:
            last[node].append(chain.number)
    ids: dict[ChainDecision, str] = {}
    turns: dict[int, list[Turn]] = defaultdict(list)
    for node in sorted(below, key=lambda node: (node.place, node.chain)):
        turn = _record(node, chains[node.chain], tree, ids, [ends[number] for number in below[node]])
        ids[node] = turn.id
        own = TreeEnds(ends=tuple(ends[number] for number in last[node]))
        turns[node.chain].append(msgspec.structs.replace(turn, facts=facts_of(own)))
    return tuple(_episode(chain, tuple(turns[chain.number])) for chain in chains)


def _terms(chain: Chain, agents: Mapping[str, None]) -> dict[str, Terms]:
    """What an episode is worth to each agent: the team's terms, and its own summed over the episode."""
    team = {f"{TEAM}{name}": value for name, value in chain.recorder.rewards.items()}
    found: dict[str, Terms] = {agent: dict(team) for agent in agents}
    for node in chain.spoken:
        terms = found[node.point.agent]
        for name, value in chain.own[node].items():
            terms[name] = terms.get(name, 0.0) + value
    return found


def _record(
    node: ChainDecision, chain: Chain, tree: str, ids: Mapping[ChainDecision, str], ends: Sequence[Mapping[str, Terms]]
) -> Turn:
    """A decision with the means over the episodes that go through it."""
    assert node.candidate is not None
    own = [end[node.point.agent] for end in ends]
    names = dict.fromkeys(name for terms in own for name in terms)
    return record_turn(
        node.point,
        node.candidate,
        chain.recorder,
        parent=next((ids[other] for other in reversed(node.before()) if other in ids), None),
        index=node.chain,
        group=Group(kind="tree", task=chain.recorder.task, agent=node.point.agent, episode=tree),
        rewards={name: fmean(terms.get(name, 0.0) for terms in own) for name in names},
        chosen=True,
    )


def _episode(chain: Chain, turns: tuple[Turn, ...]) -> Episode:
    if chain.error is not None or chain.world is None:
        return chain.recorder.failed(chain.error or MasError("it was not played"))
    return chain.recorder.close(chain.world, turns)


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
