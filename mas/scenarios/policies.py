"""The best player of a scenario that is known."""

from mas.core.scenario import Scenario
from mas.core.script import Script


def expert_of(scenario: Scenario) -> Script | None:
    """The scenario's attribute `expert`, as `FolderScenario` has it. None: nobody wrote one."""
    expert: Script | None = getattr(scenario, "expert", None)
    return expert
