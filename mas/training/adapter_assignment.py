"""Who speaks through which adapter in a step, and who is trained: pure functions of the step."""

from collections.abc import Mapping

from mas.config.algorithm import AlgorithmOptions
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.training.schedules import RoleSwap, Stage, Stages


class AdapterAssignment:
    """What `algorithm.roles`, `.stages`, `.swap` and `.fork` make of the team's adapters.

    Args:
        speakers: role -> its adapter, of every trainable role.

    Raises:
        ConfigError: a role that is not trainable, two to be swapped that have one adapter, or one adapter to be forked.
    """

    def __init__(self, algorithm: AlgorithmOptions, speakers: Mapping[str, str]) -> None:
        self._speakers = dict(speakers)
        self._roles = frozenset(algorithm.roles or speakers)
        stages = [Stage(roles=frozenset(one.roles), steps=one.steps) for one in algorithm.stages]
        self._stages = Stages(stages=tuple(stages)) if stages else None
        self._staged = frozenset[str]().union(*(stage.roles for stage in stages))
        swap = algorithm.swap
        self._swapped = swap.roles if swap is not None else ()
        for role in self._roles | self._staged | set(self._swapped):
            if role not in speakers:
                raise ConfigError(
                    f"algorithm.roles, .stages or .swap name {role!r}, which the team does not train. "
                    f"{did_you_mean(role, speakers)} Name its own, such as algorithm.roles=[{next(iter(speakers))}]; "
                    "`mas algorithms NAME` says which scenario a preset is made for"
                )
        self._swap = None
        if swap is not None:
            players = tuple(speakers[role] for role in swap.roles)
            if len(set(players)) < len(players):
                raise ConfigError(f"roles {list(swap.roles)} speak through adapters {list(players)}: nothing to swap")
            self._swap = RoleSwap(players=players, every=swap.every)

        self._names = tuple(dict.fromkeys(speakers.values()))
        self._after = algorithm.fork.after if algorithm.fork is not None else 0
        if self._after and len(self._names) < 2:
            raise ConfigError(
                f"algorithm.fork copies one adapter for others, and the team trains {list(self._names)} alone: leave "
                "it out, or choose a team whose roles have adapters of their own"
            )

    @property
    def swaps(self) -> bool:
        """Whether a role ever speaks through another one's adapter."""
        return self._swap is not None or self._after > 0

    def copies(self, step: int) -> tuple[str, ...]:
        """The backbone of a step and the adapters that are to be equal to it when it is done; empty: none is.

        Until the fork all roles speak through the first role's adapter, and the others follow it: whoever plays with
        adapters of a role in these steps plays with the backbone.
        """
        return self._names if step < self._after else ()

    def speaking(self, step: int) -> Mapping[str, str]:
        """Role -> the adapter that it speaks through in a step. `step`: how many are done."""
        if step < self._after:
            return dict.fromkeys(self._speakers, self._names[0])
        if self._swap is None:
            return self._speakers
        return self._speakers | dict(zip(self._swapped, self._swap(step), strict=True))

    def imitating(self) -> Mapping[str, str]:
        """Role -> the adapter that it imitates with before the first step, of all roles that are ever trained."""
        roles = self._roles if self._stages is None else self._staged
        return {role: adapter for role, adapter in self.speaking(0).items() if role in roles}

    def trained(self, step: int) -> Mapping[str, str]:
        """The same of the roles that are trained in it."""
        roles = self._stages(step) if self._stages is not None else self._roles
        return {role: adapter for role, adapter in self.speaking(step).items() if role in roles}
