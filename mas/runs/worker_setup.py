"""What processes beside the one that trains are made of: the configuration, read again where they run.

It names files that may have changed since, or be others on another machine. So digests travel with it, and a process
that would have another team, or play other tasks, is refused. A digest is of a file's own bytes: what the file itself
imports or reads is not looked at.
"""

import hashlib
import json
import os
import platform
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec

from mas.algorithms.registry import SHIPPED
from mas.config.access import paths_in, scalars
from mas.config.options import Config
from mas.core.errors import ConfigError
from mas.core.seeds import digest as digest_of
from mas.core.team import TeamSpec
from mas.core.user_code import is_code
from mas.runs.resolve import resolve, resolve_training
from mas.serving.model import BaseModel
from mas.training.base import open_base
from mas.training.setup import TrainSetup


class WorkerSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is made of. `config`: as JSON; `directory`: where relative paths begin, if it is there.

    `team`, `files`: see `team_digest` and `file_digests`.
    """

    config: str
    is_stored: bool
    directory: str
    team: str
    files: Mapping[str, str]


def setup_of(config: Config, team: TeamSpec | None = None, files: Mapping[str, str] | None = None) -> bytes:
    """The arguments of a factory.

    Args:
        team: that the configuration names, as the process that trains has it; None: it is read here.
        files: `file_digests` of when they were read; None: of now.
    """
    team = resolve(config).team if team is None else team
    setup = WorkerSetup(
        config=config.model_dump_json(),
        is_stored=config.is_stored,
        directory=str(Path.cwd()),
        team=team_digest(team),
        files=file_digests(config, team) if files is None else files,
    )
    return msgspec.json.encode(setup)


def load_setup(arguments: bytes, *, is_trained: bool = False, rank: int | None = None) -> tuple[TrainSetup, BaseModel]:
    """The setup, checked again, and the base; see `setup_of`. `is_trained`: gradients are computed there, as by the
    learner rank `rank`.

    Raises:
        ConfigError, ModelError: as in the process that trains, where they came first; or the team, or a file that the
            configuration names, is not what it was there.
    """
    given = msgspec.json.decode(arguments, type=WorkerSetup)
    if Path(given.directory).is_dir():
        os.chdir(given.directory)
    config = Config.model_validate_json(given.config)
    checked = check_files(given.files)  # before code in them runs
    setup = resolve_training(config.as_stored() if given.is_stored else config)
    check_files(given.files, checked)  # modules that are imported now, and what has changed meanwhile
    check_team(setup.team, given.team, config.algorithm.team)
    return setup, open_base(setup, print, is_trained=is_trained, rank=rank)


_SAVED = ("state.json", "dataset_dict.json")
"""One of them is in every directory that `datasets` saved."""
_OF_SAVED = ("*.json", "*.arrow", "*/*.json", "*/*.arrow")
"""What `datasets` saves of a set, or of each part of it."""
_TO_DO = "put it back as it was, or give the command again"


def team_digest(team: TeamSpec) -> str:
    """SHA-256 of a team, wherever it came from."""
    return hashlib.sha256(json.dumps(team.model_dump(mode="json"), sort_keys=True).encode()).hexdigest()


def file_digests(config: Config, team: TeamSpec) -> dict[str, str]:
    """Name -> SHA-256 of each file of tasks, of code and of an algorithm's options, as the configuration or the team
    names it, and of each module that is imported. The team's file is left out: what counts is the team."""
    return {name: _digest(files) for name in _names(config, team) if (files := _files_of(name))}


def contents_digest(config: Config) -> str:
    """Of the team and of all files that a configuration names: what its results depend on beside its own words.

    Raises:
        MasError: as `resolve`.
    """
    team = resolve(config).team
    return digest_of(team_digest(team), *(f"{name} {content}" for name, content in file_digests(config, team).items()))


FileMarks = tuple[tuple[str, int, int, int, int], ...]
"""Of each of some files: path, number, bytes, and when content and attributes changed, in ns. Writing changes one."""


def check_files(digests: Mapping[str, str], checked: Mapping[str, FileMarks] | None = None) -> dict[str, FileMarks]:
    """Refuse files that have changed since their digests were made. What is not here, or not yet imported, is not
    looked at: if it is needed, reading it fails.

    Args:
        checked: what an earlier check returned. Files whose marks are those of then are not read again.

    Returns:
        name -> marks of the files that were looked at.

    Raises:
        ConfigError: says which one, where, and what to do.
    """
    marks: dict[str, FileMarks] = {}
    for name, digest in digests.items():
        if not (files := _files_of(name)):
            continue
        marks[name] = _marks(files)  # before they are read: a change during that is seen by the next check
        if marks[name] != (checked or {}).get(name) and _digest(files) != digest:
            raise ConfigError(
                f"{name} on node {platform.node()} is another file than the process that trains read at its start: "
                f"{_TO_DO}"
            )
    return marks


def check_team(team: TeamSpec, digest: str, name: str) -> None:
    """Refuse another team than the one of this digest. `name`: `algorithm.team`.

    Raises:
        ConfigError: says what to do.
    """
    if team_digest(team) != digest:
        raise ConfigError(
            f"algorithm.team={name} on node {platform.node()} is another team than the process that trains has "
            f"read at its start: {_TO_DO}"
        )


def _names(config: Config, team: TeamSpec) -> Iterator[str]:
    """What may be files or modules, without the names of objects in them."""
    arms = config.train.tasks.arms
    options: list[object] = [config.scenario.options, *(arm.options for arm in arms.values())]
    if config.algorithm.code not in SHIPPED:
        options.append(config.algorithm.options)
    code = [config.scenario.name, *(arm.scenario for arm in arms.values()), config.algorithm.code]
    for _, value in scalars([options, code, [role.type for role in team.roles.values()]], ""):
        if not isinstance(value, str):
            continue
        place, _, attribute = value.rpartition(":")
        if is_code(value) and place and attribute.isidentifier():
            yield place
        else:
            yield from paths_in(value)


def _files_of(name: str) -> list[Path]:
    """The file, those of a saved data set, or the file of an imported module that is no part of mas."""
    path = Path(name)
    try:
        if path.is_file():
            return [path]
        if any((path / mark).is_file() for mark in _SAVED):
            return sorted(file for pattern in _OF_SAVED for file in path.glob(pattern))
    except OSError:  # a text that is no path, or a directory that may not be read
        return []
    module = None if name.split(".")[0] == "mas" else sys.modules.get(name)
    source = getattr(module, "__file__", None)
    return [] if source is None else [Path(source)]


def _marks(files: list[Path]) -> FileMarks:
    stats = [(path, path.stat()) for path in files]
    return tuple((str(path), it.st_ino, it.st_size, it.st_mtime_ns, it.st_ctime_ns) for path, it in stats)


def _digest(files: list[Path]) -> str:
    found = hashlib.sha256()
    for path in files:
        with path.open("rb") as content:
            found.update(f"{path.name} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return found.hexdigest()
