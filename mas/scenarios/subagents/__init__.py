"""A planner calls sub-agents over several turns, reads their reports and answers."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

from pydantic import Field

from mas.config.options import Options
from mas.scenarios.delegate.cases import content_of, make
from mas.scenarios.folder import FolderScenario
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.subagents.environment import CallEnvironment
from mas.scenarios.subagents.experts import demonstrations, expert
from mas.scenarios.subagents.reward import CallReward


class CallOptions(Options):
    """`spare`: team turns beyond two calls and the answer. `skill`: share of right answers of the novice that the tiny
    base learns from last."""

    spare: Annotated[int, Field(ge=0, le=5)] = 1
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.75


def build(options: CallOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        name="subagents",
        folder=Path(__file__).parent,
        options_key=options.model_dump_json(exclude={"skill"}),
        make_environment=partial(CallEnvironment, options.spare),
        content=_content,
        demonstrate=demonstrations,
        skill=options.skill,
        reward=CallReward(),
        expert=expert,
    )


def _content(random: Random) -> str:
    return content_of(make(random, "letters", 2))


ENTRY = ScenarioEntry(
    CallOptions,
    build,
    "tool use",
    {"small": {}, "medium": {"spare": 0}},
)
