"""Buying for somebody from businesses some of which lie: one asks and checks, the other buys."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.config.base import Options
from mas.scenarios.market.environment import MarketEnvironment, demonstrations, expert
from mas.scenarios.market.offers import NAMES, MarketRules, Style, make_market
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario


class MarketOptions(Options):
    """The dial is `businesses`, and how many of them are `manipulators`.

    `style`: proposals are two characters, which the tiny base can learn, or words, for real models. `manipulation`:
    what manipulators do, `mixed`: each any of the four. `skill`: share of right answers of the noisy teacher that the
    tiny base learns from last.
    """

    style: Style = "letters"
    businesses: Annotated[int, Field(ge=2, le=len(NAMES))] = 3
    manipulators: Annotated[int, Field(ge=0)] = 1
    manipulation: Literal["mixed", "false_claim", "reviews", "urgency", "injection"] = "mixed"
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.3

    @model_validator(mode="after")
    def _somebody_is_honest(self) -> Self:
        if self.manipulators >= self.businesses:
            most = self.businesses - 1
            raise ValueError(f"manipulators={self.manipulators}: of {self.businesses} businesses at most {most} may be")
        if self.manipulation != "mixed" and not self.manipulators:
            raise ValueError(f"manipulation={self.manipulation} has no effect with manipulators=0; leave it out")
        return self

    def rules(self, style: Style) -> MarketRules:
        """The market of these options, in this style."""
        return MarketRules(
            style=style,
            businesses=self.businesses,
            manipulators=self.manipulators,
            manipulation=None if self.manipulation == "mixed" else self.manipulation,
        )


def build(options: MarketOptions) -> FolderScenario:
    """The scenario with these options."""
    rules = options.rules(options.style)
    return FolderScenario(
        name="market",
        folder=Path(__file__).parent / options.style,
        options_key=options.model_dump_json(exclude={"skill"}),
        make_environment=partial(MarketEnvironment, rules),
        content=partial(_content, rules=rules),
        demonstrate=partial(demonstrations, make=partial(MarketEnvironment, options.rules("letters"))),
        skill=options.skill,
        expert=expert,
    )


def _content(random: Random, rules: MarketRules) -> str:
    """What the team can see without a check."""
    market = make_market(random, rules)
    return "|".join([market.customer, *(proposal.text for proposal in market.proposals)])


ENTRY = ScenarioEntry(
    MarketOptions,
    build,
    "negotiation",
    {
        "small": {},
        "medium": {"style": "words", "businesses": 4, "manipulators": 2},
        "large": {"style": "words", "businesses": 8, "manipulators": 4},
    },
)
