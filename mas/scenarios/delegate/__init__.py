"""Questions in parts: a planner asks, workers search, a composer answers."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

from pydantic import Field

from mas.config.options import Options
from mas.scenarios.delegate.cases import Style, content_of, make
from mas.scenarios.delegate.environment import DelegateEnvironment
from mas.scenarios.delegate.experts import demonstrations, expert
from mas.scenarios.delegate.reward import DelegateReward
from mas.scenarios.folder import FolderScenario
from mas.scenarios.registry import ScenarioEntry


class DelegateOptions(Options):
    """`style`: two digits to look up, which the tiny base can learn, or sentences, for real models.

    `parts`: in words, how many amounts the answer takes. `skill`: share of right answers of the novice that the tiny
    base learns from last.
    """

    style: Style = "letters"
    parts: Annotated[int, Field(ge=2, le=8)] = 2
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.5


def build(options: DelegateOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        name="delegate",
        folder=Path(__file__).parent / options.style,
        options_key=options.model_dump_json(exclude={"skill"}),
        make_environment=partial(DelegateEnvironment, options.style, options.parts),
        content=partial(_content, style=options.style, parts=options.parts),
        demonstrate=demonstrations,
        skill=options.skill,
        reward=DelegateReward(),
        expert=expert,
    )


def _content(random: Random, style: Style, parts: int) -> str:
    return content_of(make(random, style, parts))


ENTRY = ScenarioEntry(
    DelegateOptions,
    build,
    "tool use",
    {"small": {}, "medium": {"style": "words"}, "large": {"style": "words", "parts": 5}},
)
