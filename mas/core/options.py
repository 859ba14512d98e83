"""What all option models share."""

from pydantic import BaseModel, ConfigDict


class Options(BaseModel):
    """Base of options and of what a team file holds: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")
