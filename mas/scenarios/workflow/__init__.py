"""Plans of tool calls that are carried out step by step, and revised where a step fails."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

from pydantic import Field

from mas.config.base import Options
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.tool_use.tasks import ITEMS, ToolRules
from mas.scenarios.workflow.environment import WorkEnvironment, WorkReward, demonstrations, expert
from mas.scenarios.workflow.jobs import content_of, make
from mas.scenarios.world import FolderScenario


class WorkOptions(Options):
    """The dial is `operations` (most in one job) and `items` (rows of the table).

    `skill`: share of right answers of the noisy teacher that the tiny base learns from last.
    """

    operations: Annotated[int, Field(ge=1, le=5)] = 1
    items: Annotated[int, Field(ge=1, le=len(ITEMS))] = 3
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4


def build(options: WorkOptions) -> FolderScenario:
    """The scenario with these options."""
    rules = ToolRules(operations=options.operations, items=options.items)
    return FolderScenario(
        name="workflow",
        folder=Path(__file__).parent,
        options_key=options.model_dump_json(exclude={"skill"}),
        make_environment=partial(WorkEnvironment, rules),
        content=partial(_content, rules=rules),
        demonstrate=partial(demonstrations, rules=rules),
        skill=options.skill,
        reward=WorkReward(),
        expert=expert,
    )


def _content(random: Random, rules: ToolRules) -> str:
    return content_of(make(random, rules), rules)


ENTRY = ScenarioEntry(
    WorkOptions,
    build,
    "tool use",
    {"small": {}, "medium": {"operations": 2, "items": 4}, "large": {"operations": 4, "items": 8}},
)
