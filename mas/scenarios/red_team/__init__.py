"""Attack and defence by one team that plays both seats: who rewrites what is asked, and who answers it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from mas.config.base import Options
from mas.core.scenario import Decision
from mas.scenarios.red_team.cases import SEED_TOPICS, RedTeamCase, RedTeamRewards, lettered, worded
from mas.scenarios.red_team.environment import RedTeamEnvironment, all_decisions, demonstrations, expert, measures
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.safe_reply.requests import TOPICS
from mas.scenarios.world import FolderScenario


class RedTeamOptions(Options):
    """`style`: seeds, prompts and answers are letters, which the tiny base can learn, or words, for real models.

    `rewards`: the paper's table, the same with every weight 1, or what one seat wins the other loses. `facts`: in
    words, how many facts of the rival's are known, and as many of one's own. `skill`: share of right answers of the
    noisy teacher that the tiny base learns from last.
    """

    style: Literal["letters", "words"] = "letters"
    rewards: Literal["general_sum", "all_one", "zero_sum"] = "general_sum"
    facts: Annotated[int, Field(ge=1, le=len(TOPICS))] = 2
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.3


REWARDS: Mapping[str, Callable[[], RedTeamRewards]] = {
    "general_sum": RedTeamRewards,
    "all_one": RedTeamRewards.all_one,
    "zero_sum": RedTeamRewards.zero_sum,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class RedTeamScenario(FolderScenario):
    """Satisfies `mas.core.scenario.Solvable`, too; without decisions in words."""

    options: RedTeamOptions

    def decisions(self) -> Sequence[Decision]:
        """Seeds of all held-out topics, and every prompt."""
        if self.options.style == "words":
            return ()
        return all_decisions(topic for topic in SEED_TOPICS if self.holds_out(topic))

    def solve(self, policy: Mapping[str, Mapping[str, float]]) -> Mapping[str, float]:
        """See `mas.scenarios.red_team.environment.measures`."""
        return measures(policy)


def build(options: RedTeamOptions) -> RedTeamScenario:
    """The scenario with these options."""
    make = lettered if options.style == "letters" else partial(worded, facts=options.facts)
    is_zero_sum = options.rewards == "zero_sum"
    return RedTeamScenario(
        name="red_team",
        folder=Path(__file__).parent / options.style,
        options_key=options.model_dump_json(exclude={"rewards", "skill"}),
        make_environment=partial(RedTeamEnvironment, make, REWARDS[options.rewards](), is_zero_sum=is_zero_sum),
        content=partial(_content, make=make),
        demonstrate=demonstrations,
        skill=options.skill,
        expert=expert,
        options=options,
    )


def _content(random: Random, make: Callable[[Random], RedTeamCase]) -> str:
    """In letters the topic: both kinds of seeds are in both splits."""
    case = make(random)
    return f"{case.text}|{case.sheet}" if case.facts else case.topic


ENTRY = ScenarioEntry(
    RedTeamOptions,
    build,
    "self-play",
    {"small": {}, "medium": {"style": "words"}, "large": {"style": "words", "facts": 6}},
)
