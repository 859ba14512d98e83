"""A planner, a caller and a summariser answer questions with tools that the environment carries out."""

from functools import partial
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.core.options import Options
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.tool_use.environment import ToolEnvironment, ToolReward, demonstrations, expert
from mas.scenarios.tool_use.tasks import ITEMS, KINDS, STORE, Kind, ToolRules
from mas.scenarios.world import FolderScenario


class ToolUseOptions(Options):
    """The dial is `operations` (most in one task), `items` (rows of the table) and `numbers` (the largest).

    `calls`: `compact` for the tiny base, three characters and results of one digit; `json` for models from elsewhere;
    `words` (`7 * 12`, `weight of the bolt`) for small models that chat.
    `kinds`: of tasks, `calculate` (no table is needed), `look_up`, `both` (one after the other), or all three; or
    `store`: both, and the result is to be stored in the table (`calls=json`).
    `skill`: share of right answers of the noisy teacher that the tiny base learns from last.
    """

    calls: Literal["compact", "json", "words"] = "compact"
    operations: Annotated[int, Field(ge=1, le=5)] = 1
    items: Annotated[int, Field(ge=1, le=len(ITEMS))] = 3
    numbers: Annotated[int, Field(ge=3, le=999)] = 9
    kinds: Literal["all", Kind] = "all"
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _fits(self) -> Self:
        if self.calls == "compact" and self.numbers > 9:
            raise ValueError(f"numbers={self.numbers} has no one-character form: at most 9, or calls=json or words")
        if self.kinds == "store" and self.calls != "json":
            raise ValueError(f"kinds=store has a tool that calls={self.calls} cannot write: set calls=json")
        return self


def build(options: ToolUseOptions) -> FolderScenario:
    """The scenario with these options; its teams write calls as the options say."""
    rules = ToolRules(
        compact=options.calls == "compact",
        words=options.calls == "words",
        operations=options.operations,
        items=options.items,
        numbers=options.numbers,
        kinds=KINDS if options.kinds == "all" else (options.kinds,),
    )
    return FolderScenario(
        __file__,
        options,
        partial(ToolEnvironment, rules),
        demonstrate=partial(demonstrations, rules=ToolRules(operations=options.operations, items=options.items)),
        inner="" if rules.compact else STORE if rules.stores else options.calls,
        unkeyed=("kinds",),  # the tiny base is made of all
        reward=ToolReward(),
        expert=expert,
    )


ENTRY = ScenarioEntry(
    ToolUseOptions,
    build,
    "tool use",
    {
        "small": {},
        "medium": {"calls": "json", "operations": 2, "items": 4, "numbers": 20},
        "large": {"calls": "json", "operations": 4, "items": 8, "numbers": 99},
    },
)
