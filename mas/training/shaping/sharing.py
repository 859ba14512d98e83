"""Agents that are paid together: each one's own terms become the sum of everybody's in its episode."""

from collections.abc import Sequence

import msgspec

from mas.core.records import Episode, Turn
from mas.training.rewards import OWN
from mas.training.shaping.interaction import shared_sum


def paid_together(episodes: Sequence[Episode]) -> tuple[Episode, ...]:
    """Episodes whose agents all have the team's terms and, of each own term, the sum over all agents.

    An agent speaks for all of its turns, which hold the terms of the whole episode; `paid` of single turns stays, so
    that what the others earned is paid at the end of an agent's last turn.
    Source: CORY, arXiv 2410.06101 (pioneer and observer are both paid r1 + r2).
    """
    return tuple(msgspec.structs.replace(episode, turns=_shared(episode.turns)) for episode in episodes)


def _shared(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    own = {turn.agent: {name: value for name, value in turn.rewards.items() if name.startswith(OWN)} for turn in turns}
    names = dict.fromkeys(name for terms in own.values() for name in terms)
    sums = {name: shared_sum([terms.get(name, 0.0) for terms in own.values()])[0] for name in names}
    return tuple(msgspec.structs.replace(turn, rewards={**turn.rewards, **sums}) for turn in turns)
