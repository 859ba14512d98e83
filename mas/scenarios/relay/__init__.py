"""The smallest team task: a key is known to one, a table to the other."""

from functools import partial
from pathlib import Path
from typing import Annotated

from pydantic import Field

from mas.config.options import Options
from mas.scenarios.folder import FolderScenario
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.relay import environment


class RelayOptions(Options):
    """`style`: keys and messages are letters, which the tiny base can learn, or colours, for models that chat. `skill`:
    share of right answers of the novice that the tiny base learns from last.
    """

    style: environment.Style = "letters"
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4


def build(options: RelayOptions) -> FolderScenario:
    """The scenario with these options."""
    folder = Path(__file__).parent
    return FolderScenario(
        name="relay",
        folder=folder / "words" if options.style == "words" else folder,
        options_key=options.model_dump_json(exclude={"style"}),
        make_environment=partial(environment.RelayEnvironment, options.style),
        content=environment.content,
        demonstrate=environment.demonstrations,
        skill=options.skill,
        expert=environment.expert,
    )


ENTRY = ScenarioEntry(RelayOptions, build, "communication")
