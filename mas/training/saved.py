"""What a run left behind (its adapters, or what its roles have learned as text), and what starts from it.

`initial_adapters` are those that training starts from; `open_run` opens a team where nobody trains.
"""

import json
from collections.abc import Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Literal

from mas.algorithms.parts.experience.library import Library
from mas.algorithms.parts.options import AlgorithmOptions
from mas.config.servers import STEP
from mas.config.trust import check_links
from mas.core.errors import CheckpointError, ConfigError, RunDirectoryError
from mas.core.naming import did_you_mean
from mas.core.seeds import derive_seed
from mas.runtime.human import HumanDesk
from mas.runtime.replay_log import ReplayLog
from mas.serving.adapter_files import from_directory
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.training.base import Note, open_base
from mas.training.checkpoint import checkpoint_steps, list_checkpoints, step_of, verify_checkpoint
from mas.training.libraries import FOLDER, read_libraries
from mas.training.published import check_base
from mas.training.session import Shared, TeamSession, open_team
from mas.training.setup import Setup

TINKER_FILE = "tinker.json"
"""In a checkpoint of a run that a Tinker service trains: adapter -> the paths of its saves there."""


def saved_adapters(run: Path, base: BaseModel, step: int | None = None) -> dict[str, AdapterWeights]:
    """Adapters of the latest checkpoint, or without checkpoints those exported at the end.

    Args:
        base: what they are used on.
        step: of the checkpoint instead; None: the latest.

    Raises:
        CheckpointError: the checkpoint is corrupt or was made for another base; see `check_base`, too.
        TrustError: see `check_links`.
        RunDirectoryError: the run has not saved anything yet, or no such step (any more).
    """
    directories = adapter_directories(run, step)
    check_base(run, base)
    return {path.name: from_directory(path, base.bank) for path in directories}


def saved_versions(run: Path) -> Mapping[str, int]:
    """Adapter -> the version that training served when the latest checkpoint was written; empty without checkpoints.

    Raises:
        CheckpointError: the checkpoint is corrupt.
    """
    checkpoints = list_checkpoints(run / "checkpoints")
    return verify_checkpoint(checkpoints[-1]).versions if checkpoints else {}


def adapter_directories(run: Path, step: int | None = None) -> list[Path]:
    """Where the adapters of a run lie, by name; arguments and errors as `saved_adapters`."""
    check_links(run)
    place = _saved_in(run, step)
    found = sorted(path for path in (place / "adapters").glob("*") if (path / "adapter_config.json").is_file())
    if (place / TINKER_FILE).is_file():
        raise at_tinker(run)
    if not found:
        raise _nothing(run, "trained adapters")
    return found


def start_directories(start: str) -> list[Path]:
    """Where the adapters of `train.start` lie, by name: DIR or DIR@STEP. Errors as `saved_adapters`."""
    found = STEP.fullmatch(start)
    run, step = (Path(found["path"]), int(found["step"])) if found else (Path(start), None)
    return adapter_directories(run, step)


def adapters_from_run(fresh: Mapping[str, AdapterWeights], start: str, base: BaseModel) -> dict[str, AdapterWeights]:
    """Adapters that begin as those of another run.

    Args:
        fresh: what they would begin as otherwise: names and shapes. start: DIR or DIR@STEP.

    Raises:
        ConfigError: the run has no adapter of a name, or one of another shape or base.
        RunDirectoryError, CheckpointError: as `saved_adapters`.
    """
    paths = {path.name: path for path in start_directories(start)}
    for name, mine in fresh.items():
        if name not in paths:
            raise ConfigError(f"train.start={start}: it has no adapter {name!r}. {did_you_mean(name, paths)}")
        its = from_directory(paths[name], base.bank)
        config = json.loads((paths[name] / "adapter_config.json").read_text())
        made_for = str(config.get("base_model_name_or_path"))
        if Path(made_for).name not in (Path(base.name).name, Path(base.origin.name).name):
            raise ConfigError(
                f"train.start={start}: adapter {name!r} was trained on {made_for}, this base is {base.origin.name}"
            )
        shapes = [(weights.options.rank, weights.options.alpha, sorted(weights.pairs)) for weights in (its, mine)]
        if shapes[0] != shapes[1]:
            raise ConfigError(
                f"train.start={start}: adapter {name!r} has rank {shapes[0][0]} and alpha {shapes[0][1]} on "
                f"{len(shapes[0][2])} layers, and here rank {shapes[1][0]} and alpha {shapes[1][1]} on "
                f"{len(shapes[1][2])}: write model.lora as it was there"
            )
        mine.approach(its, 1)
    return dict(fresh)


def pinned_start(start: str) -> str:
    """`train.start` with the step of the run's latest checkpoint, if it says none and there is one."""
    steps = [] if STEP.fullmatch(start) else checkpoint_steps(Path(start) / "checkpoints")
    return f"{start}@{steps[-1]}" if steps else start


