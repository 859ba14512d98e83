"""What all option models share: their base, numbers, and options that do not all have an effect at once."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Annotated, Any, Self, get_args

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]


class Options(BaseModel):
    """Base of options and of what a team file holds: frozen. Errors are an unknown key, a number that is not finite,
    and `true` or `false` where a number is needed (pydantic would read them as 1 and 0)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _a_bool_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
        bools = [one for one in values if isinstance(one, bool)]
        if bools:
            types = set(_types(cls.model_fields[info.field_name or ""].annotation))
            if bool not in types and types & {int, float}:
                raise ValueError(f"{str(bools[0]).lower()} is not a number; write a number")
        return value


def _types(annotation: Any) -> Iterator[Any]:
    """The types in an annotation, such as float and NoneType of `Share | None`; an option model is one type."""
    parts = get_args(annotation)
    if not parts:
        yield annotation
    for part in parts:
        yield from _types(part)


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
