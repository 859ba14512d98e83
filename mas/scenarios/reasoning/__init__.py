"""Questions with verifiable answers from reasoning-gym, answered by a team. For real models."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Any

from pydantic import Field, field_validator

from mas.config.base import Options
from mas.core.environment import Environment
from mas.core.errors import ConfigError
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario


class ReasoningOptions(Options):
    """`dataset`: one of reasoning-gym's. `config`: the dataset's own options, as `{max_terms: 3}`; empty: defaults."""

    dataset: str = "chain_sum"
    config: dict[str, Any] = Field(default_factory=dict)

    @field_validator("dataset")
    @classmethod
    def _tested(cls, name: str) -> str:
        # Here, not above: the bridge imports numpy, which `mas --help` does without.
        from mas.scenarios.reasoning.reasoning_gym import check_name

        try:
            check_name(name)
        except ConfigError as error:
            raise ValueError(str(error)) from error
        return name


def build(options: ReasoningOptions) -> FolderScenario:
    """The scenario with these options; reasoning-gym itself is first needed for a task."""
    from mas.scenarios.reasoning.reasoning_gym import right_answer

    name, config = options.dataset, options.config
    return FolderScenario(
        name="reasoning",
        folder=Path(__file__).parent,
        options_key=options.model_dump_json(),
        make_environment=partial(_environment, name, config),
        content=partial(_content, name=name, config=config),
        expert=right_answer,
    )


def _environment(name: str, config: dict[str, Any]) -> Environment:
    from mas.scenarios.reasoning.reasoning_gym import GymEnvironment

    return GymEnvironment(name, config)


def _content(random: Random, name: str, config: dict[str, Any]) -> str:
    from mas.scenarios.reasoning.reasoning_gym import ask, check_version

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
