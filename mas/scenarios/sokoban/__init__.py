"""Sokoban for three roles, with private information split over them."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Self

from pydantic import Field, model_validator

from mas.config.base import Options
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.sokoban.environment import SokobanEnvironment, SokobanReward, SokobanRules, demonstrations, expert
from mas.scenarios.sokoban.level import Level, make_level
from mas.scenarios.world import FolderScenario


class SokobanOptions(Options):
    """The dial is `size`, `boxes`, `walls` and `pulls`: a level is made by pulling boxes so often from their targets.

    `max_turns` None allows 6 turns per row and box.
    `skill`: share of right answers of the noisy teacher that the tiny base learns from last.
    """

    size: Annotated[int, Field(ge=4, le=10)] = 4
    boxes: Annotated[int, Field(ge=1, le=4)] = 1
    walls: Annotated[int, Field(ge=0)] = 0
    pulls: Annotated[int, Field(ge=1, le=40)] = 2
    max_turns: Annotated[int, Field(ge=1)] | None = None
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.5

    @model_validator(mode="after")
    def _room(self) -> Self:
        most = {"walls": self.size * self.size // 6, "boxes": self.size // 2}
        for key, limit in most.items():
            if getattr(self, key) > limit:
                raise ValueError(
                    f"{key}={getattr(self, key)} leaves too little room at size={self.size}: at most {limit}"
                )
        if self.pulls < self.boxes:
            raise ValueError(
                f"pulls={self.pulls} cannot move boxes={self.boxes} from their targets: at least that many"
            )
        return self


def build(options: SokobanOptions) -> FolderScenario:
    """The scenario with these options."""
    make = partial(make_level, size=options.size, boxes=options.boxes, walls=options.walls, pulls=options.pulls)
    turns = options.max_turns or 6 * options.size * options.boxes
    return FolderScenario(
        name="sokoban",
        folder=Path(__file__).parent,
        options_key=options.model_dump_json(),
        make_environment=partial(SokobanEnvironment, SokobanRules(max_turns=turns), make),
        content=partial(_content, make=make),
        demonstrate=partial(demonstrations, make=make),
        skill=options.skill,
        reward=SokobanReward(),
        expert=expert,
    )


def _content(random: Random, make: Callable[[Random], Level]) -> str:
    level = make(random)
    return f"{level.grid.walls}{level.targets}{level.boxes}{level.cell}"


ENTRY = ScenarioEntry(
    SokobanOptions,
    build,
    "cooperative planning",
    {
        "small": {},
        "medium": {"size": 6, "boxes": 2, "walls": 4, "pulls": 8},
        "large": {"size": 8, "boxes": 3, "walls": 8, "pulls": 16},
    },
)
