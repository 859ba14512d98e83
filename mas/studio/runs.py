"""The run directories that a studio shows. They are only read: no file is written and no lock is held."""

import hashlib
import re
import stat
import threading
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from mas.config.access import CONFIG_FILE, TEAM_FILE, is_inside
from mas.config.plain_values import read_stored
from mas.config.trust import check_links
from mas.core.errors import MasError, RunDirectoryError
from mas.core.team import TeamSpec
from mas.observe.palette import role_numbers
from mas.studio.metric_columns import MetricColumns
from mas.studio.run_status import RunStatus, status_of

METRICS_FILE = "metrics.jsonl"
_DEPTH = 4
"""Folders below a given one in which runs are found."""
_MOST = 1000
"""Runs that are found."""


class StudioRun:
    """One run directory.

    Attributes:
        path: the directory.
        name: its path as the user gave it or below the folder that was searched; any text.
        key: names it in addresses: letters, digits and `-`, the same as long as the directory has its place.
    """

    def __init__(self, path: Path, name: str) -> None:
        self.path, self.name = path, name
        self.key = key_of(path, name, "run")
        self._columns = MetricColumns()
        self._config: tuple[object, Mapping[str, Any]] = (None, {})
        self._team: tuple[object, TeamSpec | None] = (None, None)

    def file(self, name: str) -> Path:
        """The path of a file of this run, such as `samples.jsonl`; it may be missing.

        Raises:
            RunDirectoryError: it is no regular file.
            TrustError: it is a link that leads out of the run, which the user has not allowed.
        """
        path = self.path / name
        if path.exists() and not stat.S_ISREG(path.stat().st_mode):
            raise RunDirectoryError(f"{path} is no file")
        if not is_inside(path, self.path):
            check_links(self.path)
        return path

    @property
    def config(self) -> Mapping[str, Any]:
        """What `config.yaml` holds, as plain values that nothing has checked; empty where it cannot be read."""
        try:
            path = self.file(CONFIG_FILE)
            if self._config[0] != (state := _state(path)):
                self._config = (state, _read_config(path))
        except (OSError, MasError):
            return {}
        return self._config[1]

    def option(self, key: str) -> Any:
        """The value of a dotted key of the configuration, such as `train.steps`; None where it has none."""
        value: Any = self.config
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        return value

    @property
    def team(self) -> TeamSpec | None:
        """The team as training wrote it down, with nothing loaded that it names; None where it cannot be read."""
        try:
            path = self.file(TEAM_FILE)
            if self._team[0] != (state := _state(path)):
                self._team = (state, _read_team(path))
        except (OSError, MasError):
            return None
        return self._team[1]

    @property
    def looks(self) -> Mapping[str, int]:
        """The number of each role's and agent's colour, as in the report: `series-N` with N modulo eight."""
        team = self.team
        members = {} if team is None else team.members()
        roles = role_numbers(members)
        return roles | {agent: roles[role] for agent, role in members.items()}

    def columns(self) -> MetricColumns:
        """The metrics as they are now.

        Raises:
            RunDirectoryError, TrustError: as `file`; the file cannot be read.
        """
        path = self.file(METRICS_FILE)
        try:
            self._columns.refresh(path)
        except OSError as error:
            raise RunDirectoryError(f"{path} cannot be read: {error.strerror}") from error
        return self._columns

    def status(self) -> RunStatus:
        """How far the run is and whether a process trains it.

        Raises:
            RunDirectoryError, TrustError: as `columns`.
        """
        return status_of(self.path, self.option, self.columns(), self.file(METRICS_FILE))


class Runs:
    """All runs below some folders, found again whenever they are asked for.

    Args:
        places: run directories, or folders with some below them; also an attribute.
    """

    def __init__(self, places: Sequence[Path]) -> None:
        self.places = tuple(places)
        self._known: dict[str, StudioRun] = {}
        self._lock = threading.Lock()

    def all(self) -> list[StudioRun]:
        """Every run that is there now, by name."""
        with self._lock:
            there = ((path, name) for path, name in folders_below(self.places) if (path / CONFIG_FILE).is_file())
            found = dict(islice(there, _MOST))
            self._known = {
                str(path): self._known.get(str(path)) or StudioRun(path, name) for path, name in found.items()
            }
            return sorted(self._known.values(), key=lambda run: run.name)

    def find(self, key: str) -> StudioRun | None:
        """The run with this key, None: there is none."""
        with self._lock:
            known = {run.key: run for run in self._known.values()}
        return known.get(key) or next((run for run in self.all() if run.key == key), None)


def folders_below(places: Sequence[Path]) -> Iterator[tuple[Path, str]]:
    """Some folders and all below them, a few levels deep, each with its name; what is below a run is left out."""
    for place in places:
        waiting = [(place, str(place) if (place / CONFIG_FILE).is_file() else "", 0)]
        while waiting:
            path, name, depth = waiting.pop()
            yield path, name
            if depth < _DEPTH and not (path / CONFIG_FILE).is_file():
                waiting += [(below, f"{name}/{below.name}".strip("/"), depth + 1) for below in _folders(path)]


def key_of(path: Path, name: str, plain: str) -> str:
    """What names a run or a league in addresses: letters, digits and `-`, the same as long as it has its place.

    Args:
        plain: stands for a name without letters.
    """
    words = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[-40:].strip("-")
    return f"{words or plain}-{hashlib.sha256(str(path.resolve()).encode()).hexdigest()[:8]}"


def _read_config(path: Path) -> Mapping[str, Any]:
    """Empty where it cannot be read, which is kept as well: it may take seconds to find that out."""
    try:
        return read_stored(path)
    except (OSError, MasError):
        return {}


def _read_team(path: Path) -> TeamSpec | None:
    try:
        return TeamSpec.model_validate(read_stored(path))
    except (OSError, MasError, ValidationError):
        return None


def _state(path: Path) -> tuple[int, int, int]:
    """Differs when a file was written again."""
    found = path.stat()
    return found.st_ino, found.st_mtime_ns, found.st_size


def _folders(path: Path) -> list[Path]:
    try:
        return [one for one in path.iterdir() if not one.name.startswith(".") and one.is_dir() and not one.is_symlink()]
    except OSError:
        return []
