"""Teams as commands name them."""

from pathlib import Path

from mas.config.load import load_config
from mas.core.team import TeamSpec
from mas.graph.find import find_team
from mas.graph.load import load_team
from mas.scenarios import build_scenario


def named_team(name: str) -> TeamSpec:
    """A team's YAML file, or a scenario's team: `SCENARIO`, `SCENARIO/TEAM`. It is not checked as a graph yet.

    Raises:
        ConfigError: no such scenario or team. GraphError: the file cannot be read as a team.
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return load_team(path)
    scenario, _, team = name.partition("/")
    return find_team(build_scenario(load_config([f"scenario.name={scenario}"]).scenario), team or "team")
