"""Training inside a run directory: everything is written down, and a killed run resumes from its last checkpoint.

The same call on the directory of an unfinished run resumes it. What was written after the checkpoint is dropped first,
so that the files end as if the run had never been killed. A run killed before its first checkpoint begins anew.
"""

import errno
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, closing, contextmanager
from functools import partial
from pathlib import Path
from types import MappingProxyType

import yaml
from rich.console import Console

from mas.config.access import TEAM_FILE, accesses_of, class_access, team_accesses
from mas.config.options import Config, TraceOptions
from mas.config.stored_run import load_run_config
from mas.config.trust import remember, trusted_path
from mas.core.concurrency import run_blocking
from mas.core.errors import ConfigError, RunDirectoryError, TrainingError
from mas.core.records import Judge
from mas.core.scenario import Scenario
from mas.core.team import TeamSpec
from mas.graph.load import load_team
from mas.observe.durations import shares_text
from mas.observe.files import JsonLines, remove_leftovers, write_bytes_atomic, write_directory_atomic, write_text_atomic
from mas.observe.metrics import MetricsLog, flatten, read_metrics
from mas.observe.run_directory import RunDirectory
from mas.observe.sinks.feed import Sinks
from mas.observe.sinks.find import find_sinks
from mas.observe.turn_records import drop_steps_after
from mas.runs import engine_worker, learner_rank, rollout_worker
from mas.runs.resolve import checked_for_training, resolve
from mas.runs.worker_setup import file_digests, setup_of
from mas.serving.adapter_files import exported_files
from mas.serving.base_measures import measure_speed
from mas.serving.model import BaseModel
from mas.training.base import open_base
from mas.training.check_setup import check_processes, check_staleness
from mas.training.checkpoint import checkpoint_steps, go_back, list_checkpoints
from mas.training.cluster_estimates import adapter_slots
from mas.training.engines import check_engine
from mas.training.estimates import LESS_MEMORY, Work, is_out_of_memory, rows_of
from mas.training.libraries import FOLDER, library_files
from mas.training.opponents import Pool, open_opponents
from mas.training.processes import Factories, OpenProcesses, open_processes
from mas.training.saved import initial_adapters, pinned_start
from mas.training.session import Opening
from mas.training.setup import Setup, TrainSetup
from mas.training.status_file import StatusFile
from mas.training.trainer import Trainer, TrainingOutcome
from mas.training.turn_recorder import TurnRecorder
from mas.training.watch import RunWatcher

_BEHIND_S = 60.0
"""How long a sink may take for a line of those that it has not got from an earlier run."""
MAY_DIFFER = (
    *("run_dir", "algorithm.team", "engine.remote", "trace"),
    *("train.steps", "train.token_budget", "train.target", "train.eval_first", "train.staleness", "train.sinks"),
    *("train.record_every", "train.record_keep"),
    *("model.check_memory", "cluster"),
)
"""What a resumed run may change: where it, its team file, its server and its workers are, what is traced and recorded,
when it ends, how old samples may be, and where metrics are sent. Teams are compared by content."""


