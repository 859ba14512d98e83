"""An answer, a critique, a better answer."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

from pydantic import Field

from mas.config.options import Options
from mas.scenarios.folder import FolderScenario
from mas.scenarios.refine import subjects
from mas.scenarios.refine.environment import RefineEnvironment
from mas.scenarios.refine.experts import demonstrations, expert
from mas.scenarios.refine.questions import Style, direction, make
from mas.scenarios.refine.reward import RefineReward
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import is_held_out

NAME = "refine"


class RefineOptions(Options):
    """`style`: a digit, plus or minus up to 3, and the last digit of the result, which the tiny base can learn; or
    numbers up to 99, + - and *, and the whole result, for real models; or `extreme`, the largest or the smallest of
    some digits, with the teams `led` and `solo`; or `words`, the largest or the smallest of some numbers up to 99,
    asked in plain words, for small models that chat.

    `operands`: how many numbers a question has. `skill`: share of right answers of the novice that the tiny base
    learns from last; in `extreme` that of a peer in its subject.
    """

    style: Style = "digit"
    operands: Annotated[int, Field(ge=2, le=12)] = 2
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4


def build(options: RefineOptions) -> FolderScenario:
    """The scenario with these options."""
    key = options.model_dump_json()
    demonstrate = partial(demonstrations, operands=options.operands)
    if options.style == "extreme":
        holds_out = partial(is_held_out, f"{NAME}/{key}")
        demonstrate = partial(subjects.demonstrations, operands=options.operands, holds_out=holds_out)
    return FolderScenario(
        name=NAME,
        folder=Path(__file__).parent / options.style,
        options_key=key,
        make_environment=partial(RefineEnvironment, options.style, options.operands),
        content=partial(_content, style=options.style, operands=options.operands),
        demonstrate=demonstrate,
        skill=options.skill,
        reward=RefineReward(),
        expert=expert,
        advise=direction,
    )


def _content(random: Random, style: Style, operands: int) -> str:
    question = make(random, style, operands)
    if style != "words":
        return question.text
    return f"{question.asked} {', '.join(sorted(question.numbers))}"  # the same question in another order


ENTRY = ScenarioEntry(
    RefineOptions,
    build,
    "discussion",
    {
        "small": {},
        "medium": {"style": "number", "operands": 3},
        "large": {"style": "number", "operands": 6},
    },
)
