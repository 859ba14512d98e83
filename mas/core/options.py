"""What all option models share: their base, numbers, options that do not all have an effect at once, and the model of a
place in them."""

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from functools import cache
from typing import Annotated, Any, Self, get_args, get_origin

from pydantic import BaseModel, ConfigDict, Field, ValidationInfo, field_validator, model_validator

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0)]
Share = Annotated[float, Field(ge=0, le=1)]

_PLAIN = frozenset({str, int, float, type(None)})
"""Types of most values, none of which is a bool."""


class Options(BaseModel):
    """Base of options and of what a team file holds: frozen. Errors are an unknown key, a number that is not finite,
    and `true` or `false` where a number is needed (pydantic would read them as 1 and 0)."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    @field_validator("*", mode="before")
    @classmethod
    def _a_bool_is_no_number(cls, value: Any, info: ValidationInfo) -> Any:
        if type(value) in _PLAIN:
            return value
        values = value.values() if isinstance(value, dict) else value if isinstance(value, list | tuple) else [value]
        bools = [one for one in values if isinstance(one, bool)]
        if bools and _takes_numbers(cls, info.field_name or ""):
            raise ValueError(f"{str(bools[0]).lower()} is not a number; write a number")
        return value


@cache
def _takes_numbers(model: type[BaseModel], field: str) -> bool:
    """Whether a field takes numbers, and neither true nor false."""
    types = set(_types(model.model_fields[field].annotation))
    return bool not in types and not types.isdisjoint({int, float})


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


def model_at(place: Sequence[int | str], root: type[BaseModel]) -> type[BaseModel]:
    """The option model of a section; of one entry of a mapping or a list, such as `peers.NAME`, that of its entries."""
    model, entries = root, None
    for part in place:
        field = None if entries is not None else model.model_fields.get(str(part))
        found: Any = entries if field is None else field.annotation
        kinds, origin = get_args(found), get_origin(found)
        entries = kinds[1] if origin is dict else kinds[0] if origin is tuple else None
        if section := section_in(found):
            model = section
        elif entries is None:
            break
    return model


def section_in(annotation: Any) -> type[BaseModel] | None:
    """The option model of a key that holds one, or may hold one; None: it never does."""
    if get_origin(annotation) in (dict, tuple):
        return None
    possible = [one for one in (annotation, *get_args(annotation)) if isinstance(one, type)]
    return next((one for one in possible if issubclass(one, BaseModel)), None)