def train_in_directory(
    config: Config,
    scenario: Scenario,
    *,
    console: Console | None = None,
    resume: bool | None = None,
    opening: Opening | None = None,
    judges: Mapping[str, Judge] = MappingProxyType({}),
    opponents: Pool | None = None,
    from_step: int | None = None,
    played: Setup | None = None,
) -> TrainingOutcome:
    """Train in `config.run_dir`, resuming what is there, and leave the adapters as PEFT directories in `adapters/`, or
    what roles have learned as text in `experiences/`. May be called where an event loop runs, as in a notebook: see
    `run_blocking`.

    Args:
        scenario: the one that `config.scenario` names; training never looks for scenarios itself.
        resume: True: there must be a run; False: there must be none; None: go on if there is one.
        opening: puts the team on a bus, see `mas.training.over_bus`; None: all of it in this process.
        judges: those that `algorithm.reward.late` may name, beside those of installed packages.
        opponents: those that `algorithm.opponents` says, see `mas.league.opponents.open_pool`; None: there can be none.
        from_step: go on from this checkpoint; later ones are deleted, once it is loaded. None: from the latest.
        played: what `resolve` made of `config` and `scenario`, if that was done already.

    Raises:
        ConfigError: the scenario has no such team, training would change nothing, or `train.tasks` names none.
        RunDirectoryError: the directory cannot be used, is in use, holds a run of another configuration, or there is no
            room left to write to it. A run that ends so before anything was measured leaves no directory.
        CheckpointError: the checkpoint is corrupt, is not there, or is of a run with other tasks.
        ModelError: the base cannot be loaded. EngineError: a server that is needed cannot be reached.
        TrainingError: a step broke a rule of learning.
    """
    console, path = console or Console(), Path(config.run_dir)
    setup = _checked(config, scenario, played, opponents, is_distributed=opening is not None)  # before a directory
    files = file_digests(config, setup.team) if config.cluster.is_used else {}  # before they change
    resume = RunDirectory.holds_run(path) if resume is None else resume
    RunDirectory.check(path, resume=resume)
    base, config, setup = _with_base(config, setup, console, resume=resume, is_here=opening is None)
    _remember(config, setup.team, console)
    with _opened(config, resume=resume) as run, _cleanup_on_failure(run):
        if not run.is_resumed:  # the team of a resumed run is written once it is open
            _write_team(run, setup.team)
        going = setup.with_start(None) if list_checkpoints(run.checkpoints) else setup  # a checkpoint has the adapters
        trainer = Trainer(
            going,
            base,
            checkpoints=run.checkpoints,
            opening=opening,
            judges=judges,
            opponents=opponents,
            processes=None if base is None else processes_of(config, setup, files, base, run.path / "workers"),
            record=TurnRecorder(path, going, None if base is None else base.tokenizer.decode),
        )
        step = trainer.progress.step if trainer.resume(from_step) else None
        outcome = _train(trainer, run, config, step, from_step, console, is_here=opening is None)
        _export(run.path, outcome, base)
    _print_end(path, outcome, console, was_finished=step is not None and not outcome.history)
    return outcome


def _with_base(
    config: Config, setup: TrainSetup, console: Console, *, resume: bool, is_here: bool
) -> tuple[BaseModel | None, Config, TrainSetup]:
    """The base that adapters are trained on (None where a server elsewhere has it, and no adapter is trained), and both
    settings with the step at which `train.start` is now.

    Refuses another team than the run's, processes that want more GPUs than there are, first adapters that do not fit
    the base, and an engine that lacks what it needs. A server cannot say what room it has, so what it needs is printed.
    """
    path = Path(config.run_dir)
    has_checkpoints = bool(list_checkpoints(path / "checkpoints"))
    if has_checkpoints:
        _check_team(path / TEAM_FILE, setup.team)
    base = None
    if not setup.is_served_elsewhere:
        note = partial(console.print, style="dim", highlight=False, markup=False, soft_wrap=True)
        base = open_base(setup, note, is_trained=True, rank=0)
    config = _with_start(config, path, resume=resume)
    setup = setup.with_start(config.train.start)
    if base is not None:
        _check_gpus(config, base)
        if config.train.start is not None and not has_checkpoints:
            initial_adapters(setup, base)  # only for its errors: the trainer makes its own
    if is_here:
        if setup.engine.name == "vllm_server" and base is not None:
            console.print(
                f"the server needs {adapter_slots(setup).server_flags}", style="dim", highlight=False, markup=False
            )
        check_engine(setup, base)
    return base, config, setup


def _checked(
    config: Config, scenario: Scenario, played: Setup | None, opponents: Pool | None, *, is_distributed: bool
) -> TrainSetup:
    """What is trained, with all that can be refused before a base is loaded."""
    assert played is None or (played.scenario is scenario and played.algorithm == config.algorithm)
    setup = checked_for_training(config, resolve(config, scenario) if played is None else played)
    find_sinks(config.train.sinks)  # only for its errors
    if is_distributed and setup.team.tools:
        raise ConfigError(f"team {setup.team.name!r} has tools, which are called in one process: train without --bus")
    check_staleness(setup, is_distributed=is_distributed)
    check_processes(setup, is_distributed=is_distributed, is_started=True)
    open_opponents(setup, opponents, is_distributed=is_distributed)  # only for its errors: the trainer opens its own
    return setup


def processes_of(
    config: Config, setup: TrainSetup, files: Mapping[str, str], base: BaseModel, logs: Path
) -> OpenProcesses:
    """Starts the other processes of a training.

    Args:
        files: what `file_digests` says of the configuration. logs: a directory for what they print.
    """
    factories = Factories(
        worker=rollout_worker.FACTORY,
        engine=engine_worker.FACTORY,
        rank=learner_rank.FACTORY,
        arguments=setup_of(config, setup.team, files),
        environment=setup.role_keys,
    )
    return lambda: open_processes(config.cluster, factories, base=base, logs=logs)


