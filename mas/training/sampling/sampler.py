"""What all samplers play with."""

from dataclasses import dataclass

from mas.config.options import RewardOptions, SamplerOptions
from mas.core.reward import Reward
from mas.runtime.guests import NO_GUESTS, Guests
from mas.runtime.team import TeamRuntime
from mas.training.sampling.ledger import Ledger
from mas.training.sampling.opposing import Opposing


@dataclass(frozen=True, slots=True)
class Sampler:
    """A team, what its roles are paid, and how candidates are drawn.

    `turns`: most team turns of an episode; None: to its end. `opposing`: who plays some of the seats; None: the team
    plays all.
    """

    runtime: TeamRuntime
    reward: Reward
    options: SamplerOptions
    rewards: RewardOptions
    turns: int | None = None
    opposing: Opposing | None = None

    def guests(self, seed: int, ledger: Ledger | None = None) -> Guests:
        """Who plays the other seats in a play of this seed; see `Opposing.guests`."""
        return NO_GUESTS if self.opposing is None else self.opposing.guests(seed, ledger)
