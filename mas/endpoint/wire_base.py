"""The base of all that is read from a client."""

from pydantic import BaseModel, ConfigDict


class Wire(BaseModel):
    """Frozen, no unknown field, no value taken for one of another type."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)
