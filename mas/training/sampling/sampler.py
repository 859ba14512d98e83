"""What all samplers play with."""

from dataclasses import dataclass

from mas.config.options import RewardOptions, SamplerOptions
from mas.core.reward import Reward
from mas.runtime.team import TeamRuntime


@dataclass(frozen=True, slots=True)
class Sampler:
    """A team, what its roles are paid, and how candidates are drawn.

    `turns`: most team turns of an episode; None: to its end.
    """

    runtime: TeamRuntime
    reward: Reward
    options: SamplerOptions
    rewards: RewardOptions
    turns: int | None = None
