"""A hidden goal that changes: one knows it, the other acts."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Self

from pydantic import Field, model_validator

from mas.config.options import Options
from mas.scenarios.folder import FolderScenario
from mas.scenarios.leader_follower.environment import ColourEnvironment, ColourRules, make
from mas.scenarios.leader_follower.experts import demonstrations, expert
from mas.scenarios.registry import ScenarioEntry


class ColourOptions(Options):
    """The dial is `size`, `blocks` of each of three colours, and `switch`, the chance of a new goal in each turn.

    `quota`: score that solves the task. `max_turns`: None allows `size` turns for each point of it.
    `skill`: share of right answers of the novice that the tiny base learns from last.
    """

    size: Annotated[int, Field(ge=3, le=32)] = 4
    blocks: Annotated[int, Field(ge=1)] = 2
    switch: Annotated[float, Field(ge=0, le=1)] = 0.15
    quota: Annotated[int, Field(ge=1)] = 3
    max_turns: Annotated[int, Field(ge=1)] | None = None
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _room(self) -> Self:
        most = self.size * self.size // 6
        if self.blocks > most:
            raise ValueError(f"blocks={self.blocks} leaves too little room at size={self.size}: at most {most}")
        return self


def build(options: ColourOptions) -> FolderScenario:
    """The scenario with these options."""
    rules = ColourRules(
        size=options.size,
        blocks=options.blocks,
        switch=options.switch,
        quota=options.quota,
        max_turns=options.max_turns or options.size * options.quota,
    )
    return FolderScenario(
        name="leader_follower",
        folder=Path(__file__).parent,
        options_key=options.model_dump_json(),
        make_environment=partial(ColourEnvironment, rules),
        content=partial(_content, rules=rules),
        demonstrate=demonstrations,
        skill=options.skill,
        expert=expert,
    )


def _content(random: Random, rules: ColourRules) -> str:
    state = make(random, rules)
    return f"{state.board.cells}{state.cell}{state.goals}"


ENTRY = ScenarioEntry(
    ColourOptions,
    build,
    "hidden goals",
    {
        "small": {},
        "medium": {"size": 8, "blocks": 4, "switch": 0.08, "quota": 5},
        "large": {"size": 16, "blocks": 12, "switch": 0.04, "quota": 10},
    },
)
