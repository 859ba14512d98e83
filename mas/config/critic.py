"""Options of a critic: what it values, how it is improved, and how advantages come of it."""

from typing import Annotated, Literal

from pydantic import Field

from mas.config.base import NonNegative, Options, Positive

Level = Literal["token", "turn", "bad"]


class CriticOptions(Options):
    """A value function per trained adapter: an adapter of the same shape and a linear head, never published.

    `level`: whose advantages; of each token (`token`, PPO), one per turn (`turn`), or of each token where only turns
    are discounted (`bad`, POAD). `gamma` and `lam` are those of generalised advantage estimation. `whiten`: the
    advantages of an adapter's tokens get mean 0 and standard deviation 1 in each step.

    `lr` falls as the learner's does, `epochs` are passes over the batch, in `minibatches` optimiser steps each; betas,
    weight decay and the bound of the gradient are the learner's. `clip`: a value counts as moved from the one before
    the step by this at most, where that makes the loss greater; None: no bound.
    """

    level: Level = "token"
    gamma: Annotated[float, Field(ge=0, le=1)] = 1.0
    lam: Annotated[float, Field(ge=0, le=1)] = 0.95
    whiten: bool = True
    lr: Annotated[float, Field(gt=0)] = 3e-3
    epochs: Positive = 4
    minibatches: Positive = 4
    clip: NonNegative | None = None

    def why_idle(self, name: str, *, is_tree: bool) -> str | None:
        """Why an option has no effect beside the others; None: it has one."""
        between_turns = {"token": (), "bad": ("gamma",), "turn": ("gamma", "lam")}
        if is_tree and name in between_turns[self.level]:
            return "in tree sampling a trajectory is one turn, so nothing is discounted from turn to turn"
        return None
