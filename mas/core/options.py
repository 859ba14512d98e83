"""What all option models share: their base, numbers, and options that do not all have an effect at once."""

from abc import abstractmethod
from typing import Annotated, Any, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator


def _refuse_bool(value: Any) -> Any:
    """Refuse `true` and `false` where a number is needed; pydantic would read them as 1 and 0."""
    if isinstance(value, bool):
        raise ValueError(f"{str(value).lower()} is not a number; write a number")
    return value


Positive = Annotated[int, BeforeValidator(_refuse_bool), Field(ge=1)]
Count = Annotated[int, BeforeValidator(_refuse_bool), Field(ge=0)]
NonNegative = Annotated[float, BeforeValidator(_refuse_bool), Field(ge=0)]
Share = Annotated[float, BeforeValidator(_refuse_bool), Field(ge=0, le=1)]


class Options(BaseModel):
    """Base of options and of what a team file holds: frozen, and an unknown key and a number that is not finite are
    errors."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)


class Selective(Options):
    """Options that do not all have an effect at once. One without any is refused, unless it is the default written out:
    a stored configuration names every key."""

    @abstractmethod
    def unused_reason(self, name: str) -> str | None:
        """Why an option has no effect beside the others; None: it has one."""

    @model_validator(mode="after")
    def _nothing_is_idle(self) -> Self:
        for name in sorted(self.model_fields_set):
            value = getattr(self, name)
            reason = self.unused_reason(name) if value != type(self).model_fields[name].default else None
            if reason is not None:
                raise ValueError(f"{name}={value} has no effect here: {reason}; leave {name} out")
        return self
