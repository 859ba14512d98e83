"""What is written down and shown while a team trains: metrics, sampled conversations, the progress display."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Literal

import msgspec
from rich.console import Console

from mas.core.records import NO_COST, Cost, Episode, Prompts
from mas.observe.durations import TimeLeft, rough_time
from mas.observe.files import JsonLines
from mas.observe.metrics import MetricsLog
from mas.observe.progress import TrainingProgress
from mas.serving.base_measures import Speed
from mas.training.estimates import Work, rows_of
from mas.training.evaluate import SHOWN_TASKS, Evaluation
from mas.training.setup import Setup
from mas.training.step_metrics import ZeroVarianceWatch

_SHOWN_EPISODES = 2

Axis = Literal["tokens", "shared_tokens", "completion_tokens", "calls", "optimiser_steps", "seconds"]
"""What a learning curve is over: `tokens` have the prompt of every call, `shared_tokens` those of a step once."""


class RunWatcher:
    """Satisfies `mas.training.trainer.Watcher`. Use as a context manager.

    `samples` gets `{"step", "source", "task", "success", "status", "cause", "rewards", "lines", "scenes", "attempts"}`
    each. `source` is `training`, `greedy` or `sampled`; or `editor`, which tells what was learned as text.

    Args:
        work: what a task takes at most; None: unknown, so that there is no estimate before the first step.
        speed: of the base on this machine; None: likewise.
        earlier: metrics of the steps before a run was resumed.
        clock: seconds, monotonic.
    """

    def __init__(
        self,
        setup: Setup,
        metrics: MetricsLog,
        samples: JsonLines,
        console: Console,
        *,
        work: Work | None = None,
        speed: Speed | None = None,
        earlier: Sequence[Mapping[str, Any]] = (),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._setup, self._train = setup, setup.train
        self._work, self._speed, self._clock = work, speed, clock
        self._left = TimeLeft(self._train.steps, self._train.eval_every, self._train.token_budget)
        self._evaluating: dict[str, float] = {}
        self._evaluated_s: dict[str, float] = {}
        self._is_warm = any("warm_start" in line for line in earlier)
        for line in earlier:
            self._take_time(line)
        self._title = f"{setup.scenario.name}, {setup.algorithm.name}"
        self._metrics, self._samples, self._console = metrics, samples, console
        self._progress: TrainingProgress | None = None
        self._held_out: dict[str, float] = {}
        self._collapse = ZeroVarianceWatch() if ZeroVarianceWatch.suits(setup.algorithm) else None

    def __enter__(self) -> "RunWatcher":
        return self

    def __exit__(self, *error: Any) -> None:
        if self._progress is not None:
            self._progress.__exit__(*error)

    def on_resume(self, step: int) -> None:
        """Show the display, unless all steps are done."""
        if step and step >= self._train.steps:
            return
        self._progress = TrainingProgress(self._train.steps, self._title, start=step, console=self._console)
        self._progress.__enter__()
        if step == 0 and self._train.eval_first and not self._is_warm:
            self._tell_evaluation()
        else:
            self._tell_training(step)

    def on_phase(self, what: str, done: int, of: int) -> None:
        """Show what goes on; see `Trainer.run`."""
        if of and not done:
            self._evaluating[what] = self._clock()
        if self._progress is not None:
            self._progress.phase(what, done, of)

    def on_step(self, step: int, metrics: Mapping[str, Any], episodes: Sequence[Episode]) -> None:
        """Write the step's metrics, every episode that failed, and now and then some conversations."""
        self._metrics.append(step, metrics)
        self._take_time(metrics)
        is_due = self._train.sample_every and step % self._train.sample_every == 0
        for number, episode in enumerate(episodes):
            if episode.status == "failed" or (is_due and number < _SHOWN_EPISODES):
                self._keep(step, "training", episode)
        warning = self._collapse.warning(metrics) if self._collapse is not None else None
        if self._progress is not None:
            self._progress.update(step, _shown(metrics), self._left.seconds(step))
            if warning is not None:
                self._progress.note(f"step {step}: {warning}")
            if (warm := metrics.get("warm_start")) is not None:
                self._progress.note(f"warm start: {warm['kept']} of {warm['episodes']} episodes imitated")

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        """Write success on held-out tasks under `eval.NAME`, with conversations when greedy."""
        now = self._clock()
        took = {"seconds": {"evaluate": {name: now - self._evaluating.pop(f"{name} evaluation", now)}}}
        self._take_time(took)
        self._metrics.append(step, {"eval": {name: evaluation.metrics()}, **took})
        shown = SHOWN_TASKS if name == "greedy" else _SHOWN_EPISODES
        for number, episode in enumerate(evaluation.episodes):
            if episode.status == "failed" or number < shown:
                self._keep(step, name, episode)
        self._held_out[name] = evaluation.success
        if self._progress is None:
            return
        if name == "greedy":
            self._progress.update(step, {"success": evaluation.success}, self._left.seconds(step))
        else:
            text = ", ".join(f"{value:.3f} {kind}" for kind, value in self._held_out.items())
            self._progress.note(f"step {step}: success on held-out tasks {text}")
            if step == 0 and name == "sampled":
                self._work = None if self._work is None else Work.measured(evaluation, self._work)
                self._tell_training(step, is_bound=False)

    def on_note(self, step: int, note: Mapping[str, Any]) -> None:
        """Write what an editor made of a library, or which answers of a judge were refused and why."""
        self._samples.append(step, {"source": "editor", **note})

    def _take_time(self, metrics: Mapping[str, Any]) -> None:
        """Let the time left follow what a step or an evaluation took."""
        seconds = metrics.get("seconds", {})
        if "warm_start" in metrics:
            self._left.begin(metrics["tokens"])
        elif "sample" in seconds:
            self._left.on_step(sum(seconds[name] for name in ("sample", "learn", "publish")), metrics["tokens"])
            # until an evaluation is measured it counts as sampling of as many episodes
            evaluated = 2 * self._train.eval_tasks / rows_of(self._setup)
            sampled_s = metrics.get("in_flight", {}).get("played_s", seconds["sample"])
            self._left.expect(evaluation_s=sampled_s * evaluated)
        evaluated_s = seconds.get("evaluate", {})
        self._evaluated_s |= {name: evaluated_s[name] for name in ("greedy", "sampled") if name in evaluated_s}
        if "sampled" in evaluated_s:
            self._left.on_evaluation(sum(self._evaluated_s.values()))

    def _tell_evaluation(self) -> None:
        """What the evaluation before step 1 will take, before it begins, and all that follows it."""
        assert self._progress is not None
        tasks, most = self._train.eval_tasks, ""
        if self._work is not None and self._speed is not None:
            first_s = self._expect(self._work, self._speed)
            all_s = first_s + (self._left.seconds(0) or 0.0)
            self._progress.expect(all_s)
            most = f", at most about {rough_time(first_s)}, and {rough_time(all_s)} with all that follows"
        self._progress.note(
            f"evaluation before step 1: {tasks} held-out tasks, greedy and sampled{most} (fewer: train.eval_tasks=N; "
            "none: train.eval_first=false)"
        )

    def _expect(self, work: Work, speed: Speed) -> float:
        """Estimate steps and evaluations. Returns the seconds of an evaluation."""
        evaluation_s = work.evaluation_s(speed, self._setup)
        self._left.expect(step_s=work.step_s(speed, self._setup), evaluation_s=evaluation_s)
        return evaluation_s

    def _tell_training(self, step: int, *, is_bound: bool = True) -> None:
        """How long all steps will take, before the next one begins."""
        assert self._progress is not None
        how = ""
        if self._work is not None and self._speed is not None:
            self._expect(self._work, self._speed)
            how = f", estimated from {self._speed.text()}"
        elif evaluated_s := sum(self._evaluated_s.values()):
            episodes = len(self._evaluated_s) * self._train.eval_tasks
            self._left.expect(step_s=evaluated_s * rows_of(self._setup) / episodes)
            how = " without learning, sampling as fast as the evaluation"
        left_s = self._left.seconds(step)
        if left_s is None:
            return
        most = "at most about" if is_bound and not self._left.has_steps else "about"
        counts = {"step": self._train.steps - step, "evaluation": self._left.evaluations(step)}
        if not any(counts.values()):
            return
        what = " and ".join(f"{count} {name}{'s' * (count != 1)}" for name, count in counts.items())
        how = "" if self._left.has_steps else how
        self._progress.expect(left_s)
        self._progress.note(f"{what}: {most} {rough_time(left_s)}{how}; measured steps correct this")

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


