"""What all samplers play with."""

from dataclasses import dataclass

from mas.config.options import RewardOptions, SamplerOptions
from mas.core.environment import Reward
from mas.runtime.episodes import NO_OPPONENTS, OpponentPolicies
from mas.runtime.team import TeamRuntime
from mas.training.sampling.episode_recorder import EpisodeRecorder
from mas.training.sampling.opponents import OpponentSeats


@dataclass(frozen=True, slots=True)
class Sampler:
    """A team, what its roles are paid, and how candidates are drawn.

    `reward`: the scenario's; `reward_options`: how its terms are weighed.
    `turns`: most team turns of an episode; None: to its end. `opponent_seats`: seats that others play; None: the team
    plays all.
    """

    runtime: TeamRuntime
    reward: Reward
    options: SamplerOptions
    reward_options: RewardOptions
    turns: int | None = None
    opponent_seats: OpponentSeats | None = None

    def opponent_policies(self, seed: int, recorder: EpisodeRecorder | None = None) -> OpponentPolicies:
        """Who plays the other seats in a play of this seed; see `OpponentSeats.opponent_policies`."""
        return NO_OPPONENTS if self.opponent_seats is None else self.opponent_seats.opponent_policies(seed, recorder)
