"""What all option models share."""

from typing import Annotated

from pydantic import BaseModel, ConfigDict, Field

Positive = Annotated[int, Field(ge=1)]
Count = Annotated[int, Field(ge=0)]
NonNegative = Annotated[float, Field(ge=0)]


class Options(BaseModel):
    """Base of all options: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
