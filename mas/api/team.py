"""Teams as values: loaded from a file or made by `mas.protocols`, drawn in a notebook, and given to `mas.train`."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

import yaml

from mas.api.console import inline
from mas.config.access import team_accesses
from mas.config.trust import check_accesses
from mas.core.errors import ConfigError
from mas.core.host import cache_directory
from mas.core.seeds import digest
from mas.core.team import TeamSpec
from mas.observe.files import write_text_atomic, writing
from mas.scenarios.team_lookup import trusted_team
from mas.training.setup import compiled


@dataclass(frozen=True, slots=True)
class Team:
    """A team that passed every check of its graph.

    Args:
        spec: as a function of `mas.protocols` returns it.

    Raises:
        ConfigError: it is no `TeamSpec`. GraphError: it is not well formed; all problems in one message.
    """

    spec: TeamSpec

    def __post_init__(self) -> None:
        if not isinstance(self.spec, TeamSpec):
            raise ConfigError(
                f"Team({self.spec!r}): a TeamSpec is expected, as mas.protocols.plan_execute() returns it; "
                "Team.load(path) reads a file"
            )
        compiled(self.spec)

    @classmethod
    def load(cls, path: Path | str) -> Self:
        """The team in a YAML file.

        Raises:
            GraphError: the file cannot be read as a team. TrustError: it names classes, whose import would run code, or
                servers of tools or agents elsewhere, and you have not allowed that; see `mas.trusting`.
        """
        spec = trusted_team(Path(path))
        check_accesses(team_accesses(spec), f"team file {path}")
        return cls(spec)

    def save(self, path: Path | str) -> Path:
        """Write the team as YAML, which `load` reads again. Returns the path.

        Raises:
            RunDirectoryError: it cannot be written.
        """
        content = self.spec.model_dump(mode="json", exclude_defaults=True)
        with writing(path):
            write_text_atomic(Path(path), yaml.safe_dump(content, sort_keys=False))
        return Path(path)

    def svg(self) -> str:
        """A drawing of the graph: agents, edges with their conditions, and loops."""
        from mas.graph.draw import svg

        return svg(compiled(self.spec))

    def _repr_html_(self) -> str:
        return inline(self.svg())

    def __repr__(self) -> str:
        return f"Team({self.spec.name!r}: {', '.join(self.spec.members())})"


def team_file(team: TeamSpec) -> Path:
    """A file with this team, in the cache: configurations name teams by files. A run keeps a copy of its own.

    Raises:
        GraphError: the team is not well formed. RunDirectoryError: the cache cannot be written.
    """
    folder = cache_directory() / "teams"
    with writing(f"the cache {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
    return Team(team).save(folder / f"{digest(team.model_dump_json())}.yaml")  # a name may be no file's name
