"""Question, query, documents, answer: three roles around a search that the environment carries out."""

from functools import partial
from typing import Annotated

from pydantic import Field

from mas.core.options import Options
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.retrieval.cases import SPOKEN, content_of, make
from mas.scenarios.retrieval.environment import RetrievalEnvironment, RetrievalReward, demonstrations, expert
from mas.scenarios.world import FolderScenario, Style


class RetrievalOptions(Options):
    """`style`: one-letter queries and one-digit answers, which the tiny base can learn, or words, for real models.

    `terms`: in words, how many people the archive knows; each adds 15 documents. `skill`: share of right answers of
    the noisy teacher that the tiny base learns from last.
    """

    style: Style = "letters"
    terms: Annotated[int, Field(ge=2, le=len(SPOKEN))] = 4
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4


def build(options: RetrievalOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        __file__,
        options,
        partial(RetrievalEnvironment, options.style, options.terms),
        lambda random: content_of(make(random, options.style, options.terms), options.style),
        demonstrations,
        inner=options.style,
        reward=RetrievalReward(),
        expert=expert,
    )


ENTRY = ScenarioEntry(
    RetrievalOptions,
    build,
    "tool use",
    {"small": {}, "medium": {"style": "words"}, "large": {"style": "words", "terms": 12}},
)
