"""Plans of tool calls that are carried out step by step, and revised where a step fails."""

from functools import partial
from typing import Annotated

from pydantic import Field

from mas.core.options import Options
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.tool_use.tasks import ITEMS, ToolRules
from mas.scenarios.workflow.environment import WorkEnvironment, WorkReward, content_of, demonstrations, expert, make
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
        __file__,
        options,
        partial(WorkEnvironment, rules),
        lambda random: content_of(make(random, rules), rules),
        partial(demonstrations, rules=rules),
        reward=WorkReward(),
        expert=expert,
    )


ENTRY = ScenarioEntry(
    WorkOptions,
    build,
    "tool use",
    {"small": {}, "medium": {"operations": 2, "items": 4}, "large": {"operations": 4, "items": 8}},
)
