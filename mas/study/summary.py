"""From the runs of a study to what it leaves behind: numbers per case and arm over seeds, a Markdown table,
`summary.json`, and one page with the main run, the study and how to do it again.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

import msgspec

from mas.core.records import Cost
from mas.observe.curves import curve
from mas.observe.files import write_text_atomic
from mas.observe.report import write_report
from mas.observe.report_records import SUCCESS, Chart, Report, Series, baseline_tables
from mas.study.chain import ArmRun
from mas.study.options import ARMS, REFERENCE
from mas.training.watch import Axis, Point

BASELINES = (REFERENCE, "team_parallel_grpo")
"""Arms that stand beside every other one in its drawing."""
NOTES = (
    "success on held-out tasks, greedy; every trained arm of a seed had the tokens that the first one took (in presets "
    "team_at_grpo), play-outs that score candidates included; random draws among the legal actions, "
    "scripted is the scenario's expert",
    "leader_alone: the role that leads the team, with what it learned in the team, sees all and acts alone; "
    "best_of_n: N of its attempts, N the least that spends no fewer calls for a task than the team (tokens with "
    "matched: tokens); verified: the environment says which one is best, voted: the most frequent output of each turn",
    "no shortest-path oracle enters a reward unless an arm's overrides say scenario.options.oracle=true",
)


def by_arm(runs: Sequence[ArmRun], measure: str = SUCCESS) -> dict[str, dict[str, dict[str, Any]]]:
    """`{case: {arm: {"mean", "std", "seeds", "tokens", "cost": {...}, "optimiser_steps", "seconds", "sampled":
    {"mean", "std"}, "greedy": [...], "calls", "test_tokens"}}}`.

    Of the cases that tell this measure. `mean` and `std` (ddof 1, 0 for one seed) are of greedy play on held-out tasks;
    `cost` (a `mas.core.records.Cost`), `tokens` of it with each call's prompt, `optimiser_steps` and `seconds` are
    means of training, `calls` and `test_tokens` those of a task, sampled.
    """
    table: dict[str, dict[str, dict[str, Any]]] = {}
    for case in dict.fromkeys(run.case for run in runs if run.measure == measure):
        table[case] = {}
        for arm in dict.fromkeys(run.arm for run in runs if run.case == case):
            own = [run for run in runs if (run.case, run.arm) == (case, arm)]
            greedy, sampled = [run.greedy for run in own], [run.sampled for run in own]
            table[case][arm] = {
                "mean": round(fmean(greedy), 4),
                "std": round(_spread(greedy), 4),
                "seeds": [run.seed for run in own],
                "tokens": round(fmean(run.cost.tokens() for run in own)),
                "cost": {name: round(fmean(getattr(run.cost, name) for run in own)) for name in Cost.__struct_fields__},
                "optimiser_steps": round(fmean(run.optimiser_steps for run in own)),
                "seconds": round(fmean(run.seconds for run in own), 1),
                "greedy": greedy,
                "sampled": {"mean": round(fmean(sampled), 4), "std": round(_spread(sampled), 4)},
                "calls": round(fmean(run.calls for run in own), 1),
                "test_tokens": round(fmean(run.test_tokens for run in own), 1),
            }
    return table


def learning_charts(runs: Sequence[ArmRun]) -> tuple[Chart, ...]:
    """Greedy success, or what the case measures, over tokens spent on sampling: a chart per case, a line per arm, the
    mean over its seeds.
    """
    charts = []
    for case in dict.fromkeys(run.case for run in runs):
        measure = next(run.measure for run in runs if run.case == case)
        curved = {run.arm for run in runs if run.case == case and run.curve}
        arms = [arm for arm in dict.fromkeys([*ARMS, *(run.arm for run in runs)]) if arm in curved]
        series = tuple(_series(arm, [run for run in runs if (run.case, run.arm) == (case, arm)]) for arm in arms)
        if series:
            charts.append(
                Chart(
                    title=f"{case}: {measure} over tokens",
                    x_label="tokens, the prompt of every call",
                    y_label=_label(measure),
                    series=series,
                    y_range=(-0.02, 1.02) if measure == SUCCESS else None,
                    note="mean over seeds; the band is the least and the greatest",
                )
            )
    return tuple(charts)


def arm_charts(runs: Sequence[ArmRun]) -> dict[str, Chart]:
    """For every trained arm a chart of its own, by `preset_of` it: the arm and the baselines over tokens.

    Of the first case that has the arm; a mean over its seeds, a line per seed. Between two evaluations a line is
    straight.
    """
    charts: dict[str, Chart] = {}
    for run in runs:
        name = preset_of(run.arm)
        if not run.curve or name in charts:
            continue
        own = [one for one in runs if one.case == run.case and one.curve]
        arms = [arm for arm in dict.fromkeys((*BASELINES, run.arm)) if any(one.arm == arm for one in own)]
        charts[name] = Chart(
            title=run.case,
            x_label="tokens, the prompt of every call",
            y_label=_label(run.measure),
            series=tuple(_joined(arm, [one for one in own if one.arm == arm]) for arm in arms),
            y_range=(-0.02, 1.02) if run.measure == SUCCESS else None,
        )
    return charts


def _label(measure: str) -> str:
    return "success, greedy" if measure == SUCCESS else f"{measure}, sampled"


def preset_of(arm: str) -> str:
    """The `algorithm=` that an arm is, or its own name where it sets more than that."""
    first, *more = ARMS.get(arm, (arm,))
    return arm if more else first.removeprefix("algorithm=")


def _joined(arm: str, runs: Sequence[ArmRun]) -> Series:
    lines = [[{"tokens": one.cost.tokens(), "success": one.value} for one in run.curve] for run in runs]
    return curve(preset_of(arm), lines, "success", x="tokens")


def _series(arm: str, runs: Sequence[ArmRun], axis: Axis = "tokens", points: int = 25) -> Series:
    """Curves of different seeds on one axis: the last value known at each point, from where all of them have one."""
    curves = [run.curve for run in runs if run.curve]
    begin, end = (max(curve[at].at(axis) for curve in curves) for at in (0, -1))
    xs = tuple(begin + (end - begin) * n / points for n in range(points + 1))
    columns = [[_at(curve, x, axis) for curve in curves] for x in xs]
    return Series(
        name=arm,
        xs=xs,
        ys=tuple(fmean(column) for column in columns),
        lo=tuple(min(column) for column in columns),
        hi=tuple(max(column) for column in columns),
    )


def _at(curve: Sequence[Point], x: float, axis: Axis) -> float:
    return [point.value for point in curve if point.at(axis) <= x][-1]


def _spread(values: Sequence[float]) -> float:
    return stdev(values) if len(values) > 1 else 0.0


def markdown_table(success: Mapping[str, Mapping[str, Any]], measure: str = "success") -> str:
    """One row per case and arm: greedy and sampled success with spread, seeds, what training cost, and the calls and
    tokens of a task.

    Training: calls; thousands of tokens of the prompts of every call, of prompts that a step has in common once, and of
    completions; optimiser steps; seconds.
    """
    told = f"{measure}, greedy | {measure}, sampled"
    columns = "calls | prompts, k | shared once, k | completions, k | optimiser steps | s"
    rows = [f"| case | arm | {told} | seeds | {columns} | calls/task | tokens/task |", "|---" * 13 + "|"]
    for case, arms in success.items():
        for arm, result in arms.items():
            sampled = result["sampled"]
            cost = result["cost"]
            thousands = (cost[name] / 1e3 for name in ("prompt_tokens", "shared_prompt_tokens", "completion_tokens"))
            spent = [f"{cost['calls']:,}", *(f"{one:,.1f}" for one in thousands), f"{result['optimiser_steps']:,}"]
            training = " | ".join(spent if cost["calls"] else ["–"] * len(spent))
            seconds = f"{result['seconds']:.0f}" if result["seconds"] else "–"
            rows.append(
                f"| `{case}` | `{arm}` | {result['mean']:.3f} ± {result['std']:.3f} "
                f"| {sampled['mean']:.3f} ± {sampled['std']:.3f} | {len(result['seeds'])} | {training} | {seconds} "
                f"| {result['calls']:.1f} | {result['test_tokens']:.0f} |"
            )
    return "\n".join(rows) + "\n"


def write_summary(path: Path, runs: Sequence[ArmRun], *, command: str, seconds: float) -> dict[str, Any]:
    """Write and return `{"success": ..., "measures": {NAME: ...}, "runs": [...], "command", "seconds"}`."""
    measures = dict.fromkeys(run.measure for run in runs if run.measure != SUCCESS)
    summary = {
        "success": by_arm(runs),
        "measures": {measure: by_arm(runs, measure) for measure in measures},
        "command": command,
        "seconds": round(seconds, 1),
        "runs": [msgspec.to_builtins(run) for run in runs],
    }
    write_text_atomic(path, json.dumps(summary, indent=1) + "\n")
    return summary


def write_study_page(
    path: Path, summary: Mapping[str, Any], runs: Sequence[ArmRun], main: Report, command: str
) -> None:
    """The main run's report with the study's tables and learning curves, and its command."""
    others = [baseline_tables(found, told=measure, notes=NOTES) for measure, found in summary["measures"].items()]
    page = msgspec.structs.replace(
        main,
        curves=(*main.curves, *learning_charts(runs)),
        tables=(*baseline_tables(summary["success"], notes=NOTES), *(table for tables in others for table in tables)),
        command=command,
    )
    write_report(path, page)
