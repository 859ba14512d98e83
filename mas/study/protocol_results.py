"""From the runs of a protocol to what is reported: chosen points, means with intervals, tests, curves."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean

import msgspec

from mas.core.records import Cost
from mas.observe.charts import curves_svg
from mas.observe.curves import curve
from mas.observe.files import write_bytes_atomic, write_text_atomic
from mas.observe.report_records import Chart
from mas.observe.significance import Difference, holm, mean_interval, paired
from mas.study.protocol import CELLS, UNTRAINED, ProtocolOptions, StudyJob
from mas.training.watch import Axis, Point

AXES: Mapping[Axis, str] = {
    "calls": "calls",
    "tokens": "tokens, the prompt of every call",
    "shared_tokens": "tokens, equal prompts of a step once",
    "completion_tokens": "tokens of completions",
    "optimiser_steps": "optimiser steps",
    "seconds": "seconds of training",
}


class JobResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a run reached on the tasks of its stage. `cost`, `optimiser_steps`: of training; `task_cost`: mean columns
    of a task, sampled; `seconds`: of all of it; `curve`: greedy success over training, of test runs. `failure`: why
    a run could not be trained to its end; it counts as success 0, with the cost of its last evaluation."""

    job: StudyJob
    greedy: float
    sampled: float
    cost: Cost
    task_cost: dict[str, float]
    optimiser_steps: int
    seconds: float
    curve: tuple[Point, ...] = ()
    failure: str | None = None


class ArmDifference(msgspec.Struct, frozen=True, kw_only=True):
    """A difference of greedy success, seed by seed. `p_holm`: corrected over all tests of the study."""

    case: str
    base: str
    what: str
    seeds: int
    mean: float
    low: float
    high: float
    g: float
    p: float
    p_holm: float


def best_points(swept: Sequence[JobResult]) -> dict[tuple[str, str, str], tuple[str, ...]]:
    """(case, base, arm) -> the point with the greatest mean greedy success on validation; of equals the one with the
    greater sampled success, then the first of the grid."""
    found: dict[tuple[str, str, str], dict[tuple[str, ...], list[JobResult]]] = {}
    for result in swept:
        job = result.job
        found.setdefault((job.case, job.base, job.arm), {}).setdefault(job.point, []).append(result)

    def reached(runs: Sequence[JobResult]) -> tuple[float, float]:
        return fmean(run.greedy for run in runs), fmean(run.sampled for run in runs)

    return {place: max(points, key=lambda point: reached(points[point])) for place, points in found.items()}


def comparisons(options: ProtocolOptions, tested: Sequence[JobResult]) -> list[ArmDifference]:
    """The reference against every other arm, and the main effects and the interaction of grouping and sampling.

    Runs of one seed belong together. p is exact over all choices of signs up to 12 seeds; see
    `mas.observe.significance.paired`.
    """
    found: list[tuple[str, str, str, int, Difference]] = []
    for case, base in options.places():
        reached = _by_seed(tested, case, base)
        for what, weights in _contrasts(options).items():
            values = [sum(weight * by_arm[arm] for arm, weight in weights.items()) for by_arm in reached.values()]
            found.append((case, base, what, len(values), paired(values)))
    corrected = holm([difference.p for *_, difference in found])
    return [
        ArmDifference(
            case=case,
            base=base,
            what=what,
            seeds=seeds,
            mean=one.mean,
            low=one.interval.low,
            high=one.interval.high,
            g=one.g,
            p=one.p,
            p_holm=p_holm,
        )
        for (case, base, what, seeds, one), p_holm in zip(found, corrected, strict=True)
    ]


def _by_seed(tested: Sequence[JobResult], case: str, base: str) -> dict[int, dict[str, float]]:
    """Seed -> arm -> greedy success."""
    found: dict[int, dict[str, float]] = {}
    for result in tested:
        if (result.job.case, result.job.base) == (case, base):
            found.setdefault(result.job.seed, {})[result.job.arm] = result.greedy
    return found


def _contrasts(options: ProtocolOptions) -> dict[str, dict[str, float]]:
    """Name -> the weight of each arm's success in it."""
    reference = options.reference
    found = {
        f"{reference} - {arm}": {reference: 1.0, arm: -1.0} for arm in (*options.arms, UNTRAINED) if arm != reference
    }
    if set(CELLS.values()) <= set(options.arms):
        grouping, sampling = ({"agent_turn": 0.5, "episode": -0.5}, {"branching": 0.5, "parallel": -0.5})
        found["grouping: agent_turn - episode"] = {arm: grouping[group] for (group, _), arm in CELLS.items()}
        found["sampling: branching - parallel"] = {arm: sampling[how] for (_, how), arm in CELLS.items()}
        found["grouping x sampling"] = {arm: 4 * grouping[group] * sampling[how] for (group, how), arm in CELLS.items()}
    return found


def curve_charts(options: ProtocolOptions, tested: Sequence[JobResult], axis: Axis) -> list[Chart]:
    """Greedy success over one axis: a chart per case and base, a line per arm, its mean over seeds."""
    charts = []
    for case, base in options.places():
        series = []
        for arm in options.arms:
            runs = [one for one in tested if (one.job.case, one.job.base, one.job.arm) == (case, base, arm)]
            lines = [[{axis: point.at(axis), "success": point.value} for point in run.curve] for run in runs]
            series.append(curve(arm, lines, "success", x=axis))
        charts.append(
            Chart(
                title=f"{case}, {base}",
                x_label=AXES[axis],
                y_label="success, greedy, test tasks",
                series=tuple(series),
                y_range=(-0.02, 1.02),
            )
        )
    return charts


