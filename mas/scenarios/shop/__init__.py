"""A customer knows which thing it wants, a seller knows the prices: plain words, for pretrained models."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

from pydantic import Field

from mas.config.options import Options
from mas.core.errors import ConfigError
from mas.scenarios.folder import FolderScenario
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.shop import environment


class ShopOptions(Options):
    """`offered`: things on offer."""

    offered: Annotated[int, Field(ge=2, le=9)] = environment.OFFERED


def build(options: ShopOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        name="shop",
        folder=Path(__file__).parent,
        options_key=options.model_dump_json(),
        make_environment=partial(environment.ShopEnvironment, options.offered),
        content=partial(environment.content, offered=options.offered),
        demonstrate=_demonstrations,
        skill=0.0,
        expert=environment.expert,
    )


def _demonstrations(random: Random, skill: float) -> Iterator[tuple[str, str]]:
    raise ConfigError(
        "scenario 'shop' has no demonstrations: it is in words, which the tiny base cannot read. "
        "Name a model that can, such as model=smollm2"
    )


ENTRY = ScenarioEntry(
    ShopOptions,
    build,
    "communication",
    {"small": {}, "medium": {"offered": 6}, "large": {"offered": 9}},
    is_demonstrated=False,
)
