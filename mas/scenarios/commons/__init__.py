"""A common pool: several harvesters, a stock that regrows, and neighbours who may not care."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.config.base import Options
from mas.scenarios.commons.environment import (
    HARVESTERS,
    NEIGHBOURS,
    CommonsEnvironment,
    CommonsReward,
    LakeRules,
    Style,
    demonstrations,
    expert,
    make,
)
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario


class CommonsOptions(Options):
    """`style`: two boats and single digits, which the tiny base can learn, or three boats and words, for real models.

    The dial is `capacity`, the fish that the lake holds (in digits 8 or 9). `rounds`: seasons. `neighbours`: who else
    fishes there, one of four kinds in each task (`any`) or always the same; `crowd`: how many of them (in digits 1).
    `skill`: share of right answers of the noisy teacher that the tiny base learns from last.
    """

    style: Style = "digits"
    capacity: Annotated[int, Field(ge=8, le=99)] = 9
    rounds: Annotated[int, Field(ge=2, le=12)] = 4
    neighbours: Literal["any", "none", "cooperator", "greedy", "conditional"] = "any"
    crowd: Annotated[int, Field(ge=1, le=5)] = 1
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _digits(self) -> Self:
        if self.style == "digits" and self.capacity > 9:
            raise ValueError(f"capacity={self.capacity} is no digit: at most 9, or style=words")
        if self.style == "digits" and self.crowd > 1:
            raise ValueError(f"crowd={self.crowd} cannot be said in digits: 1, or style=words")
        return self


def build(options: CommonsOptions) -> FolderScenario:
    """The scenario with these options."""
    rules = _rules(options, options.style)
    return FolderScenario(
        name="commons",
        folder=Path(__file__).parent / options.style,
        options_key=options.model_dump_json(exclude={"skill"}),
        make_environment=partial(CommonsEnvironment, rules, options.style),
        content=partial(_content, rules=rules),
        demonstrate=partial(demonstrations, rules=_rules(options, "digits")),
        skill=options.skill,
        reward=CommonsReward(),
        expert=expert,
    )


def _rules(options: CommonsOptions, style: Style) -> LakeRules:
    """A boat takes its part of a full lake, so that the team can empty it in one season."""
    harvesters = HARVESTERS[style]
    capacity = min(options.capacity, 9) if style == "digits" else options.capacity
    return LakeRules(
        harvesters=harvesters,
        capacity=capacity,
        floor=max(2, capacity // 10),
        limit=capacity // len(harvesters),
        rounds=options.rounds,
        kinds=NEIGHBOURS if options.neighbours == "any" else (options.neighbours,),
        crowd=options.crowd,
    )


def _content(random: Random, rules: LakeRules) -> str:
    lake = make(random, rules)
    return f"{lake.stock};{lake.growth};{lake.kind}"


ENTRY = ScenarioEntry(
    CommonsOptions,
    build,
    "social dilemmas",
    {
        "small": {},
        "medium": {"style": "words", "capacity": 30, "rounds": 6},
        "large": {"style": "words", "capacity": 60, "rounds": 10},
    },
)
