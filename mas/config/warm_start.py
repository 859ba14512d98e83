"""Options of imitation before the first step."""

from typing import Annotated

from pydantic import Field

from mas.config.base import Options, Positive


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
