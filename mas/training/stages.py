"""What changes with the step: how turns are rewarded, and which adapter each role samples with and trains."""

from collections.abc import Mapping

from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.terms import RewardOptions
from mas.algorithms.parts.schedules import RoleSwap, Stage, Stages, stage_number
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.runtime.team import TeamRuntime


def rewards_of(algorithm: AlgorithmOptions, steps_done: int) -> RewardOptions:
    """The reward after so many steps, with the weights of their stage."""
    if not algorithm.stages:
        return algorithm.reward
    stage = algorithm.stages[stage_number([stage.steps for stage in algorithm.stages], steps_done)]
    return algorithm.reward.model_copy(update={"weights": algorithm.reward.weights | stage.weights})


class AdapterAssignment:
    """What `algorithm.roles`, `.stages`, `.swap` and `.fork` make of the team's adapters.

    Attributes:
        adapter_of: role -> its adapter, for every trainable role; or its library, which is named like the role.

    Raises:
        ConfigError: a role that is not trainable, two to be swapped that have one adapter, or one adapter to be forked.
    """

    def __init__(self, algorithm: AlgorithmOptions, adapter_of: Mapping[str, str]) -> None:
        self.adapter_of = dict(adapter_of)
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

    def use(self, runtime: TeamRuntime, steps_done: int | None) -> None:
        """Have roles sample as after so many steps; None: for an evaluation, each with its own adapter, which equals
        the backbone before a fork."""
        if self._swap is not None or self._after:
            runtime.use_adapters(self.adapter_of if steps_done is None else self.sampling_adapters(steps_done))

    def copies(self, steps_done: int) -> tuple[str, ...]:
        """The backbone of a step and the adapters that get its weights after it; empty: there are none.

        Until the fork all roles sample with the first role's adapter, and the others are copies of it.
        """
        return self._names if steps_done < self._after else ()

    def sampling_adapters(self, steps_done: int) -> Mapping[str, str]:
        """Role -> the adapter that it samples with, after so many steps."""
        if steps_done < self._after:
            return dict.fromkeys(self.adapter_of, self._names[0])
        if self._swap is None:
            return self.adapter_of
        return self.adapter_of | dict(zip(self._swapped, self._swap(steps_done), strict=True))

    def warm_start_adapters(self) -> Mapping[str, str]:
        """Role -> the adapter that the warm start trains, for all roles that are ever trained."""
        roles = self._roles if self._stages is None else self._staged
        return {role: adapter for role, adapter in self.sampling_adapters(0).items() if role in roles}

    def trained_adapters(self, steps_done: int) -> Mapping[str, str]:
        """Role -> the adapter that it samples with, for the roles that are trained after so many steps."""
        roles = self._stages(steps_done) if self._stages is not None else self._roles
        return {role: adapter for role, adapter in self.sampling_adapters(steps_done).items() if role in roles}