def saved_libraries(run: Path) -> dict[str, Library]:
    """Role -> library of the latest checkpoint, or without checkpoints of those exported at the end.

    Raises:
        CheckpointError: the checkpoint or a library is corrupt.
        RunDirectoryError: the run has not saved anything yet.
    """
    check_links(run)
    found = read_libraries(_saved_in(run) / FOLDER)
    if not found:
        raise _nothing(run, "experiences")
    return found


def saved_at_tinker(checkpoint: Path, kind: Literal["state", "sampler"]) -> dict[str, str]:
    """Adapter -> the path of what a Tinker service has saved of it at a checkpoint.

    Raises:
        CheckpointError: the checkpoint has no such paths, as of a run that trained its adapters here.
    """
    try:
        places = json.loads((checkpoint / TINKER_FILE).read_bytes())
        return {str(name): str(own[kind]) for name, own in places.items()}
    except (OSError, ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{checkpoint / TINKER_FILE} has no paths of a Tinker service: {error}") from error


def saved_samplers(run: Path, setup: Setup) -> dict[str, str]:
    """Adapter -> the path of what a Tinker service samples it with, as of the run's latest checkpoint; nothing with
    another engine, or where roles learn as text.

    Raises:
        CheckpointError: the checkpoint is corrupt, or of a run that trained elsewhere.
        RunDirectoryError: the run has not saved anything yet.
    """
    if setup.engine.name != "tinker" or setup.algorithm.is_training_free:
        return {}
    place = _saved_in(run)
    if place == run:
        raise _nothing(run, "trained adapters")
    return saved_at_tinker(place, "sampler")


def saved_experiences(run: Path | None, algorithm: AlgorithmOptions) -> dict[str, tuple[str, ...]]:
    """Role -> what it has learned as text in a run; nothing without a run, or where adapters are trained.

    Raises:
        CheckpointError, RunDirectoryError: as `saved_libraries`.
    """
    if run is None or not algorithm.is_training_free:
        return {}
    return {role: library.experiences for role, library in saved_libraries(run).items()}


def at_tinker(run: Path) -> RunDirectoryError:
    """Says that the adapters of a run, which something needs in files, are at a Tinker service."""
    return RunDirectoryError(
        f"Run directory {run} was trained with engine=tinker: its adapters are at the Tinker service, and none is in a "
        "file here. Only `mas run` and `mas eval` play with them; for anything else train the team with "
        "engine=transformers, engine=vllm or engine=vllm_server"
    )


def _saved_in(run: Path, step: int | None = None) -> Path:
    for checkpoint in reversed(list_checkpoints(run / "checkpoints")):
        if step in (None, step_of(checkpoint)):
            verify_checkpoint(checkpoint)
            return checkpoint
    if step is not None:
        kept = ", ".join(map(str, checkpoint_steps(run / "checkpoints"))) or "none"
        raise RunDirectoryError(
            f"Run directory {run} has no checkpoint of step {step}; there are: {kept}. train.keep_checkpoints says how "
            "many stay"
        )
    return run


def _nothing(run: Path, what: str) -> RunDirectoryError:
    return RunDirectoryError(
        f"Run directory {run} holds no {what} yet (no checkpoint). Train on with the command that began it, or in "
        f"Python with mas.train(mas.Run({str(run)!r}).config())"
    )


def new_adapters(base: BaseModel, names: set[str], seed: int) -> dict[str, AdapterWeights]:
    """Fresh adapters that change nothing yet."""
    return {
        name: base.bank.create(base.options.lora_of(name), derive_seed("adapter", seed, name)) for name in sorted(names)
    }


def initial_adapters(setup: Setup, base: BaseModel) -> dict[str, AdapterWeights]:
    """The adapters that training starts from: they change nothing yet, or are those of `train.start`.

    Raises:
        ConfigError, RunDirectoryError, CheckpointError: see `adapters_from_run`.
    """
    fresh = new_adapters(base, set(setup.trained_adapters.values()), setup.train.seed)
    return fresh if setup.train.start is None else adapters_from_run(fresh, setup.train.start, base)


def open_run(
    setup: Setup,
    run: Path | None,
    note: Note,
    desk: HumanDesk | None = None,
    *,
    shared: Shared | None = None,
    log: ReplayLog | None = None,
) -> AbstractAsyncContextManager[TeamSession]:
    """The team with what a run has learned, or without a run untrained; with `engine=openai` the server's. With
    `engine=tinker` the service has what the run has learned.

    Args:
        shared: as in `open_team`; it may be opened after this is called, which loads the base.
        log: as in `open_team`.

    Raises:
        ModelError: the base cannot be loaded. RunDirectoryError, CheckpointError: see `saved_adapters`.
    """
    setup = setup.with_experiences(saved_experiences(run, setup.algorithm))
    base = None if setup.is_served_elsewhere else open_base(setup, note)
    if base is None or setup.algorithm.is_training_free:
        saved = {} if run is None else saved_samplers(run, setup)
        return open_team(setup, base, desk=desk, shared=shared, log=log, saved=saved)
    adapters = initial_adapters(setup, base) if run is None else saved_adapters(run, base)
    return open_team(setup, base, adapters, desk=desk, shared=shared, log=log)
