"""Options of rewards that come after turns were sampled."""

from typing import Annotated

from pydantic import Field

from mas.config.base import Count, Options


class LateOptions(Options):
    """Own terms that a `judge` pays by turn id, after the turns were sampled and before they are compared.

    `judge`: `pattern` pays 1 for a text in which the term's regular expression of `asks` is found, else 0; `base` asks
    the run's own base LLM the term's question of `asks`, and the name of a peer (`peers.NAME.url`) its model: the first
    number from 0 to 10 in the answer, by 10; or a name among the entry points `mas.judges` of installed packages, or
    one given in Python. `terms`: name -> what it counts as where no answer comes.
    A step waits `wait_s` seconds for answers. `steps`: how many further steps a group with missing answers waits, to be
    trained in the step in which they are complete; 0: what is missing then has its default at once.
    """

    judge: Annotated[str, Field(min_length=1)]
    terms: Annotated[dict[str, Annotated[float, Field(allow_inf_nan=False)]], Field(min_length=1)]
    asks: dict[str, Annotated[str, Field(min_length=1)]] = Field(default_factory=dict)
    wait_s: Annotated[float, Field(gt=0)] = 60.0
    steps: Count = 0
