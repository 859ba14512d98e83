"""What processes beside the one that trains are made of: the configuration, read again where they run.

It names files that may have changed since, or be others on another machine. So digests travel with it, and a process
that would have another team, or play other tasks, is refused.
"""

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from mas.config.options import Config
from mas.core.team import TeamSpec
from mas.runs.named_files import check_files, check_team, file_digests, team_digest
from mas.runs.resolve import resolve, resolve_training
from mas.serving.model import BaseModel
from mas.training.base import open_base
from mas.training.setup import TrainSetup


class WorkerSetup(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is made of. `config`: as JSON; `directory`: where relative paths begin, if it is there.

    `team`, `files`: digests, see `mas.runs.named_files`.
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
