"""A small game of hidden roles: find out who lies, or lie so that nobody does."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.config.base import Options
from mas.scenarios.imposter.environment import BeliefReward, ImposterEnvironment, demonstrations, expert, shown
from mas.scenarios.imposter.rules import ImposterRules
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario


class ImposterOptions(Options):
    """`side`: whom the team plays, one of the crew or the imposter. The dial is `players`; letters are for four.

    `rounds`: after which the imposter has won. `cunning`: how often the scripted imposter claims a room that nobody
    claimed before it. `style`: letters, which the tiny base can learn, or words, for real models. `skill`: share of
    right answers of the noisy teacher that the tiny base learns from last.
    """

    side: Literal["crew", "imposter"] = "crew"
    style: Literal["letters", "words"] = "letters"
    players: Annotated[int, Field(ge=4, le=8)] = 4
    rounds: Annotated[int, Field(ge=1, le=9)] = 2
    cunning: Annotated[float, Field(ge=0, le=1)] = 0.0
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _letters_are_for_four(self) -> Self:
        if self.style == "letters" and self.players != 4:
            raise ValueError(f"players={self.players}: letters are for 4, set style=words")
        return self


def build(options: ImposterOptions) -> FolderScenario:
    """The scenario with these options."""
    rules = ImposterRules(side=options.side, players=options.players, rounds=options.rounds, cunning=options.cunning)
    return FolderScenario(
        name="imposter",
        folder=Path(__file__).parent / f"{options.side}_{options.style}",
        options_key=options.model_dump_json(exclude={"skill"}),
        make_environment=partial(ImposterEnvironment, rules, options.style),
        content=partial(shown, rules=rules, style=options.style),
        demonstrate=partial(demonstrations, rules=ImposterRules(side=options.side, rounds=options.rounds)),
        skill=options.skill,
        reward=BeliefReward(),
        expert=expert,
    )


ENTRY = ScenarioEntry(
    ImposterOptions,
    build,
    "hidden roles",
    {
        "small": {},
        "medium": {"style": "words", "players": 5, "rounds": 3, "cunning": 0.5},
        "large": {"style": "words", "players": 8, "rounds": 5, "cunning": 0.9},
    },
)
