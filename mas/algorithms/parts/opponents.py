"""Who may play against the learner, how often, and how games against each of them went."""

from typing import Annotated, Self

import msgspec
from pydantic import Field, StringConstraints, model_validator

from mas.core.naming import did_you_mean
from mas.core.options import NonNegative, Options

SELF = "self"
"""Stands in mixes and shares for the policy in training, in all seats: self-play."""
PlayerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_][A-Za-z0-9_.-]*$")]
Weight = Annotated[NonNegative, Field(allow_inf_nan=False, le=1e6)]
"""Bounded, so that sums of them are, too."""


class OpponentsOptions(Options):
    """In every training game one seat is the learner's, and one opponent, drawn for the game, plays the others.

    `players`: name -> source, as `mas league run` takes them (`random`, `cfr:500`, `run:DIR@STEP`). `league`: its
    members are opponents, too. `mix`: how often which, as `0.5*self+0.3*latest+0.2*pfsp:2`; or `shares`: by name,
    divided by their sum. In both `self` is the present policy in all seats.
    `seats`: those that the learner plays, one after the other; empty: all that it trains. `decay`: of what happened
    against an opponent a game before, in the running means that `pfsp` and `even` read.
    """

    players: dict[PlayerName, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    league: Annotated[str, Field(min_length=1)] | None = None
    mix: Annotated[str, Field(min_length=1)] = "uniform"
    shares: dict[str, Weight] = Field(default_factory=dict)
    seats: tuple[str, ...] = ()
    decay: Annotated[float, Field(ge=0, lt=1)] = 0.99

    @model_validator(mode="after")
    def _names_somebody(self) -> Self:
        if not self.players and self.league is None:
            raise ValueError(
                "no opponent is named: write algorithm.opponents.players.NAME=SOURCE, such as best=cfr:500 or "
                "old=run:runs/kuhn@20, or algorithm.opponents.league=FILE"
            )
        if SELF in self.players:
            raise ValueError(f"players has {SELF!r}, which is the present policy: choose another name")
        if self.shares and self.mix != "uniform":
            raise ValueError(f"mix={self.mix} and shares both say how often who plays: leave one of them out")
        if self.shares and not sum(self.shares.values()):
            raise ValueError("shares are all 0, so that nobody would play: give somebody more")
        unknown = [name for name in self.shares if self.league is None and name not in {*self.players, SELF}]
        if unknown:
            raise ValueError(
                f"shares has {unknown[0]!r}, who is no player. {did_you_mean(unknown[0], {*self.players, SELF})}"
            )
        return self


class OpponentRecord(msgspec.Struct):
    """Games against one opponent: how many, and running means of the learner's points and payoff, which forget.

    `weight`: what the sums are divided by.
    """

    games: int = 0
    weight: float = 0.0
    points: float = 0.0
    payoff: float = 0.0

    def add(self, points: float, payoff: float, decay: float) -> None:
        self.games += 1
        self.weight = decay * self.weight + 1
        self.points = decay * self.points + points
        self.payoff = decay * self.payoff + payoff
