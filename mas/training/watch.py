"""What is written down and shown while a team trains: metrics, sampled conversations, the progress display."""

from collections.abc import Callable, Mapping, Sequence
from types import TracebackType
from typing import Any

from rich.console import Console

from mas.config.options import Config
from mas.core.records import Episode
from mas.observe.jsonl import JsonLines
from mas.observe.metrics import MetricsLog
from mas.observe.progress import TrainingProgress
from mas.training.collapse import CollapseWatch
from mas.training.evaluate import SHOWN_TASKS, Evaluation

_SHOWN_EPISODES = 2


class RunWatcher:
    """Satisfies `mas.training.trainer.Watcher`. Use as a context manager.

    `samples` gets `{"step", "source", "task", "success", "status", "cause", "rewards", "lines", "scenes", "attempts"}`
    each. `source` is `training`, `greedy` or `sampled`; or `editor`, which tells what was learned as text.
    """

    def __init__(self, config: Config, title: str, metrics: MetricsLog, samples: JsonLines, console: Console) -> None:
        self._train = config.train
        self._title = f"{title}, {config.algorithm.name}"
        self._metrics, self._samples, self._console = metrics, samples, console
        self._progress: TrainingProgress | None = None
        self._held_out: dict[str, float] = {}
        self._collapse = CollapseWatch() if CollapseWatch.suits(config.algorithm) else None

    def __enter__(self) -> "RunWatcher":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._progress is not None:
            self._progress.__exit__(kind, error, trace)

    def on_resume(self, step: int) -> None:
        """Show the display, unless all steps are done."""
        if step and step >= self._train.steps:
            return
        self._progress = TrainingProgress(self._train.steps, self._title, start=step, console=self._console)
        self._progress.__enter__()

    def on_step(self, step: int, metrics: Mapping[str, Any], episodes: Sequence[Episode]) -> None:
        """Write the step's metrics, every episode that failed, and now and then some conversations."""
        self._metrics.append(step, metrics)
        is_due = self._train.sample_every and step % self._train.sample_every == 0
        for number, episode in enumerate(episodes):
            if episode.status == "failed" or (is_due and number < _SHOWN_EPISODES):
                self._keep(step, "training", episode)
        told = self._collapse.told(metrics) if self._collapse is not None else None
        if self._progress is not None:
            self._progress.update(step, _shown(metrics))
            if told is not None:
                self._progress.note(f"step {step}: {told}")

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        """Write success on held-out tasks under `eval.NAME`, with conversations when greedy."""
        self._metrics.append(step, {"eval": {name: evaluation.metrics()}})
        shown = SHOWN_TASKS if name == "greedy" else _SHOWN_EPISODES
        for number, episode in enumerate(evaluation.episodes):
            if episode.status == "failed" or number < shown:
                self._keep(step, name, episode)
        self._held_out[name] = evaluation.success
        if self._progress is None:
            return
        if name == "greedy":
            self._progress.update(step, {"success": evaluation.success})
        else:
            text = ", ".join(f"{value:.3f} {kind}" for kind, value in self._held_out.items())
            self._progress.note(f"step {step}: success on held-out tasks {text}")

    def on_note(self, step: int, note: Mapping[str, Any]) -> None:
        """Write what an editor made of a library, or which answers of a judge were refused and why."""
        self._samples.append(step, {"source": "editor", **note})

    def _keep(self, step: int, source: str, episode: Episode) -> None:
        fields = ("task", "success", "status", "cause", "rewards", "lines", "scenes", "attempts")
        self._samples.append(step, {"source": source, **{name: getattr(episode, name) for name in fields}})


def _shown(metrics: Mapping[str, Any]) -> dict[str, float]:
    """The numbers of a step for the display: the team's reward first, then every role's own."""
    shown: dict[str, float] = {"reward": metrics["reward"], "tokens": metrics["tokens"]}
    for role, values in metrics["roles"].items():
        shown[f"{role} reward"] = values["reward"]
        if values["failures"]:
            shown[f"{role} failures"] = values["failures"]
    if metrics["episodes"]["failed"]:
        shown["failed episodes"] = metrics["episodes"]["failed"]
    return shown


class Silent:
    """A watcher that only remembers the learning curve: (tokens, value) at every evaluation.

    Args:
        name: of the evaluations that count, `greedy` or `sampled`.
        value: what is remembered of one; by default success.
    """

    def __init__(
        self, name: str = "greedy", value: Callable[[Evaluation], float] = lambda evaluation: evaluation.success
    ) -> None:
        self.curve: list[tuple[int, float]] = []
        self._name, self._value = name, value
        self._tokens = 0

    def on_resume(self, step: int) -> None:
        """Nothing to show."""

    def on_step(self, step: int, metrics: Mapping[str, Any], episodes: Sequence[Episode]) -> None:
        """Remember what sampling has cost."""
        self._tokens = int(metrics["tokens"])

    def on_note(self, step: int, note: Mapping[str, Any]) -> None:
        """Nothing to show."""

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        """Remember a point of the curve."""
        if name == self._name:
            self.curve.append((self._tokens, self._value(evaluation)))
