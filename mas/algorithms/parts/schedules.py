"""What changes with the step, as pure functions of it.

A schedule has no memory, so that a run that was resumed is where one that was not would be. `step` is the number of
steps done before, from 0; all schedules raise ValueError for a negative one.
"""

import math
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Annotated

from pydantic import Field

from mas.core.options import Options, Positive


class HorizonOptions(Options):
    """An episode ends after so many team turns: the first of `turns` for `every` steps, then the next, and so on."""

    turns: Annotated[tuple[Positive, ...], Field(min_length=1)]
    every: Positive = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Horizon:
    """The most team turns of an episode: the first for `every` steps, then the next; the last stays.

    turns[min(step // every, n - 1)]. Source: ScalingInter-RL, AgentGym-RL, arXiv 2509.08755 (there steps count from 1,
    and the published schedule, which counts for itself, skips stages after a resume).

    Raises:
        ValueError: no horizon, one below 1, or fewer steps than 1 for each.
    """

    turns: tuple[int, ...]
    every: int

    def __post_init__(self) -> None:
        if not self.turns:
            raise ValueError("a schedule of horizons has none: give one number of turns at least")
        for turns in self.turns:
            _positive("turns", turns)
        _positive("every", self.every)

    def __call__(self, step: int) -> int:
        return self.turns[min(_checked(step) // self.every, len(self.turns) - 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PhaseWeight:
    """EPO's weight of its entropy smoothing in epoch k of `epochs`: it falls slowly, then fast.

    With half = epochs // 2: 1 - 0.2 (1 - exp(-2 k / half)) up to half, then 0.8 exp(-3 (k - half) / (epochs - half)).
    Between the two it jumps from 0.827 to about 0.8. Beyond `epochs` it goes on falling.
    Source: EPO, arXiv 2509.22576 (as its code has it).

    Raises:
        ValueError: fewer epochs than 2.
    """

    epochs: int

    def __post_init__(self) -> None:
        if self.epochs < 2:
            raise ValueError(f"epochs is {self.epochs}; two phases need 2 at least")

    def __call__(self, step: int) -> float:
        half, epoch = self.epochs // 2, _checked(step)
        if epoch <= half:
            return 1 - 0.2 * (1 - math.exp(-2 * epoch / half))
        return 0.8 * math.exp(-3 * (epoch - half) / (self.epochs - half))


class StageOptions(Options):
    """So many `steps` in which only these `roles` train, paid by these `weights` in place of those of the same terms in
    `reward.weights`."""

    roles: Annotated[tuple[str, ...], Field(min_length=1)]
    steps: Positive
    weights: dict[str, float] = Field(default_factory=dict)


class ForkOptions(Options):
    """For the first `after` steps all roles learn through one adapter; then each goes on with a copy of it."""

    after: Positive


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """`steps` in which only these roles train. Raises ValueError: no step, or no role."""

    roles: frozenset[str]
    steps: int

    def __post_init__(self) -> None:
        _positive("steps", self.steps)
        if not self.roles:
            raise ValueError("a stage trains no role: name one at least, or leave the stage out")


@dataclass(frozen=True, slots=True, kw_only=True)
class Stages:
    """The roles that train in a step: those of the stage that is going on; the last stage never ends.

    Source: PilotRL, with follow the plan, improve the plan, both (its AdaPlan stages); WaltzRL, arXiv 2510.08240, with
    the feedback agent alone and then both.

    Raises:
        ValueError: no stage.
    """

    stages: tuple[Stage, ...]

    def __post_init__(self) -> None:
        if not self.stages:
            raise ValueError("a schedule of stages has none: give one at least")

    def number(self, step: int) -> int:
        """Of the stage, from 0."""
        return stage_number([stage.steps for stage in self.stages], step)

    def __call__(self, step: int) -> frozenset[str]:
        return self.stages[self.number(step)].roles


def stage_number(lengths: Sequence[int], step: int) -> int:
    """Which of the stages of these lengths, in steps, a step belongs to, from 0; the last stage never ends."""
    return min(bisect_right(list(accumulate(lengths)), _checked(step)), len(lengths) - 1)


class SwapOptions(Options):
    """Every `every` steps each of these `roles` takes the adapter of the one before it, the first that of the last."""

    roles: Annotated[tuple[str, ...], Field(min_length=2)]
    every: Positive = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleSwap:
    """Who plays which role: every `every` steps each player takes the next role, the last player the first.

    Returns the players in the order of the roles. Two players swap. Source: CORY, arXiv 2410.06101, every 5 steps.

    Raises:
        ValueError: fewer players than 2, the same one twice, or fewer steps than 1.
    """

    players: tuple[str, ...]
    every: int = 5

    def __post_init__(self) -> None:
        if len(set(self.players)) != len(self.players) or len(self.players) < 2:
            raise ValueError(f"players {list(self.players)} cannot swap roles: give two different ones at least")
        _positive("every", self.every)

    def __call__(self, step: int) -> tuple[str, ...]:
        back = -(_checked(step) // self.every) % len(self.players)
        return self.players[back:] + self.players[:back]


def _checked(step: int) -> int:
    if step < 0:
        raise ValueError(f"step is {step}; steps count from 0")
    return step


def _positive(name: str, value: int) -> None:
    if value < 1:
        raise ValueError(f"{name} is {value}; it must be at least 1")
