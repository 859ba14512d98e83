"""Grid worlds for all four roles, with private information split over them."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Self

from pydantic import Field, model_validator

from mas.config.options import Options
from mas.scenarios.folder import FolderScenario
from mas.scenarios.plan_path.environment import PathEnvironment, PathRules, Style
from mas.scenarios.plan_path.experts import demonstrations, expert
from mas.scenarios.plan_path.grid import make_grid
from mas.scenarios.plan_path.reward import PathReward
from mas.scenarios.registry import ScenarioEntry


class PathOptions(Options):
    """The dial is `size` and `walls`; `max_turns` None allows 3 turns per row.

    `style`: moves are letters, which the tiny base can learn, or words, for models that chat.
    `oracle` lets the shortest path into the reward (off: distance as if there were no walls).
    `skill`: share of right answers of the novice that the tiny base learns from last.
    """

    size: Annotated[int, Field(ge=3, le=10)] = 4
    walls: Annotated[int, Field(ge=0)] = 3
    max_turns: Annotated[int, Field(ge=1)] | None = None
    oracle: bool = False
    style: Style = "letters"
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.25

    @model_validator(mode="after")
    def _room(self) -> Self:
        most = self.size * self.size // 4
        if self.walls > most:
            raise ValueError(f"walls={self.walls} leaves too little room at size={self.size}: at most {most}")
        return self


def build(options: PathOptions) -> FolderScenario:
    """The scenario with these options."""
    size, walls = options.size, options.walls
    rules = PathRules(size=size, walls=walls, max_turns=options.max_turns or 3 * size, oracle=options.oracle)
    folder = Path(__file__).parent
    return FolderScenario(
        name="plan_path",
        folder=folder / "words" if options.style == "words" else folder,
        options_key=options.model_dump_json(exclude={"style"}),
        make_environment=partial(PathEnvironment, rules, options.style),
        content=partial(_content, size=size, walls=walls),
        demonstrate=partial(demonstrations, size=size, walls=walls),
        skill=options.skill,
        reward=PathReward(),
        expert=expert,
    )


def _content(random: Random, size: int, walls: int) -> str:
    grid, start, goal = make_grid(random, size, walls)
    return f"{grid.walls}{start}{goal}"


ENTRY = ScenarioEntry(
    PathOptions,
    build,
    "cooperative planning",
    {"small": {}, "medium": {"size": 6, "walls": 7}, "large": {"size": 10, "walls": 20}},
)