class Point(msgspec.Struct, frozen=True, kw_only=True):
    """Where a learning curve is: what training has cost until then, `seconds` without evaluations, and the value."""

    cost: Cost
    optimiser_steps: int
    seconds: float
    value: float

    def at(self, axis: Axis) -> float:
        """Its place on an axis."""
        if axis == "seconds" or axis == "optimiser_steps":
            return float(getattr(self, axis))
        prompts: Mapping[str, Prompts] = {"tokens": "per_call", "shared_tokens": "shared", "completion_tokens": "none"}
        return self.cost.calls if axis == "calls" else self.cost.tokens(prompts[axis])


def points_of(lines: Iterable[Mapping[str, Any]], value: Callable[[Mapping[str, Any]], float | None]) -> list[Point]:
    """The learning curve in lines of `metrics.jsonl`. `value`: of a line; None: it has none."""
    found: list[Point] = []
    cost, steps, seconds = NO_COST, 0, 0.0
    for line in lines:
        if "optimiser_steps" in line:
            cost = Cost(**{name: int(line[name]) for name in Cost.__struct_fields__})
            steps, seconds = int(line["optimiser_steps"]), seconds + _step_seconds(line)
        if (here := value(line)) is not None:
            found.append(Point(cost=cost, optimiser_steps=steps, seconds=seconds, value=here))
    return found


def _step_seconds(metrics: Mapping[str, Any]) -> float:
    """Of a whole step; those in environments are a part of sampling."""
    return float(sum(metrics["seconds"][part] for part in ("sample", "learn", "publish")))


class Silent:
    """A watcher that only remembers the learning curve: a point at every evaluation.

    Args:
        name: of the evaluations that count, `greedy` or `sampled`.
        value: what is remembered of one; by default success.
    """

    def __init__(
        self, name: str = "greedy", value: Callable[[Evaluation], float] = lambda evaluation: evaluation.success
    ) -> None:
        self.curve: list[Point] = []
        self._name, self._value = name, value
        self._at = Point(cost=NO_COST, optimiser_steps=0, seconds=0.0, value=0.0)

    def on_resume(self, step: int) -> None:
        """Nothing to show."""

    def on_step(self, step: int, metrics: Mapping[str, Any], episodes: Sequence[Episode]) -> None:
        self._at = Point(
            cost=Cost(**{name: int(metrics[name]) for name in Cost.__struct_fields__}),
            optimiser_steps=int(metrics["optimiser_steps"]),
            seconds=self._at.seconds + _step_seconds(metrics),
            value=0.0,
        )

    def on_note(self, step: int, note: Mapping[str, Any]) -> None:
        """Nothing to show."""

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        if name == self._name:
            self.curve.append(msgspec.structs.replace(self._at, value=self._value(evaluation)))
