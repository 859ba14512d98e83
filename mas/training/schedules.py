"""What changes with the step, as pure functions of it: schedules, and which adapter each role samples with and trains.

A schedule has no memory, so that a run that was resumed is where one that was not would be. `step` is the number of
steps done before, from 0; all schedules raise ValueError for a negative one.
"""

import math
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate

from mas.config.algorithm import AlgorithmOptions
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean


class AdapterAssignment:
    """What `algorithm.roles`, `.stages`, `.swap` and `.fork` make of the team's adapters.

    Args:
        adapter_of: role -> its adapter, for every trainable role.

    Raises:
        ConfigError: a role that is not trainable, two to be swapped that have one adapter, or one adapter to be forked.
    """

    def __init__(self, algorithm: AlgorithmOptions, adapter_of: Mapping[str, str]) -> None:
        self._adapter_of = dict(adapter_of)
        self._roles = frozenset(algorithm.roles or adapter_of)
        stages = [Stage(roles=frozenset(one.roles), steps=one.steps) for one in algorithm.stages]
        self._stages = Stages(stages=tuple(stages)) if stages else None
        self._staged = frozenset[str]().union(*(stage.roles for stage in stages))
        swap = algorithm.swap
        self._swapped = swap.roles if swap is not None else ()
        for role in self._roles | self._staged | set(self._swapped):
            if role not in adapter_of:
                raise ConfigError(
                    f"algorithm.roles, .stages or .swap name {role!r}, which the team does not train. "
                    f"{did_you_mean(role, adapter_of)} Name its own, as in algorithm.roles=[{next(iter(adapter_of))}]; "
                    "`mas algorithms NAME` says which scenario a preset is made for"
                )
        self._swap = None
        if swap is not None:
            players = tuple(adapter_of[role] for role in swap.roles)
            if len(set(players)) < len(players):
                raise ConfigError(f"roles {list(swap.roles)} use adapters {list(players)}: nothing to swap")
            self._swap = RoleSwap(players=players, every=swap.every)

        self._names = tuple(dict.fromkeys(adapter_of.values()))
        self._after = algorithm.fork.after if algorithm.fork is not None else 0
        if self._after and len(self._names) < 2:
            raise ConfigError(
                f"algorithm.fork copies one adapter for others, and the team trains {list(self._names)} alone: leave "
                "it out, or choose a team whose roles have adapters of their own"
            )

    @property
    def swaps(self) -> bool:
        """Whether a role ever samples with another one's adapter."""
        return self._swap is not None or self._after > 0

    def copies(self, steps_done: int) -> tuple[str, ...]:
        """The backbone of a step and the adapters that get its weights after it; empty: there are none.

        Until the fork all roles sample with the first role's adapter, and the others are copies of it.
        """
        return self._names if steps_done < self._after else ()

    def sampling_adapters(self, steps_done: int) -> Mapping[str, str]:
        """Role -> the adapter that it samples with, after so many steps."""
        if steps_done < self._after:
            return dict.fromkeys(self._adapter_of, self._names[0])
        if self._swap is None:
            return self._adapter_of
        return self._adapter_of | dict(zip(self._swapped, self._swap(steps_done), strict=True))

    def warm_start_adapters(self) -> Mapping[str, str]:
        """Role -> the adapter that the warm start trains, for all roles that are ever trained."""
        roles = self._roles if self._stages is None else self._staged
        return {role: adapter for role, adapter in self.sampling_adapters(0).items() if role in roles}

    def trained_adapters(self, steps_done: int) -> Mapping[str, str]:
        """Role -> the adapter that it samples with, for the roles that are trained after so many steps."""
        roles = self._stages(steps_done) if self._stages is not None else self._roles
        return {role: adapter for role, adapter in self.sampling_adapters(steps_done).items() if role in roles}


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
