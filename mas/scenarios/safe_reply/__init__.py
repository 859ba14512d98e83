"""Safety of answers by two agents: one answers, one criticises or stays silent."""

from functools import partial
from typing import Annotated

from pydantic import Field

from mas.core.options import Options
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.safe_reply.environment import ReplyEnvironment, ReplyReward, demonstrations, expert
from mas.scenarios.safe_reply.requests import TOPICS, lettered, worded
from mas.scenarios.world import FolderScenario, Style


class ReplyOptions(Options):
    """`style`: requests and answers are letters, which the tiny base can learn, or words, for real models.

    `facts`: in words, how many facts of the rival's are known, and as many of one's own; the more, the easier to take
    the wrong one. `skill`: share of right answers of the noisy teacher that the tiny base learns from last.
    """

    style: Style = "letters"
    facts: Annotated[int, Field(ge=1, le=len(TOPICS))] = 2
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.3


def build(options: ReplyOptions) -> FolderScenario:
    """The scenario with these options."""
    make = lettered if options.style == "letters" else partial(worded, facts=options.facts)
    return FolderScenario(
        __file__,
        options,
        partial(ReplyEnvironment, make),
        demonstrate=demonstrations,
        inner=options.style,
        unkeyed=(),
        reward=ReplyReward(),
        expert=expert,
    )


ENTRY = ScenarioEntry(
    ReplyOptions,
    build,
    "conversation and feedback",
    {"small": {}, "medium": {"style": "words"}, "large": {"style": "words", "facts": 6}},
)
