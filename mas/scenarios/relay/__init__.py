"""The smallest team task: a key is known to one, a table to the other."""

from pathlib import Path
from typing import Annotated

from pydantic import Field

from mas.config.options import Options
from mas.scenarios.folder import FolderScenario
from mas.scenarios.relay import environment


class RelayOptions(Options):
    """`skill`: share of right answers of the novice that the tiny base learns from last."""

    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4


def build(options: RelayOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        name="relay",
        folder=Path(__file__).parent,
        options_key=options.model_dump_json(),
        make_environment=environment.RelayEnvironment,
        content=environment.content,
        demonstrate=environment.demonstrations,
        skill=options.skill,
        expert=environment.expert,
    )
