"""A coder writes a function, a tester a test of it, both at once, and hidden tests decide."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from mas.config.base import Options
from mas.scenarios.code_team.environment import CodeEnvironment, CodeReward, demonstrations, expert
from mas.scenarios.code_team.language import Compact, Language
from mas.scenarios.code_team.worded import Worded
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario


class CodeOptions(Options):
    """The dial is `steps`: how many a function has, one after another.

    `style`: programs of two characters over digits, which the tiny base can learn, or functions in words and programs
    in Python, for real models; they are run in the sandbox alone. `turns`: how often the team may speak. `skill`: share
    of right answers of the noisy teacher that the tiny base learns from last.
    """

    style: Literal["letters", "words"] = "letters"
    steps: Annotated[int, Field(ge=2, le=6)] = 2
    turns: Annotated[int, Field(ge=1, le=5)] = 2
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.3


def build(options: CodeOptions) -> FolderScenario:
    """The scenario with these options; in words it has no task on a machine that cannot run programs safely."""
    language: Language = Compact(options.steps) if options.style == "letters" else Worded(options.steps)
    return FolderScenario(
        name="code_team",
        folder=Path(__file__).parent / options.style,
        options_key=options.model_dump_json(exclude={"skill"}),
        make_environment=partial(CodeEnvironment, language, options.turns),
        content=partial(_content, language=language),
        demonstrate=partial(demonstrations, steps=options.steps),
        skill=options.skill,
        reward=CodeReward(),
        expert=expert,
    )


def _content(random: Random, language: Language) -> str:
    return language.make(random).spec


ENTRY = ScenarioEntry(
    CodeOptions,
    build,
    "mathematics and code",
    {"small": {}, "medium": {"style": "words"}, "large": {"style": "words", "steps": 4}},
)
