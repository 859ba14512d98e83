"""Entropy trees: whole episodes of a task, and branches that begin where the policy was uncertain.

Every decision is one record, however many episodes go through it. A branch begins with a decision that is drawn again;
what was decided before it stays, in the team turn at hand, too. `candidates` episodes are played in all.
Source: AEPO, arXiv 2510.14545; AT2PO, arXiv 2601.04767. Which turns branch: `expansion`.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import msgspec

from mas.core.concurrency import together
from mas.core.environment import Environment, Task
from mas.core.errors import MasError
from mas.core.naming import derive_seed
from mas.core.records import Episode, Group, Turn, facts_of
from mas.core.tracing import in_environment
from mas.training.rewards import TEAM
from mas.training.sampling.chains import Chain, ChainDecision, ChainPlay
from mas.training.sampling.episode_recorder import EpisodeRecorder, record_turn
from mas.training.sampling.expansion import ByChance, ByRank, Expansion
from mas.training.sampling.sampler import Sampler
from mas.training.tree_advantages import TreeEnds

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
        trajectory=None,
        rewards={name: fmean(terms.get(name, 0.0) for terms in own) for name in names},
        chosen=True,
    )


def _episode(chain: Chain, turns: tuple[Turn, ...]) -> Episode:
    if chain.error is not None or chain.world is None:
        return chain.recorder.failed(chain.error or MasError("it was not played"))
    return chain.recorder.close(chain.world, turns)