def _check_gpus(config: Config, base: BaseModel) -> None:
    """Refuse processes without a GPU beside a learner that has one: they would compute on CPUs."""
    options = config.cluster
    shares = {
        "worker_gpus": (options.workers + options.engines, options.worker_gpus),
        "learner_gpus": (options.learners - 1, options.learner_gpus),
    }
    for name, (count, share) in shares.items():
        if base.bank.device.type == "cuda" and count and not share:
            raise ConfigError(
                f"the learner is on a GPU, and cluster.{name}=0 leaves {count} other processes none: set it to 1, or "
                "to a part of one, such as 0.25"
            )


def _print_end(path: Path, outcome: TrainingOutcome, console: Console, *, was_finished: bool) -> None:
    """Say how the run ended, and what its time was spent on. `was_finished`: no step was left to do."""
    ended = "was finished already" if was_finished else "is finished"
    console.print(f"The run in {path} {ended}: {outcome.reason}.", highlight=False, markup=False)
    if outcome.unused.calls:
        tokens = outcome.unused.tokens()
        console.print(f"sampled ahead, not learned from: {tokens:,} tokens", style="dim", highlight=False, markup=False)
    if spent := shares_text(read_metrics(path / "metrics.jsonl")):
        console.print(f"time {spent}", style="dim", highlight=False, markup=False, soft_wrap=True)


def _opened(config: Config, *, resume: bool) -> AbstractContextManager[RunDirectory]:
    """The run's directory, as its own while it is open."""
    kept, usual = config.model_dump(mode="json"), Config().model_dump(mode="json")
    return RunDirectory.open(Path(config.run_dir), kept, resume=resume, may_differ=MAY_DIFFER, usual=usual)


_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EIO)


@contextmanager
def _cleanup_on_failure(run: RunDirectory) -> Iterator[None]:
    """A disk or memory that is full is one sentence, and a start that was refused, failed or was interrupted before
    anything was measured leaves no directory."""
    try:
        yield
    except BaseException as error:
        steps = checkpoint_steps(run.checkpoints)
        if not steps and not run.is_resumed and not run.has_metrics:
            run.discard()
        at = f"from its checkpoint of step {steps[-1]}" if steps else "anew, as there is no checkpoint yet"
        if isinstance(error, OSError) and (error.errno in _NO_ROOM or _is_in(run.path, error)):
            remedy = "Make room" if error.errno in _NO_ROOM else "Put it right"
            raise RunDirectoryError(
                f"Run directory {run.path} cannot be written any more: {error.strerror}. {remedy}, then give the same "
                f"command again: it goes on {at}"
            ) from error
        if is_out_of_memory(error):
            first = (str(error).strip() or type(error).__name__).splitlines()[0]
            raise TrainingError(
                f"memory ran out: {first}. {LESS_MEMORY}, in a new run_dir; with more memory the same command goes on "
                f"{at}"
            ) from error
        raise


def _is_in(run: Path, error: OSError) -> bool:
    """Whether a file of the run could not be used, as where its directory was deleted."""
    return isinstance(error.filename, str) and Path(error.filename).is_relative_to(run)


def _remember(config: Config, team: TeamSpec, console: Console) -> None:
    """Let later commands use what this run was started with, without naming it again, if the user has named it."""
    if config.is_stored:
        return
    types = {role.type for role in team.roles.values() if ":" in role.type}
    try:
        named = [*(class_access(one, "a role") for one in sorted(types))]
        named += team_accesses(team)
        remember([*accesses_of(config, Path(config.run_dir)), *named])
    except OSError as error:
        note = f"{trusted_path()} cannot be written ({error.strerror}): later commands on this run need --trust"
        console.print(note, style="dim", highlight=False, markup=False)


def _with_start(config: Config, run: Path, *, resume: bool) -> Config:
    """With the step at which `train.start` is now, or was when the run that goes on began."""
    start = config.train.start
    if start is None:
        return config
    if resume and (run / "config.yaml").is_file():
        kept = load_run_config(run, uses=()).train.start
        step = kept if kept is not None and kept.rpartition("@")[0] == start else start
    else:
        step = pinned_start(start)
    return config.model_copy(update={"train": config.train.model_copy(update={"start": step})})


