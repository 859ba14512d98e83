"""Options of a reward model that is trained beside the policy."""

from typing import Annotated, Literal

from pydantic import Field

from mas.config.base import NonNegative, Positive, Selective


class RewardModelOptions(Selective):
    """In each step it learns which episodes succeeded, then says what each of their turns is paid.

    `kind`: `progress`, an estimate of each turn's share in the outcome (1 for a success, else 0), to which the shares
    add up; or `implicit`, `beta` x log(phi / policy) of the turn's tokens, where phi prefers successes to failures of
    one group, by the `pooling` of their turns. Either is an adapter like the policy's, never published.
    `bound`: `clip` leaves min(r - `eta`, 0) of each turn, `delta` what it is above the turn after it, `both` the one
    and then the other. `grounded` is added where an output parsed and the team's action was legal, and at the end.
    `joins`: the own term `model` is `added` to the others, is paid `alone`, or no reward has it and only
    `advantage.step.value=model` reads it (`step`).
    `lr` falls as the learner's does, `epochs` are passes over the whole batch; all else is the learner's.
    """

    kind: Literal["progress", "implicit"]
    joins: Literal["added", "alone", "step"] = "added"
    bound: Literal["none", "clip", "delta", "both"] = "none"
    eta: NonNegative = 0.0
    grounded: NonNegative = 0.0
    beta: Annotated[float, Field(gt=0)] = 0.05
    pooling: Literal["sum", "mean"] = "sum"
    lr: Annotated[float, Field(gt=0)] = 3e-3
    epochs: Positive = 4

    def why_idle(self, name: str) -> str | None:
        """Why an option has no effect beside the others; None: it has one."""
        if name in ("beta", "pooling") and self.kind != "implicit":
            return "only kind=implicit has it"
        if name == "eta" and self.bound not in ("clip", "both"):
            return "only bound=clip and bound=both take it off"
        return None
