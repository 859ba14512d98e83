"""Options of what those earn who pose tasks to others."""

from typing import Annotated, Literal

from pydantic import Field

from mas.config.base import NonNegative, Selective


class ProposerOptions(Selective):
    """What a `role` that poses tasks earns by them, from the outcomes (0 to 1) of the others' attempts in its episode,
    which are what these were paid as the team's `term`.

    `failure`: 1 - p, p their mean. `intermediate`: 4 (`left` + p)(`right` - p) for 0 < p < 1, else 0. `invalid` where
    no other role spoke, as the task was not accepted.
    """

    role: str = "proposer"
    term: str = "right"
    mode: Literal["failure", "intermediate"] = "failure"
    left: Annotated[NonNegative, Field(allow_inf_nan=False)] = 0.0
    right: Annotated[float, Field(allow_inf_nan=False)] = 1.0
    invalid: Annotated[float, Field(le=0, allow_inf_nan=False)] = 0.0

    def why_idle(self, name: str) -> str | None:
        """Why an option has no effect beside the others; None: it has one."""
        return "mode=failure pays 1 - p" if name in ("left", "right") and self.mode == "failure" else None
