"""Working through a protocol in a directory: every finished run is kept, and the same command does what is missing."""

import time
from collections import defaultdict
from collections.abc import Callable, Generator, Mapping, Sequence
from concurrent.futures import as_completed
from contextlib import closing
from pathlib import Path

import msgspec
from rich.console import Console

from mas.core.concurrency import run_blocking
from mas.core.errors import RunDirectoryError, TrainingError
from mas.core.records import NO_COST, Cost
from mas.core.scenario import Scenario
from mas.observe.files import write_bytes_atomic, write_text_atomic
from mas.runs.resolve import configured_scenario, resolve, resolve_training
from mas.runs.worker_setup import contents_digest
from mas.serving.adapter_weights import AdapterWeights
from mas.study.chain import evaluate_both
from mas.study.held_out import HeldOutPart
from mas.study.protocol import UNTRAINED, ProtocolOptions, StudyJob, final_jobs, plan_text, sweep_jobs
from mas.study.protocol_results import JobResult, best_points, write_results
from mas.study.worker_pool import worker_pool
from mas.study.workers import read_kept
from mas.training.base import open_base
from mas.training.saved import initial_adapters
from mas.training.trainer import Trainer
from mas.training.watch import Point, Silent

Work = Callable[[ProtocolOptions, StudyJob], JobResult]


def run_job(options: ProtocolOptions, job: StudyJob) -> JobResult:
    """Train as the job says until the budget is spent, and measure what there is then, once.

    A run that ends by a `TrainingError`, such as one whose gradient is no longer finite, counts as success 0.
    """
    began = time.perf_counter()
    config = job.configure(options)
    scenario: Scenario = HeldOutPart(configured_scenario(config), job.part)
    tasks = options.test_tasks if job.stage == "test" else options.validation_tasks
    setup = resolve(config, scenario)
    base = open_base(setup, lambda text: None, is_trained=job.arm != UNTRAINED)
    cost, optimiser_steps, watcher = NO_COST, 0, Silent()
    adapters: Mapping[str, AdapterWeights]
    if job.arm == UNTRAINED:
        adapters = initial_adapters(setup, base)
    else:
        try:
            outcome = run_blocking(Trainer(resolve_training(config, scenario), base).run(watcher))
        except TrainingError as error:
            return _failed(job, f"{error}", time.perf_counter() - began, tuple(watcher.curve))
        adapters, cost = outcome.adapters, outcome.progress.cost
        optimiser_steps = outcome.progress.optimiser_steps

    greedy, sampled = run_blocking(evaluate_both(setup, base, tasks, job.seed, adapters))
    return JobResult(
        job=job,
        greedy=greedy.success,
        sampled=sampled.success,
        cost=cost,
        task_cost={name: getattr(sampled.cost, name) / len(sampled.episodes) for name in Cost.__struct_fields__},
        optimiser_steps=optimiser_steps,
        seconds=time.perf_counter() - began,
        curve=tuple(watcher.curve),
    )


def _failed(job: StudyJob, cause: str, seconds: float, curve: tuple[Point, ...]) -> JobResult:
    spent = curve[-1] if curve else Point(cost=NO_COST, optimiser_steps=0, seconds=0.0, value=0.0)
    return JobResult(
        job=job,
        greedy=0.0,
        sampled=0.0,
        cost=spent.cost,
        task_cost=dict.fromkeys(Cost.__struct_fields__, 0.0),
        optimiser_steps=spent.optimiser_steps,
        seconds=seconds,
        curve=(*curve, msgspec.structs.replace(spent, value=0.0)),
        failure=cause,
    )


