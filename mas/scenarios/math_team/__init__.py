"""A solver with a calculator and a verifier on generated arithmetic and algebra, with an exact checker."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.config.base import Options
from mas.scenarios.math_team.environment import MathEnvironment, MathReward, MathRules, demonstrations, expert, make
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario


class MathOptions(Options):
    """The dial is `operations` (in one problem) and `numbers` (the largest that is given).

    `calls`: `compact` for the tiny base, digits modulo 10; `json` for models from elsewhere, exact and rational.
    `skill`: share of right answers of the noisy teacher that the tiny base learns from last.
    """

    calls: Literal["compact", "json"] = "compact"
    operations: Annotated[int, Field(ge=2, le=12)] = 2
    numbers: Annotated[int, Field(ge=3, le=999)] = 9
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4

    @model_validator(mode="after")
    def _one_digit(self) -> Self:
        if self.calls == "compact" and self.numbers > 9:
            raise ValueError(f"numbers={self.numbers} has no one-character form: at most 9, or calls=json")
        return self


def build(options: MathOptions) -> FolderScenario:
    """The scenario with these options; its teams write calls as the options say."""
    compact = options.calls == "compact"
    rules = MathRules(compact=compact, operations=options.operations, numbers=options.numbers)
    folder = Path(__file__).parent
    return FolderScenario(
        name="math_team",
        folder=folder if compact else folder / "json",
        options_key=options.model_dump_json(),
        make_environment=partial(MathEnvironment, rules),
        content=partial(_content, rules=rules),
        demonstrate=partial(demonstrations, rules=MathRules(operations=options.operations)),
        skill=options.skill,
        reward=MathReward(),
        expert=expert,
    )


def _content(random: Random, rules: MathRules) -> str:
    return make(random, rules).text


ENTRY = ScenarioEntry(
    MathOptions,
    build,
    "mathematics and code",
    {
        "small": {},
        "medium": {"calls": "json", "operations": 3, "numbers": 20},
        "large": {"calls": "json", "operations": 8, "numbers": 99},
    },
)
