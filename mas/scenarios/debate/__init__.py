"""Two defend an answer each, and a judge who has seen no evidence decides."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Self

from pydantic import Field, model_validator

from mas.config.options import Options
from mas.scenarios.debate.case import MOST_DIGITS, MOST_FACTS, Style, make
from mas.scenarios.debate.environment import DebateEnvironment, Judge
from mas.scenarios.debate.experts import demonstrations, expert
from mas.scenarios.debate.reward import DebateReward
from mas.scenarios.folder import FolderScenario
from mas.scenarios.registry import ScenarioEntry


class DebateOptions(Options):
    """`judge`: who decides. With `role` a member of the team, who hears only what is said; with `rule` the world, which
    holds it against the evidence.

    `style`: facts and statements are digits, which the tiny base can learn; or sentences, for real models. `facts`: how
    many there are on each side, at most 5 in letters. `skill`: share of right answers of the novice that the tiny base
    learns from last.
    """

    judge: Judge = "role"
    style: Style = "letters"
    facts: Annotated[int, Field(ge=1, le=MOST_FACTS)] = 3
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _has_the_facts(self) -> Self:
        if self.style == "letters" and self.facts > MOST_DIGITS:
            raise ValueError(
                f"facts={self.facts}: there are {MOST_DIGITS} digits for each side, use style=words for more"
            )
        return self


def build(options: DebateOptions) -> FolderScenario:
    """The scenario with these options."""
    make_case = partial(make, style=options.style, facts=options.facts)
    return FolderScenario(
        name="debate",
        folder=Path(__file__).parent / options.style / options.judge,
        options_key=options.model_dump_json(exclude={"skill", "judge"}),
        make_environment=partial(DebateEnvironment, make_case, options.judge),
        content=partial(_content, style=options.style, facts=options.facts),
        demonstrate=partial(demonstrations, facts=min(options.facts, MOST_DIGITS)),
        skill=options.skill,
        reward=DebateReward(),
        expert=expert,
    )


def _content(random: Random, style: Style, facts: int) -> str:
    """The facts of both sides; neither their order nor which side is a makes another task."""
    hands = (
        side.evidence if style == "letters" else side.evidence.split("\n") for side in make(random, style, facts).sides
    )
    return "\n".join(sorted("\n".join(sorted(hand)) for hand in hands))


ENTRY = ScenarioEntry(
    DebateOptions,
    build,
    "discussion",
    {"small": {}, "medium": {"style": "words"}, "large": {"style": "words", "facts": 8}},
)
