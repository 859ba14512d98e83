"""What `mas bench probes` is asked."""

import sys
from dataclasses import dataclass
from pathlib import Path

from benchmarks.probes.systems import SYSTEMS
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean


@dataclass(frozen=True, slots=True, kw_only=True)
class ProbesBench:
    """One run of the probes.

    Attributes:
        systems: keys of `SYSTEMS`.
        venvs: directory of virtual environments that are called like the systems; a system without one, or None for
            all, runs in this interpreter's.
    """

    systems: tuple[str, ...] = tuple(SYSTEMS)
    venvs: Path | None = None

    def __post_init__(self) -> None:
        for name in self.systems:
            if name not in SYSTEMS:
                raise ConfigError(f"--system {name}: no such system. {did_you_mean(name, SYSTEMS)}")
        if self.venvs is not None and not self.venvs.is_dir():
            raise ConfigError(
                f"--venvs {self.venvs}: no such directory; make it, with a virtual environment per system"
            )

    def python(self, system: str) -> str:
        """The interpreter that a system runs in."""
        own = None if self.venvs is None else self.venvs.absolute() / system / "bin" / "python"
        return str(own) if own is not None and own.exists() else sys.executable
