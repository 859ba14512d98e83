"""Things to share with somebody who wants others: one looks through it, the other speaks."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.config.base import Options
from mas.scenarios.negotiation import deals
from mas.scenarios.negotiation.deals import NAMES, Style, make_problem
from mas.scenarios.negotiation.environment import TalkEnvironment, TalkState, demonstrations, expert
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario

_LETTERS = 3
"""Kinds of things in letters: their packages are one character each."""


class TalkOptions(Options):
    """The dial is `kinds` of things, and `turns`, after which there is no deal.

    `style`: packages are single characters, which the tiny base can learn, or words, for real models. `opponent`: the
    script of the other side; `mixed`: any of the three, so that the team must find out. `skill`: share of right answers
    of the noisy teacher that the tiny base learns from last.
    """

    style: Style = "letters"
    kinds: Annotated[int, Field(ge=2, le=len(NAMES))] = _LETTERS
    turns: Annotated[int, Field(ge=1, le=20)] = 4
    opponent: Literal["conceder", "boulware", "tit_for_tat", "mixed"] = "mixed"
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _one_character(self) -> Self:
        if self.style == "letters" and self.kinds != _LETTERS:
            raise ValueError(f"style=letters has {_LETTERS} kinds of things; for kinds={self.kinds} take style=words")
        return self


def build(options: TalkOptions) -> FolderScenario:
    """The scenario with these options."""
    make = partial(_make, options=options)
    environment = partial(TalkEnvironment, make, options.style, options.turns)
    letters = TalkOptions(turns=options.turns, opponent=options.opponent)
    return FolderScenario(
        name="negotiation",
        folder=Path(__file__).parent / options.style,
        options_key=options.model_dump_json(exclude={"skill"}),
        make_environment=environment,
        content=partial(_content, make=make),
        demonstrate=partial(
            demonstrations, make=partial(TalkEnvironment, partial(_make, options=letters), "letters", options.turns)
        ),
        skill=options.skill,
        expert=expert,
    )


def _make(random: Random, options: TalkOptions) -> TalkState:
    problem = make_problem(random, options.style, options.kinds)
    script = random.choice(deals.SCRIPTS) if options.opponent == "mixed" else options.opponent
    opening = deals.offer(problem, deals.aspiration(script, 0, options.turns, 0))
    return TalkState(problem=problem, script=script, offers=(opening,))


def _content(random: Random, make: partial[TalkState]) -> str:
    """What the team sees before it says anything."""
    state = make(random)
    return f"{state.problem.counts}{state.problem.mine}{state.offers[0]}"


ENTRY = ScenarioEntry(
    TalkOptions,
    build,
    "negotiation",
    {
        "small": {},
        "medium": {"style": "words"},
        "large": {"style": "words", "kinds": 5, "turns": 6},
    },
)
