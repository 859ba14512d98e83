"""A user with a hidden goal, a coworker who knows the rest, and an order to fill in."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Literal, Self

import msgspec
from pydantic import Field, model_validator

from mas.config.base import Options
from mas.scenarios.help_desk.environment import DeskEnvironment, demonstrations, expert
from mas.scenarios.help_desk.wording import DeskLetters, DeskRules, DeskWording, Style, Words, make
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario


class DeskOptions(Options):
    """The dial is `slots` of an order, and how difficult people are: `changes`, `delay`, `refusals`, `patience`.

    `style`: people talk in letters, which the tiny base can learn, or in words, for real models. `user`: speaks by
    script, or is the member `user` of the team, a frozen model (`talking`). `changes`: most changes of the user's mind;
    `patience`: bad turns after which he leaves. `delay`, `refusals`: most turns that the coworker lets one wait, and
    most requests that he refuses at first. `skill`: share of right answers of the noisy teacher that the tiny base
    learns from last.
    """

    style: Style = "letters"
    user: Literal["script", "talking"] = "script"
    slots: Annotated[int, Field(ge=2, le=6)] = 3
    changes: Annotated[int, Field(ge=0, le=3)] = 1
    delay: Annotated[int, Field(ge=0, le=3)] = 0
    refusals: Annotated[int, Field(ge=0, le=3)] = 0
    patience: Annotated[int, Field(ge=1, le=9)] = 3
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.5

    @model_validator(mode="after")
    def _letters(self) -> Self:
        most = len(DeskLetters.topics)
        if self.style == "letters" and self.slots > most:
            raise ValueError(f"slots={self.slots} is too many for letters: at most {most}, or style=words")
        return self


def build(options: DeskOptions) -> FolderScenario:
    """The scenario with these options. Tasks and the tiny base are the same whoever speaks for the user."""
    rules = DeskRules(
        slots=options.slots,
        changes=options.changes,
        delay=options.delay,
        refusals=options.refusals,
        patience=options.patience,
        is_talking=options.user == "talking",
    )
    wording: DeskWording = DeskLetters(options.slots) if options.style == "letters" else Words(options.slots)
    folder = Path(__file__).parent / options.style
    return FolderScenario(
        name="help_desk",
        folder=folder / "talking" if rules.is_talking else folder,
        options_key=options.model_dump_json(exclude={"skill", "user"}),
        make_environment=partial(DeskEnvironment, rules, wording),
        content=partial(_content, rules=rules, wording=wording),
        demonstrate=partial(demonstrations, rules=rules),
        skill=options.skill,
        expert=expert,
    )


def _content(random: Random, rules: DeskRules, wording: DeskWording) -> str:
    """What every conversation shows: what is wanted at first, and what the user cannot tell."""
    user = make(random, rules, wording.values).user
    return msgspec.json.encode((user.goal, user.profile.unsure)).decode()


ENTRY = ScenarioEntry(
    DeskOptions,
    build,
    "conversation and feedback",
    {
        "small": {},
        "medium": {"style": "words", "slots": 4, "delay": 1, "refusals": 1},
        "large": {"style": "words", "slots": 6, "changes": 2, "delay": 2, "refusals": 2},
    },
)
