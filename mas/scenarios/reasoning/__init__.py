"""Questions with verifiable answers from reasoning-gym, answered by a team. For real models."""

from functools import partial
from random import Random
from typing import Any

from pydantic import Field, field_validator

from mas.core.errors import ConfigError
from mas.core.options import Options
from mas.scenarios.reasoning.reasoning_gym import GymEnvironment, ask, check_name, check_version, right_answer
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario


class ReasoningOptions(Options):
    """`dataset`: one of reasoning-gym's. `config`: the dataset's own options, as `{max_terms: 3}`; empty: defaults."""

    dataset: str = "chain_sum"
    config: dict[str, Any] = Field(default_factory=dict)

    @field_validator("dataset")
    @classmethod
    def _tested(cls, name: str) -> str:
        try:
            check_name(name)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return name


def build(options: ReasoningOptions) -> FolderScenario:
    """The scenario with these options; reasoning-gym itself is first needed for a task."""
    name, config = options.dataset, options.config
    return FolderScenario(
        __file__,
        options,
        partial(GymEnvironment, name, config),
        partial(_content, name=name, config=config),
        unkeyed=(),
        expert=right_answer,
    )


def _content(random: Random, name: str, config: dict[str, Any]) -> str:
    check_version()
    return str(ask(name, config, random).entry["question"])


ENTRY = ScenarioEntry(
    ReasoningOptions,
    build,
    "reasoning",
    {
        "small": {},
        "medium": {"config": {"max_terms": 10, "max_digits": 6}},
        "large": {"config": {"max_terms": 20, "max_digits": 8}},
    },
    is_demonstrated=False,
)
