"""A solution, an evaluation of it, and a score: agents that reward each other."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated

from pydantic import Field

from mas.config.options import Options
from mas.scenarios.discussion.environment import DiscussionEnvironment
from mas.scenarios.discussion.experts import demonstrations, expert
from mas.scenarios.discussion.questions import Style, make
from mas.scenarios.discussion.reward import DiscussionReward, Pay
from mas.scenarios.folder import FolderScenario
from mas.scenarios.registry import ScenarioEntry


class DiscussionOptions(Options):
    """`pay`: what members are paid by. With `scores` it is the interaction alone, as in CoMAS: solver and evaluator
    share what the scorer's score says, and nobody is told the truth. With `truth` it is the right answer: the team is
    paid for it, and who judges loses what its judgement is off. `both` is the sum of the two.

    `style`: a digit, plus and minus up to 4, and the last digit of the result, which the tiny base can learn; or
    stories in words, for real models. `steps`: how many numbers follow the first one. `skill`: share of right answers
    of the novice that the tiny base learns from last.
    """

    pay: Pay = "both"
    style: Style = "digits"
    steps: Annotated[int, Field(ge=1, le=12)] = 1
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4


def build(options: DiscussionOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        name="discussion",
        folder=Path(__file__).parent / options.style,
        options_key=options.model_dump_json(exclude={"skill", "pay"}),
        make_environment=partial(DiscussionEnvironment, options.style, options.steps, pays=options.pay != "scores"),
        content=partial(_content, style=options.style, steps=options.steps),
        demonstrate=partial(demonstrations, steps=options.steps),
        skill=options.skill,
        reward=DiscussionReward(options.pay),
        expert=expert,
    )


def _content(random: Random, style: Style, steps: int) -> str:
    return make(random, style, steps).text


ENTRY = ScenarioEntry(
    DiscussionOptions,
    build,
    "discussion",
    {
        "small": {},
        "medium": {"style": "words", "steps": 3},
        "large": {"style": "words", "steps": 8},
    },
)
