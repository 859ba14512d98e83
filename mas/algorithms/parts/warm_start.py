"""Which turns of sampled episodes every role imitates before the first step."""

from collections.abc import Container, Sequence
from typing import Annotated

from pydantic import Field

from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.core.options import Options, Positive
from mas.core.records import Episode, Turn

_ROUNDING = 1e-9
"""Of rewards that are sums."""


class WarmStartOptions(Options):
    """Before the first step every role imitates what it said in episodes that went well.

    Of the first `tasks` training tasks `attempts` whole episodes each are sampled from the team as it begins. Kept are
    the turns, of roles that are trained, whose trajectory has a reward R (`RewardOptions`) of at least `threshold`;
    None: of episodes that succeeded. What does not parse is not kept.
    `temperature`: of all roles in these episodes; None: each role's own.
    The kept turns are learned from by cross-entropy, `epochs` times in optimiser steps of `batch` turns for each
    adapter; the optimisers of the steps begin anew behind it.
    """

    tasks: Positive = 64
    attempts: Annotated[int, Field(ge=2)] = 8
    threshold: float | None = None
    temperature: Annotated[float, Field(gt=0)] | None = None
    epochs: Positive = 2
    batch: Positive = 32


def kept_turns(
    episodes: Sequence[Episode], roles: Container[str], options: WarmStartOptions, rewards: RewardOptions
) -> list[Turn]:
    """The turns to imitate, of these roles, in order; see `WarmStartOptions`."""
    kept = []
    for episode in episodes:
        for turn in episode.turns:
            is_good = episode.success
            if options.threshold is not None:
                is_good = total_reward(turn.rewards, rewards) - options.threshold > -_ROUNDING
            if is_good and turn.failure is None and turn.role in roles:
                kept.append(turn)
    return kept
