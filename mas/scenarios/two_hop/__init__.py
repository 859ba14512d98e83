"""The task in which a team of two beats one agent of the same size: two hops, one each."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from mas.config.options import Options
from mas.scenarios.folder import FolderScenario
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.two_hop import environment


class TwoHopOptions(Options):
    """`skill`: share of right answers of the novice that the tiny base learns from last."""

    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4


def build(options: TwoHopOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        name="two_hop",
        folder=Path(__file__).parent,
        options_key=options.model_dump_json(),
        make_environment=environment.TwoHopEnvironment,
        content=environment.content,
        demonstrate=environment.demonstrations,
        skill=options.skill,
        expert=environment.expert,
    )


ENTRY = ScenarioEntry(TwoHopOptions, build, "communication")
