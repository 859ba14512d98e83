"""Teams found by the names that commands are given: a scenario's team, or a team's file."""

from pathlib import Path

from mas.config.access import class_access
from mas.config.load import load_config
from mas.config.plain_values import literal
from mas.config.trust import check_accesses
from mas.core.team import TeamSpec
from mas.graph.load import find_team, load_team
from mas.scenarios.registry import build_scenario


def named_team(name: str) -> TeamSpec:
    """A team's YAML file, or a scenario's team: `SCENARIO`, `SCENARIO/TEAM`. It is not checked as a graph yet.

    Raises:
        ConfigError: no such scenario or team. GraphError: the file cannot be read as a team.
        TrustError: the file names classes that the user has not allowed; whoever imports one runs its code.
    """
    path = Path(name)
    if path.suffix in (".yaml", ".yml") or path.is_file():
        return trusted_team(path)
    scenario, team = scenario_and_team(name)
    return find_team(build_scenario(load_config([f"scenario.name={literal(scenario)}"]).scenario), team or "team")


def scenario_and_team(name: str) -> tuple[str, str]:
    """The two parts of `SCENARIO/TEAM`, where the scenario may be `path/file.py:CLASS`; the team may be empty."""
    place, colon, rest = name.rpartition(":")
    scenario, _, team = rest.partition("/")
    return place + colon + scenario, team


def trusted_team(path: Path) -> TeamSpec:
    """The team of a YAML file, whose classes may be imported. It is not checked as a graph yet.

    Raises:
        GraphError: the file cannot be read as a team.
        TrustError: it names classes that the user has not allowed; whoever imports one runs its code.
    """
    spec = load_team(path)
    types = {name: role.type for name, role in spec.roles.items() if ":" in role.type}
    check_accesses([class_access(kind, f"roles.{name}.type") for name, kind in types.items()], f"team file {path}")
    return spec
