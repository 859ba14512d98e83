"""A run as a value: what `mas.train` returns, and what a run directory holds."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mas.api.console import Printout, inline, recording
from mas.api.evaluate import Evaluations, evaluate
from mas.config.access import PLAYS
from mas.config.options import Config
from mas.config.stored_run import load_run_config
from mas.config.trust import check_links
from mas.core.concurrency import asynchronous, exclusive, run_blocking
from mas.core.errors import ConfigError, MasError
from mas.core.records import Episode
from mas.observe.files import write_directory_atomic, write_text_atomic, writing
from mas.observe.metrics import read_metrics
from mas.runs.hub_source import local_run
from mas.runs.overrides import PLAYING, check_sampling, check_used
from mas.runs.resolve import resolve
from mas.training.setup import Setup

if TYPE_CHECKING:
    from mas.training.trainer import TrainingOutcome

_WIDTH = 100
"""Columns of a printed conversation."""


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """One task as a team played it. `printout`: its conversation, as `mas run` prints it."""

    episode: Episode
    printout: Printout = field(repr=False)

    @property
    def success(self) -> bool:
        """Whether the task was solved."""
        return self.episode.success

    def _repr_html_(self) -> str:
        return self.printout.html

    def __repr__(self) -> str:
        return f"PlayedEpisode({self.episode.task!r}, success={self.success})"

    def __str__(self) -> str:
        return self.printout.text


@dataclass(frozen=True, slots=True)
class Curves:
    """Learning curves as a drawing."""

    svg: str = field(repr=False)

    def save(self, path: Path | str) -> Path:
        """Write the SVG. Returns the path.

        Raises:
            RunDirectoryError: it cannot be written.
        """
        with writing(path):
            write_text_atomic(Path(path), self.svg)
        return Path(path)

    def _repr_html_(self) -> str:
        return inline(self.svg)


@dataclass(frozen=True, slots=True, init=False)
class Run:
    """A run directory. Every method reads what is there now, also while another process trains.

    Args:
        path: of the directory, or `hub:ORG/NAME@REVISION` for a published team, which is downloaded into the cache.
        outcome: how training ended in this process; None: it was not trained here.

    Raises:
        RunDirectoryError: there is no run. HubError: see `mas.runs.hub_source.local_run`.
    """

    path: Path
    outcome: "TrainingOutcome | None" = field(default=None, repr=False, compare=False)

    def __init__(self, path: Path | str, outcome: "TrainingOutcome | None" = None) -> None:
        object.__setattr__(self, "path", local_run(path, _silent))
        object.__setattr__(self, "outcome", outcome)
        load_run_config(self.path, uses=())

    def config(self, overrides: Sequence[str] = ()) -> Config:
        """Its configuration with overrides, such as `train.steps=60`; `mas.train` of it goes on with the run."""
        return load_run_config(self.path, overrides)

    @property
    def steps(self) -> int:
        """Training steps that are done."""
        return max((int(line["step"]) for line in self.metrics()), default=0)

    def metrics(self) -> list[dict[str, Any]]:
        """One record per step and evaluation, as in `metrics.jsonl`.

        Raises:
            RunDirectoryError: the file is damaged.
        """
        return read_metrics(self.path / "metrics.jsonl")

    def evaluate(
        self, tasks: int | None = None, *, overrides: Sequence[str] = (), is_sampled: bool = False, quiet: bool = True
    ) -> Evaluations:
        """Play held-out tasks with the trained team and with the untrained one; see `mas.evaluate`."""
        return evaluate(self.path, overrides, tasks=tasks, is_sampled=is_sampled, quiet=quiet)

    @exclusive
    def play(self, task: int = 0, *, is_sampled: bool = False, overrides: Sequence[str] = ()) -> PlayedEpisode:
        """Play one held-out task, as `mas run` does. The base is loaded for it.

        Args:
            task: its number, from 0.
            is_sampled: answers are sampled as in training, not greedy.
            overrides: as those of `mas run`, such as `train.seed=1`.

        Raises:
            MasError: there is no task of that number, or as `mas.training.saved.open_run`.
        """
        from mas.training.saved import open_run
        from mas.training.show import show_episode

        if task < 0:
            raise ConfigError(f"task {task}: held-out tasks are counted from 0")
        setup = self._played(overrides, is_sampled=is_sampled)
        held_out = setup.scenario.task("eval", task)  # refused before anything is loaded
        console = recording(_WIDTH)

        async def play() -> Episode:
            async with open_run(setup, self.path, _silent) as session:
                temperature = None if is_sampled else 0.0
                return await show_episode(session, held_out, setup.train.seed, console, temperature=temperature)

        return PlayedEpisode(run_blocking(play()), Printout.of(console))

    @exclusive
    def ask(self, message: Mapping[str, str] | str, *, is_sampled: bool = False, overrides: Sequence[str] = ()) -> str:
        """What the team answers to a situation of one's own: one team turn. The base is loaded for it.

        Args:
            message: the fields that its members see, as a mapping or as JSON, or plain text for teams that read it.
            is_sampled: as in `play`.
            overrides: as in `play`.

        Raises:
            MasError: the team cannot read that; says what it reads. Otherwise as `play`.
        """
        from mas.endpoint.teams import TeamModel
        from mas.training.saved import open_run

        setup = self._played(overrides, is_sampled=is_sampled)
        said = message if isinstance(message, str) else json.dumps(dict(message))

        async def ask() -> str:
            async with open_run(setup, self.path, _silent) as session:
                team = TeamModel.of(session.runtime, setup.scenario, chats=session.runtime.endpoint.chats)
                turn = await team.turn(said, setup.train.seed, None if is_sampled else 0.0)
                return turn.action

        return run_blocking(ask())

    def curves(self, metric: str = "eval/greedy/success", *, x: str = "step") -> Curves:
        """What was learned, over steps, `tokens`, `calls` or `optimiser_steps`; see `mas curves`.

        Raises:
            ConfigError: there is no such metric. RunDirectoryError: nothing has been measured yet.
        """
        from mas.observe.charts import curves_svg
        from mas.study.curves import learning_curves, read_run

        run = read_run(self.path)
        return Curves(curves_svg(learning_curves([run], metric=metric, x=x), names=(run.team,), columns=1))

    def report(self) -> Path:
        """Write `report.html` into the directory: curves, conversations before and after, the team. Returns its path.

        Raises:
            RunDirectoryError: nothing has been measured yet.
        """
        config = load_run_config(self.path, uses=["code", "file"])
        path = self.path / "report.html"
        from mas.observe.report import write_report  # loads what draws
        from mas.runs.report import build_report

        write_report(path, build_report(self.path, config, resolve(config).plan))
        return path

    def export(self, out: Path | str) -> dict[str, Path]:
        """Copy the adapters of the latest checkpoint, as PEFT directories `OUT/NAME`. Returns them by name.

        Raises:
            RunDirectoryError: nothing has been saved yet, or the directory cannot be written.
            ConfigError: there is something in the directory already. TrustError: a link leads out of the run.
        """
        from mas.training.saved import adapter_directories

        check_links(self.path)
        out = Path(out)
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"{out} is there already and not empty: choose another directory")
        with writing(out):
            directories = adapter_directories(self.path)
            files = {f"{one.name}/{file.name}": file.read_bytes() for one in directories for file in one.iterdir()}
            out.parent.mkdir(parents=True, exist_ok=True)
            write_directory_atomic(out, files)
        return {one.name: out / one.name for one in directories}

    def export_team(self, out: Path | str, *, overrides: Sequence[str] = ()) -> Path:
        """Write the team as a folder for others with a model card, as `mas export --card` does. Returns the folder.

        Raises:
            MasError: as `mas.runs.publish.export_team`.
        """
        from mas.runs.publish import export_team

        export_team(self.path, Path(out), overrides)
        return Path(out)

    def publish(self, repository: str, *, is_public: bool = False, overrides: Sequence[str] = ()) -> str:
        """Upload that folder to a model hub, as `mas export --hub` does. Returns `hub:ORG/NAME@COMMIT`.

        Args:
            repository: ORG/NAME, which is made if it is not there.
            is_public: everybody may read it.

        Raises:
            MasError: as `mas.runs.publish.publish_team`.
        """
        from mas.runs.publish import publish_team

        return publish_team(self.path, repository, overrides=overrides, is_public=is_public)

    evaluate_async, play_async, ask_async = asynchronous(evaluate), asynchronous(play), asynchronous(ask)

    def _played(self, overrides: Sequence[str], *, is_sampled: bool) -> Setup:
        """What plays.

        Raises:
            ConfigError: overrides without effect, or limits that the engine cannot sample with. Otherwise as
                `load_run_config` and `resolve`.
        """
        setup = resolve(load_run_config(self.path, overrides, uses=PLAYS))
        check_used("run", list(overrides), PLAYING)
        if is_sampled:
            check_sampling(setup)
        return setup

    def __repr__(self) -> str:
        try:
            return f"Run({str(self.path)!r}, {self.steps} steps)"
        except MasError:  # damaged metrics: `metrics` says so
            return f"Run({str(self.path)!r})"

    def _repr_html_(self) -> str:
        """Its steps and the learning curve; where there is none yet, why. It raises nothing: a notebook would show the
        traceback."""
        try:
            return f"<pre>{escape(repr(self))}</pre>{self.curves()._repr_html_()}"
        except MasError as error:
            return f"<pre>{escape(f'{self!r}: {error}')}</pre>"


def _silent(text: str) -> None:
    """Notes of what loads are for terminals."""