def _train(
    trainer: Trainer,
    run: RunDirectory,
    config: Config,
    step: int | None,
    from_step: int | None,
    console: Console,
    *,
    is_here: bool,
) -> TrainingOutcome:
    """Train from a checkpoint's step, None for the beginning. Once the team and the sinks are open, and nothing can be
    refused any more, a resumed run's configuration and team are written, the files cut back to the step, and
    checkpoints later than `from_step` deleted. `is_here`: in this process alone."""
    kept = -1 if step is None else step
    setup, base = trainer.setup, trainer.base
    is_embedded = base is not None and base.blocks is None and setup.engine.name == "transformers" and is_here
    earlier = [line for line in read_metrics(run.metrics_path) if line["step"] <= kept]
    warn = partial(console.print, style="yellow", highlight=False, markup=False, soft_wrap=True)
    sinks = Sinks(run.path, find_sinks(config.train.sinks), warn)
    listener = sinks.log if config.train.sinks else None
    with (
        MetricsLog(run.metrics_path, run.tensorboard, listener) as metrics,
        closing(JsonLines(run.samples_path)) as samples,
        sinks,
    ):

        def cut_back() -> None:
            sinks.open(config.model_dump(mode="json"), is_resumed=run.is_resumed)
            if run.is_resumed:
                run.write_config()
                if step is None or not (run.path / TEAM_FILE).is_file():
                    _write_team(run, setup.team)
            # checkpoints first, newest first: a process killed meanwhile leaves no checkpoint beyond its metrics
            if from_step is not None:
                dropped = go_back(run.checkpoints, from_step) or "nothing"
                console.print(
                    f"back at step {from_step}; deleted: {dropped}", style="dim", highlight=False, markup=False
                )
            metrics.truncate_after(kept)
            samples.truncate_after(kept)
            drop_steps_after(run.path, kept)
            for line in earlier if config.train.sinks else ():  # what a sink that is new, or failed, has not got
                values = flatten({name: value for name, value in line.items() if name != "step"})
                sinks.log(line["step"], values, wait_s=_BEHIND_S)

        if run.is_resumed:
            console.print(f"resuming {run.path} at step {step or 0}", style="dim", highlight=False, markup=False)
        watching = RunWatcher(
            setup,
            metrics,
            samples,
            console,
            work=None if base is None else Work.bound(setup, base.text),
            speed=measure_speed(base, rows_of(setup)) if base is not None and is_embedded else None,
            earlier=earlier,
        )
        status = StatusFile(run.path, trainer)
        with watching as watcher, _traced(setup.trace, run.path):
            training = partial(trainer.run, watcher, status.following(watcher.on_phase), on_open=cut_back)
            return run_blocking(status.during(training))


@contextmanager
def _traced(options: TraceOptions, run: Path) -> Iterator[None]:
    """Trace the steps that are due into the run's directory. Every so many steps one is, with some of its episodes, so
    that a long run stays bounded; evaluations are not."""
    if options.every == 0:
        yield
        return
    from mas.observe.tracing import open_tracing

    tracing = open_tracing(run, process="train", most=options.spans, shows_content=options.content)
    with tracing as tracer, tracer.silent():
        yield


def _write_team(run: RunDirectory, team: TeamSpec) -> None:
    write_text_atomic(
        run.path / TEAM_FILE, yaml.safe_dump(team.model_dump(mode="json", exclude_defaults=True), sort_keys=False)
    )


def _check_team(path: Path, team: TeamSpec) -> None:
    """A run that goes on from a checkpoint must have the team that it began with; nothing is written before that."""
    if path.is_file() and load_team(path) != team:
        raise RunDirectoryError(
            f"the run in {path.parent} began with the team in {path}, which is not the team now; "
            "restore the team, or choose another run_dir"
        )


def _export(run: Path, outcome: TrainingOutcome, base: BaseModel | None) -> None:
    """Leave what was learned in `adapters/NAME/` or `experiences/ROLE.json`."""
    directory = run / (FOLDER if outcome.libraries else "adapters")
    directory.mkdir(exist_ok=True)
    remove_leftovers(directory)
    for name, weights in outcome.adapters.items():
        assert base is not None
        write_directory_atomic(directory / name, exported_files(weights, base.origin))
    for name, content in library_files(outcome.libraries).items():
        write_bytes_atomic(run / name, content)
