"""Running `mas bench staleness`: whole trainings, one staleness after the other, each round with another seed."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from statistics import fmean, median
from typing import Any

from benchmarks.machine import describe, load
from benchmarks.result import Result, Row
from benchmarks.rounds import take_turns
from benchmarks.staleness.options import CASES, StalenessBench
from mas.config.load import load_config
from mas.core.records import Episode
from mas.runs.resolve import resolve_training
from mas.serving.model import BaseModel
from mas.training.base import open_base
from mas.training.evaluate import Evaluation
from mas.training.trainer import Trainer

Tell = Callable[[str], None]
WAITS = "learner_waits"
"""Measure: share of a run's steps in which the learner waited for samples."""
IDLE = "sampling_idle"
"""Measure: share of them in which nothing was sampled."""
SUCCESS = "success"
"""Measure: greedy success on held-out tasks at the end, median over seeds; `success_min`: the least."""


class Run:
    """A run of training with one staleness.

    Attributes:
        found: what each round measured, the warm-up included.
    """

    def __init__(self, case: str, staleness: int, words: Sequence[str], base: BaseModel) -> None:
        self.name = f"staleness={staleness}"
        self._words = (*CASES[case], f"train.staleness={staleness}", "train.eval_first=false", *words)
        self._base = base
        self.found: list[Mapping[str, float]] = []

    async def run(self, number: int) -> int:
        """Train with seed `number`; how many tokens were sampled."""
        config = load_config([*self._words, f"train.seed={number}", "train.eval_every=0", "train.target=null"])
        watcher = _Watcher()
        outcome = await Trainer(resolve_training(config), self._base).run(watcher)
        self.found.append(watcher.measures())
        return outcome.progress.tokens


class _Watcher:
    """Adds up where the time of steps went, and keeps the last greedy success."""

    def __init__(self) -> None:
        self._steps: list[Mapping[str, Any]] = []
        self._success = 0.0

    def on_resume(self, step: int) -> None:
        """Runs begin anew."""

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Episode]) -> None:
        self._steps.append(metrics)

    def on_note(self, step: int, note: Mapping[str, Any]) -> None:
        """Nothing is measured in notes."""

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        if name == "greedy":
            self._success = evaluation.success

    def measures(self) -> Mapping[str, float]:
        """Of the run."""
        took = [sum(one["seconds"][part] for part in ("sample", "learn", "publish")) for one in self._steps]
        waited = sum(one["seconds"]["sample"] for one in self._steps)
        busy = sum(one["seconds"]["learn"] + one["seconds"]["publish"] for one in self._steps)
        flights = [one["in_flight"] for one in self._steps if "in_flight" in one]
        idle = sum(min(one["idle_s"], seconds) for one, seconds in zip(flights, took, strict=True)) if flights else busy
        return {WAITS: waited / sum(took), IDLE: idle / sum(took), SUCCESS: self._success, "step_s": fmean(took)}


async def bench_staleness(options: StalenessBench, tell: Tell) -> Result:
    """Train every case with every staleness.

    Raises:
        ModelError: a model is not in the cache. Otherwise as `Trainer.run`.
    """
    load_before = load()
    rows: list[Row] = []
    device, threads = "cpu", 1
    for case in options.cases:
        tell(f"{case}:")
        setup = resolve_training(load_config([*CASES[case], *options.words]))
        base = open_base(setup, tell, is_trained=True)
        device, threads = base.bank.device.type, base.options.threads
        runs = [Run(case, staleness, options.words, base) for staleness in options.staleness]
        timings = await take_turns(runs, options.repeats, tell)
        parameters = sum(one.numel() for one in base.model.parameters())
        for run in runs:
            measured = run.found[1:]
            measures = {name: median(one[name] for one in measured) for name in measured[0]}
            measures["success_min"] = min(one[SUCCESS] for one in measured)
            rows.append(Row.measured(run.name, case, parameters, timings[run.name], timings[runs[0].name], measures))
    return Result(
        bench="staleness",
        machine=describe(load_before=load_before, threads=threads, device=device, packages=("torch", "transformers")),
        workload=asdict(options) | {"cases": {name: list(CASES[name]) for name in options.cases}},
        rows=tuple(rows),
        targets=(),
    )
