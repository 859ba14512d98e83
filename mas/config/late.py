"""Options of rewards that come after turns were sampled."""

from typing import Annotated

from pydantic import Field

from mas.config.base import Options


class LateOptions(Options):
    """Own terms that a `judge` pays by turn id, after the turns were sampled and before they are compared.

    `judge`: a name among the entry points `mas.judges` of installed packages, or given in Python. `terms`: name -> what
    it counts as where no answer comes within `wait_s` seconds.
    """

    judge: Annotated[str, Field(min_length=1)]
    terms: Annotated[dict[str, Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=1)]
    wait_s: Annotated[float, Field(gt=0)] = 60.0