def write_results(
    directory: Path, options: ProtocolOptions, swept: Sequence[JobResult], tested: Sequence[JobResult], command: str
) -> None:
    """`results.json` with every run, `results.md` with the tables, `curves-AXIS.svg`."""
    best, compared = best_points(swept), comparisons(options, tested)
    raw = {
        "command": command,
        "options": options.model_dump(mode="json"),
        "best": [{"case": c, "base": b, "arm": a, "point": point} for (c, b, a), point in best.items()],
        "comparisons": compared,
        "sweep": swept,
        "test": tested,
    }
    write_bytes_atomic(directory / "results.json", msgspec.json.format(msgspec.json.encode(raw), indent=1))
    parts = [f"`{command}`", _test_table(options, tested, best), _comparison_table(compared), _sweep_table(swept)]
    if failures := [_failure(run) for run in (*swept, *tested) if run.failure is not None]:
        parts.append("\n".join(["Runs that ended by an error and count as success 0:", "", *failures]))
    write_text_atomic(directory / "results.md", "\n\n".join(parts) + "\n")
    for axis in AXES:
        drawn = curves_svg(curve_charts(options, tested, axis), names=tuple(options.arms))
        write_text_atomic(directory / f"curves-{axis}.svg", drawn)


def _test_table(
    options: ProtocolOptions, tested: Sequence[JobResult], best: Mapping[tuple[str, str, str], tuple[str, ...]]
) -> str:
    """Means over seeds with Student's 95 % interval of greedy success, and what training and a task cost."""
    lines = [
        "| case | base | arm | greedy | 95 % | sampled | seeds | calls | prompts, k | shared once, k | completions, k "
        "| optimiser steps | s | calls/task | tokens/task | point |",
        "|---" * 16 + "|",
    ]
    for case, base in options.places():
        for arm in (UNTRAINED, *options.arms):
            runs = [one for one in tested if (one.job.case, one.job.base, one.job.arm) == (case, base, arm)]
            greedy = [run.greedy for run in runs]
            interval = mean_interval(greedy)
            columns = ("prompt_tokens", "shared_prompt_tokens", "completion_tokens")
            thousands = [f"{fmean(getattr(run.cost, name) for run in runs) / 1e3:,.1f}" for name in columns]
            per_task = [fmean(run.task_cost[name] for run in runs) for name in ("calls", "prompt_tokens")]
            completions = fmean(run.task_cost["completion_tokens"] for run in runs)
            point = _short(best.get((case, base, arm), ())) or "–"
            cells = [
                *(f"`{one}`" for one in (case, base, arm)),
                f"{fmean(greedy):.3f}",
                f"{interval.low:.3f} to {interval.high:.3f}",
                f"{fmean(run.sampled for run in runs):.3f}",
                str(len(runs)),
                f"{fmean(run.cost.calls for run in runs):,.0f}",
                *thousands,
                f"{fmean(run.optimiser_steps for run in runs):,.0f}",
                f"{fmean(run.seconds for run in runs):,.0f}",
                f"{per_task[0]:.1f}",
                f"{per_task[1] + completions:.0f}",
                point,
            ]
            lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _failure(run: JobResult) -> str:
    job = run.job
    where = f"{job.stage}, `{job.case}`, `{job.base}`, `{job.arm}`, seed {job.seed}, {_short(job.point)}"
    return f"- {where}: {run.failure}"


def _short(point: Sequence[str]) -> str:
    """`lr=0.001 minibatches=4`."""
    parts = (override.partition("=") for override in point)
    return " ".join(f"{key.rpartition('.')[2]}={value}" for key, _, value in parts)


def _comparison_table(compared: Sequence[ArmDifference]) -> str:
    lines = ["| case | base | difference of greedy success | mean | 95 % | g | p | p, Holm | seeds |", "|---" * 9 + "|"]
    lines += [
        f"| `{one.case}` | `{one.base}` | {one.what} | {one.mean:+.3f} | {one.low:+.3f} to {one.high:+.3f} "
        f"| {one.g:+.2f} | {one.p:.4f} | {one.p_holm:.4f} | {one.seeds} |"
        for one in compared
    ]
    return "\n".join(lines)


def _sweep_table(swept: Sequence[JobResult]) -> str:
    """Mean validation success of every point."""
    points: dict[tuple[str, ...], list[JobResult]] = {}
    for one in swept:
        job = one.job
        points.setdefault((job.case, job.base, job.arm, *job.point), []).append(one)
    lines = ["| case | base | arm | point | greedy | sampled | seeds |", "|---" * 7 + "|"]
    for (case, base, arm, *point), runs in points.items():
        means = (fmean(run.greedy for run in runs), fmean(run.sampled for run in runs))
        lines.append(
            f"| `{case}` | `{base}` | `{arm}` | {_short(point)} | {means[0]:.3f} | {means[1]:.3f} | {len(runs)} |"
        )
    return "\n".join(lines)
