"""Running `mas bench staleness`: whole trainings, one staleness after the other, each round with another seed."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.machine import describe, load
from benchmarks.result import Result, Row
from benchmarks.rounds import take_turns
from benchmarks.staleness.options import CASES, StalenessBench
from mas.config.load import load_config
from mas.core.records import Episode
from mas.runs.resolve import resolve_training
from mas.runs.train import processes_of
from mas.runs.worker_setup import file_digests
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
WALL = "wall_s"
"""Measure: seconds from the begin of the first step to the end of the last one, with the evaluations between."""
GOAL = 0.9
"""Greedy success on held-out tasks whose first time is noted for every run."""
EVAL_EVERY = 5
"""Steps between evaluations."""


class Run:
    """A run of training with one staleness.

    Attributes:
        found: what each round measured, the warm-up included. reached: when each round first reached `GOAL`.
    """

    def __init__(self, case: str, staleness: int, words: Sequence[str], base: BaseModel) -> None:
        self.name = f"staleness={staleness}"
        usual = (f"train.staleness={staleness}", "train.eval_first=false", f"train.eval_every={EVAL_EVERY}")
        self._words = (*CASES[case], *usual, *words)
        self._base = base
        self.found: list[Mapping[str, float]] = []
        self.reached: list[str] = []

    @property
    def wall_s(self) -> tuple[float, ...]:
        """Of the measured rounds, see `WALL`."""
        return tuple(one[WALL] for one in self.found[1:])

    async def run(self, number: int) -> int:
        """Train with seed `number`; how many tokens were sampled."""
        config = load_config([*self._words, f"train.seed={number}", "train.target=null"])
        watcher, setup = _Watcher(), resolve_training(config)
        with TemporaryDirectory(prefix="mas-bench-") as logs:
            files = file_digests(config, setup.team) if config.cluster.is_used else {}
            processes = processes_of(config, setup, files, self._base, Path(logs))
            outcome = await Trainer(setup, self._base, processes=processes).run(watcher)
        self.found.append(watcher.measures())
        self.reached.append(watcher.reached)
        return outcome.progress.tokens


class _Watcher:
    """Adds up where the time of steps went, and keeps the last greedy success.

    Attributes:
        reached: when greedy success was `GOAL` for the first time, for people.
    """

    def __init__(self) -> None:
        self._steps: list[Mapping[str, Any]] = []
        self._success = 0.0
        self._began = self._ended = 0.0
        self.reached = "not reached"

    def on_resume(self, step: int) -> None:
        """Runs begin anew."""

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Episode]) -> None:
        self._ended = time.perf_counter()
        if not self._steps:
            self._began = self._ended - _step_seconds(metrics)
        self._steps.append(metrics)

    def on_note(self, step: int, note: Mapping[str, Any]) -> None:
        """Nothing is measured in notes."""

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        if name != "greedy":
            return
        self._success = evaluation.success
        if self._success >= GOAL and self.reached == "not reached":
            tokens, took = self._steps[-1]["tokens"], self._ended - self._began
            self.reached = f"in step {step}, after {tokens:,} tokens and {took:.1f} s"

    def measures(self) -> Mapping[str, float]:
        """Of the run."""
        took = [_step_seconds(one) for one in self._steps]
        waited = sum(one["seconds"]["sample"] for one in self._steps)
        busy = sum(one["seconds"]["learn"] + one["seconds"]["publish"] for one in self._steps)
        flights = [one["in_flight"] for one in self._steps if "in_flight" in one]
        idle = sum(min(one["idle_s"], seconds) for one, seconds in zip(flights, took, strict=True)) if flights else busy
        return {
            WAITS: waited / sum(took),
            IDLE: idle / sum(took),
            SUCCESS: self._success,
            "step_s": fmean(took),
            WALL: self._ended - self._began,
        }


def _step_seconds(metrics: Mapping[str, Any]) -> float:
    return float(sum(metrics["seconds"][part] for part in ("sample", "learn", "publish")))


async def bench_staleness(options: StalenessBench, tell: Tell) -> Result:
    """Train every case with every staleness.

    Raises:
        ModelError: a model is not in the cache. Otherwise as `Trainer.run`.
    """
    load_before = load()
    rows: list[Row] = []
    notes: list[str] = []
    device, threads = "cpu", 1
    for case in options.cases:
        tell(f"{case}:")
        setup = resolve_training(load_config([*CASES[case], *options.words]))
        base = open_base(setup, tell, is_trained=True)
        device, threads = base.bank.device.type, base.options.threads
        runs = [Run(case, staleness, options.words, base) for staleness in options.staleness]
        turns = await take_turns(runs, options.repeats, tell)
        # processes that start, and the evaluation at the end, are no part of it
        timings = {run.name: replace(turns[run.name], seconds=run.wall_s) for run in runs}
        parameters = sum(one.numel() for one in base.model.parameters())
        for run in runs:
            measured = run.found[1:]
            measures = {name: median(one[name] for one in measured) for name in measured[0]}
            measures["success_min"] = min(one[SUCCESS] for one in measured)
            notes += [
                f"{case}, {run.name}, seed {seed}: success {GOAL} {when}"
                for seed, when in enumerate(run.reached)
                if seed  # 0 is the warm-up
            ]
            rows.append(Row.measured(run.name, case, parameters, timings[run.name], timings[runs[0].name], measures))
    return Result(
        bench="staleness",
        machine=describe(load_before=load_before, threads=threads, device=device, packages=("torch", "transformers")),
        workload=asdict(options) | {"cases": {name: list(CASES[name]) for name in options.cases}},
        rows=tuple(rows),
        targets=(),
        notes=tuple(notes),
    )
