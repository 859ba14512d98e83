"""Self-play of a proposer and its solvers: questions that must be valid, and as hard as they can be solved."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

from pydantic import Field

from mas.config.options import Options
from mas.scenarios.folder import FolderScenario
from mas.scenarios.propose.environment import ProposeEnvironment, Source
from mas.scenarios.propose.experts import demonstrations, expert
from mas.scenarios.propose.questions import content_of, make
from mas.scenarios.registry import ScenarioEntry


class ProposeOptions(Options):
    """`source`: who asks in training, the proposer or the world.

    `asked`: how many questions were asked before of the same documents, which no proposal may repeat. `skill`: share of
    right answers of the novice that the tiny base learns from last.
    """

    source: Source = "proposer"
    asked: Annotated[int, Field(ge=0, le=2)] = 1
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.3


def build(options: ProposeOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        name="propose",
        folder=Path(__file__).parent / "letters",
        options_key=options.model_dump_json(exclude={"source"}),
        make_environment=partial(ProposeEnvironment, options.source, options.asked),
        content=partial(_content, asked=options.asked),
        demonstrate=partial(demonstrations, asked=options.asked),
        skill=options.skill,
        expert=expert,
    )


def _content(random: Random, asked: int) -> str:
    return content_of(make(random, asked))


ENTRY = ScenarioEntry(ProposeOptions, build, "self-play")