def run_protocol(
    directory: Path, options: ProtocolOptions, *, command: str, console: Console, workers: int, work: Work = run_job
) -> None:
    """Sweep, choose, test, and write `plan.md`, `results.json`, `results.md` and `curves-*.svg` to a directory.

    Args:
        workers: processes; 0 works through everything in this one.
        work: does one job, in this process or in another.

    Raises:
        RunDirectoryError: the directory cannot be written.
    """
    kept = _KeptJobs(directory, options)
    sweep = sweep_jobs(options)
    plan = plan_text(options, kept.seconds(), max(workers, 1))
    write_text_atomic(directory / "plan.md", plan)
    console.print(plan, highlight=False, markup=False)
    swept = kept.all(sweep, work, workers, console)
    best = best_points(swept)
    tested = kept.all(final_jobs(options, best), work, workers, console)
    write_results(directory, options, swept, tested, command)
    console.print(str(directory / "results.md"), style="bold", highlight=False, markup=False)


def printed_plan(directory: Path, options: ProtocolOptions, workers: int) -> str:
    """The plan with what the directory already holds; nothing is written."""
    return plan_text(options, _KeptJobs(directory, options, is_new=False).seconds(), max(workers, 1))


class _KeptJobs:
    """Finished jobs on disk, one file each, named by what their results depend on."""

    def __init__(self, directory: Path, options: ProtocolOptions, *, is_new: bool = True) -> None:
        self.folder, self.options = directory / "jobs", options
        self._contents: dict[tuple[str, str, str], str] = {}
        """Of the files that the jobs of a case, a base and an arm name, as they were when the first was looked for."""
        if is_new:
            try:
                self.folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise RunDirectoryError(
                    f"study directory {directory} cannot be made: {error.strerror}; choose another --out"
                ) from error

    def all(self, jobs: Sequence[StudyJob], work: Work, workers: int, console: Console) -> list[JobResult]:
        """Every job's result, those that are missing worked out now; order is the jobs', whatever was done first."""
        found = {job: result for job in jobs if (result := self._load(job)) is not None}
        missing = [job for job in jobs if job not in found]
        with closing(_worked(self.options, missing, work, workers)) as worked:
            for result in worked:
                found[result.job] = result
                write_bytes_atomic(self._path(result.job), msgspec.json.encode(result))
                told = f"{len(found)} of {len(jobs)} {result.job.stage} runs: {_described(result)}"
                console.print(told, style="dim", highlight=False, markup=False)
        return [found[job] for job in jobs]

    def seconds(self) -> dict[tuple[str, str], list[float]]:
        """Of trained runs that are kept and belong to this protocol's cases, by case and base."""
        spent = defaultdict[tuple[str, str], list[float]](list)
        for path in sorted(self.folder.glob("*.json")):
            result = read_kept(path, JobResult)
            job = result.job
            is_known = (job.case, job.base) in set(self.options.places()) and job.arm in self.options.arms
            if is_known and self._path(job) == path:
                spent[job.case, job.base].append(result.seconds)
        return dict(spent)

    def _load(self, job: StudyJob) -> JobResult | None:
        path = self._path(job)
        return read_kept(path, JobResult) if path.is_file() else None

    def _path(self, job: StudyJob) -> Path:
        place, config = (job.case, job.base, job.arm), job.configure(self.options)
        if place not in self._contents:
            self._contents[place] = contents_digest(config)
        key = job.key(self.options, config, self._contents[place])
        return self.folder / f"{job.stage}-{job.case}-{job.base}-{job.arm}-{job.seed}-{key}.json"


def _worked(options: ProtocolOptions, jobs: Sequence[StudyJob], work: Work, workers: int) -> Generator[JobResult]:
    if not workers:
        yield from (work(options, job) for job in jobs)
        return
    with worker_pool(workers) as pool:
        for future in as_completed([pool.submit(work, options, job) for job in jobs]):
            yield future.result()


def _described(result: JobResult) -> str:
    job = result.job
    return (
        f"{job.case}/{job.base} {job.arm} seed {job.seed} {' '.join(job.point)}: greedy {result.greedy:.2f}, sampled "
        f"{result.sampled:.2f}, {result.cost.tokens() / 1e3:.0f}k tokens, {result.seconds:.0f} s"
    )
