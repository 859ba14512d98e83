"""A run as a value: what `mas.train` returns, and what a run directory holds."""

import io
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from mas.config.access import PLAYS
from mas.config.load import load_run_config
from mas.config.options import Config
from mas.core.blocking import run_blocking
from mas.core.errors import ConfigError, RunDirectoryError
from mas.core.records import Episode
from mas.observe.atomic import write_text_atomic
from mas.observe.metrics import read_metrics
from mas.observe.report import write_report
from mas.overrides import check_sampled
from mas.runs.report import build_report
from mas.runs.resolve import resolve

if TYPE_CHECKING:
    from mas.training.evaluate import Evaluation
    from mas.training.trainer import Outcome

_WIDTH = 100
"""Columns of a printed conversation."""


@dataclass(frozen=True, slots=True)
class PlayedEpisode:
    """One task as a team played it. `text`: as `mas run` prints it; `html`: the same with the agents' colours."""

    episode: Episode
    text: str = field(repr=False)
    html: str = field(repr=False)

    @property
    def success(self) -> bool:
        """Whether the task was solved."""
        return self.episode.success

    def _repr_html_(self) -> str:
        return self.html

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class Curves:
    """Learning curves as a drawing."""

    svg: str = field(repr=False)

    def save(self, path: Path | str) -> Path:
        """Write the SVG. Returns the path.

        Raises:
            RunDirectoryError: it cannot be written.
        """
        try:
            write_text_atomic(Path(path), self.svg)
        except OSError as error:
            raise RunDirectoryError(f"{path} cannot be written: {error.strerror}") from error
        return Path(path)

    def _repr_html_(self) -> str:
        return self.svg


@dataclass(frozen=True, slots=True)
class Run:
    """A run directory. Every method reads what is there now, also while another process trains.

    Args:
        path: of the directory.
        outcome: how training ended in this process; None: it was not trained here.

    Raises:
        RunDirectoryError: there is no run.
    """

    path: Path
    outcome: "Outcome | None" = field(default=None, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "path", Path(self.path))
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
    ) -> "Mapping[str, Evaluation]":
        """Play held-out tasks with the trained team and with the untrained one; see `mas.evaluate`."""
        from mas.api.evaluate import evaluate

        return evaluate(self.path, overrides, tasks=tasks, is_sampled=is_sampled, quiet=quiet)

    def play(self, task: int = 0, *, is_sampled: bool = False, overrides: Sequence[str] = ()) -> PlayedEpisode:
        """Play one held-out task, as `mas run` does. The base is loaded for it.

        Args:
            task: its number. is_sampled: answers are sampled as in training, not greedy.

        Raises:
            MasError: as `mas.training.open_run.open_run`.
        """
        from mas.training.open_run import open_run
        from mas.training.show import show_episode

        setup = resolve(load_run_config(self.path, overrides, uses=PLAYS))
        if is_sampled:
            check_sampled(setup)
        console = Console(file=io.StringIO(), record=True, width=_WIDTH, force_jupyter=False)

        async def play() -> Episode:
            async with open_run(setup, self.path, _silent) as session:
                temperature = None if is_sampled else 0.0
                return await show_episode(
                    session, setup.scenario.task("eval", task), setup.train.seed, console, temperature=temperature
                )

        episode = run_blocking(play())
        html = console.export_html(inline_styles=True, code_format="<pre>{code}</pre>", clear=False)
        return PlayedEpisode(episode, console.export_text(), html)

    def ask(self, message: str, *, is_sampled: bool = False, overrides: Sequence[str] = ()) -> str:
        """What the team answers to a situation of one's own: one team turn. The base is loaded for it.

        Args:
            message: a JSON object of the fields that its members see, or plain text for teams that read it.

        Raises:
            MasError: the team cannot read that; says what it reads. Otherwise as `play`.
        """
        from mas.endpoint.teams import TeamModel
        from mas.training.open_run import open_run

        setup = resolve(load_run_config(self.path, overrides, uses=PLAYS))
        if is_sampled:
            check_sampled(setup)

        async def ask() -> str:
            async with open_run(setup, self.path, _silent) as session:
                team = TeamModel.of(session.runtime, setup.scenario, chats=session.runtime.voice.chats)
                turn = await team.turn(message, setup.train.seed, None if is_sampled else 0.0)
                return turn.action

        return run_blocking(ask())

    def curves(self, metric: str = "eval/greedy/success", *, x: str = "step") -> Curves:
        """What was learned, over steps, `tokens`, `calls` or `optimiser_steps`; see `mas curves`.

        Raises:
            ConfigError: there is no such metric. RunDirectoryError: nothing has been measured yet.
        """
        from mas.observe.curves_svg import curves_svg
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
        write_report(path, build_report(self.path, config, resolve(config).plan))
        return path

    def export(self, out: Path | str) -> dict[str, Path]:
        """Copy the adapters of the latest checkpoint, as PEFT directories `OUT/NAME`. Returns them by name.

        Raises:
            RunDirectoryError: nothing has been saved yet, or the directory cannot be written.
            ConfigError: there is something in the directory already.
        """
        from mas.training.saved import adapter_directories

        out = Path(out)
        if out.exists() and (not out.is_dir() or any(out.iterdir())):
            raise ConfigError(f"{out} is there already and not empty: choose another directory")
        try:
            return {
                found.name: Path(shutil.copytree(found, out / found.name)) for found in adapter_directories(self.path)
            }
        except OSError as error:
            raise RunDirectoryError(f"{out} cannot be written: {error.strerror}") from error

    def __repr__(self) -> str:
        return f"Run({str(self.path)!r}, {self.steps} steps)"

    def _repr_html_(self) -> str:
        return self.curves()._repr_html_()


def _silent(text: str) -> None:
    """Notes of what loads are for terminals."""
