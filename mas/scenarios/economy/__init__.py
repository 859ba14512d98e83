"""Taxes and work: the team is the government, or the workers."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.config.base import Options
from mas.core.environment import Environment
from mas.scenarios.economy.environment import (
    MEMBERS,
    Government,
    Style,
    WorkerReward,
    Workers,
    demonstrate_government,
    demonstrate_workers,
    drawn_people,
    employed,
    expert,
)
from mas.scenarios.economy.taxes import TaxRules
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, NoOwnTerms

Side = Literal["government", "worker"]


class EconomyOptions(Options):
    """`side`: the team sets the tax rate and everybody answers with the best hours, or its members are the workers.

    `style`: single digits, which the tiny base can learn, or words, for real models. The dial is `people` (in digits at
    most 5). `law`: the rate that workers live under is any, or the one of the highest welfare; None: any, and nothing
    where the team governs. `skill`: share of right answers of the noisy teacher that the tiny base learns from last.
    """

    side: Side = "government"
    style: Style = "digits"
    people: Annotated[int, Field(ge=3, le=24)] = 4
    law: Literal["drawn", "optimal"] | None = None
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.style == "digits" and self.people > 5:
            raise ValueError(f"people={self.people} are too many for digits: at most 5, or style=words")
        if self.law is not None and self.side == "government":
            raise ValueError(f"law={self.law} is for side=worker: a government makes its own")
        return self


def build(options: EconomyOptions) -> FolderScenario:
    """The scenario with these options."""
    rules = _rules(options, options.style)
    taught = rules if options.style == "digits" else _rules(EconomyOptions(side=options.side), "digits")
    governs = options.side == "government"
    demonstrate = demonstrate_government if governs else demonstrate_workers
    return FolderScenario(
        name="economy",
        folder=Path(__file__).parent / f"{options.side}_{options.style}",
        options_key=options.model_dump_json(exclude={"skill"}),
        make_environment=partial(_environment, options, rules),
        content=partial(_content, options=options, rules=rules),
        demonstrate=partial(demonstrate, rules=taught),
        skill=options.skill,
        reward=NoOwnTerms() if governs else WorkerReward(),
        expert=expert,
    )


def _environment(options: EconomyOptions, rules: TaxRules) -> Environment:
    if options.side == "government":
        return Government(rules, options.style)
    return Workers(rules, options.style, options.law == "optimal")


def _rules(options: EconomyOptions, style: Style) -> TaxRules:
    """Members' wages are so high that it pays to work an hour at any rate."""
    works = options.side == "worker"
    if style == "digits":
        return TaxRules(
            people=options.people, hours=9, low=2 if works else 1, top=9, steps=10, rates=10, eases=5, unit=5
        )
    return TaxRules(
        people=options.people, hours=40, low=12 if works else 5, top=60, steps=100, rates=91, eases=10, unit=20
    )


def _content(random: Random, options: EconomyOptions, rules: TaxRules) -> str:
    """What the team sees together."""
    if options.side == "government":
        economy = drawn_people(random, rules)
        return f"{economy.wages};{economy.ease}"
    state = employed(random, rules, options.law == "optimal")
    members = len(MEMBERS[options.style])
    return f"{state.economy.wages[:members]};{state.economy.ease};{state.law}"


ENTRY = ScenarioEntry(
    EconomyOptions,
    build,
    "social dilemmas",
    {"small": {}, "medium": {"style": "words", "people": 6}, "large": {"style": "words", "people": 16}},
)
