"""An answer, a critique, a better answer."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

from pydantic import Field

from mas.config.options import Options
from mas.scenarios.folder import FolderScenario
from mas.scenarios.refine.environment import RefineEnvironment
from mas.scenarios.refine.experts import demonstrations, expert
from mas.scenarios.refine.questions import Style, direction, make
from mas.scenarios.refine.reward import RefineReward


class RefineOptions(Options):
    """`style`: a digit, plus or minus up to 3, and the last digit of the result, which the tiny base can learn; or
    numbers up to 99, + - and *, and the whole result, for real models.

    `operands`: how many numbers a question has. `skill`: share of right answers of the novice that the tiny base
    learns from last.
    """

    style: Style = "digit"
    operands: Annotated[int, Field(ge=2, le=12)] = 2
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4


def build(options: RefineOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        name="refine",
        folder=Path(__file__).parent / options.style,
        options_key=options.model_dump_json(),
        make_environment=partial(RefineEnvironment, options.style, options.operands),
        content=partial(_content, style=options.style, operands=options.operands),
        demonstrate=partial(demonstrations, operands=options.operands),
        skill=options.skill,
        reward=RefineReward(),
        expert=expert,
        advise=direction,
    )


def _content(random: Random, style: Style, operands: int) -> str:
    return make(random, style, operands).text
