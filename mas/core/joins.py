"""How an agent with several incoming branches waits, as data."""

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_serializer, model_validator


class JoinSpec(BaseModel):
    """How an agent with several branches waits. Edges of one source are one branch. Written `all`, `any`, `2`,
    `quorum`, or as a mapping.

    Attributes:
        need: `all`: until every branch is decided; `any`: for the first live one; a number k: for the k-th live one;
            `quorum`: until the live ones are more than half of those that are not dead.
        unmet: what a number that cannot be reached any more, or was not in time, means: `fire` speaks with what has
            come, once the other branches are decided; `skip` does not speak. Nothing live never speaks.
        timeout_s: seconds from the first live branch, after which it waits no longer; None: no limit.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")
    need: int | str = "all"
    unmet: Literal["fire", "skip"] = "fire"
    timeout_s: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None

    @field_validator("need", mode="before")
    @classmethod
    def _possible(cls, value: object) -> object:
        if value in ("all", "any", "quorum") or (isinstance(value, int) and value is not True and value >= 1):
            return value
        raise ValueError(f"need is {value!r}; possible: 'all', 'any', 'quorum', or a number of branches from 1")

    @model_validator(mode="after")
    def _has_effect(self) -> Self:
        if "unmet" in self.model_fields_set and not (isinstance(self.need, int) and self.need > 1):
            raise ValueError(f"unmet: {self.unmet} has no effect beside need: {self.need}; it needs a number above 1")
        return self

    @model_serializer
    def _short(self) -> int | str | dict[str, int | str | float]:
        if self.timeout_s is None and self.unmet == "fire":
            return self.need
        set_here: dict[str, int | str | float] = {"need": self.need}
        if self.unmet != "fire":
            set_here["unmet"] = self.unmet
        return set_here if self.timeout_s is None else set_here | {"timeout_s": self.timeout_s}


def parse_join(value: object) -> object:
    """The short form as a mapping."""
    return value if isinstance(value, Mapping | JoinSpec) else {"need": value}


ALL = JoinSpec()
"""How an agent waits that `joins` does not name."""
