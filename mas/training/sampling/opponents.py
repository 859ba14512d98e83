"""Others in some seats of a game that is sampled: what they do moves the world, and nothing of it is ever trained."""

from dataclasses import dataclass
from functools import partial
from typing import Protocol

from mas.core.environment import Environment
from mas.core.naming import derive_seed
from mas.runtime.episodes import OpponentPolicies
from mas.training.sampling.episode_recorder import EpisodeRecorder


class Opponent(Protocol):
    """Somebody who plays any seat of one game; asked for many games at once."""

    async def move(self, seat: str, environment: Environment, seed: int) -> str:
        """The action as the environment reads it.

        Args:
            environment: where it is to move; not to be changed.
            seed: of this move; equal seeds make equal moves.
        """


@dataclass(frozen=True, slots=True)
class OpponentSeats:
    """An opponent and the seats that it has in a game; the same for all that are compared with each other."""

    name: str
    seats: tuple[str, ...]
    opponent: Opponent

    def opponent_policies(self, seed: int, recorder: EpisodeRecorder | None = None) -> OpponentPolicies:
        """As the runtime asks them. `seed`: of the play; `recorder`: where the committed conversation is written."""

        async def move(seat: str, environment: Environment, turn: int) -> str:
            text = await self.opponent.move(seat, environment, derive_seed("opponent", seed, turn, seat))
            if recorder is not None:
                recorder.hear(turn, f"opponent.{self.name}", text)
            return text

        return {seat: partial(move, seat) for seat in self.seats}
