"""What a study leaves behind: `summary.json`, and one page with the main run, the study and how to do it again."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mas.observe.atomic import write_text_atomic
from mas.observe.report import write_report
from mas.observe.report_records import Report, baseline_tables
from mas.study.chain import ArmRun
from mas.study.summary import by_arm, learning_charts, other_measures

NOTES = (
    "success on held-out tasks, greedy; every trained arm of a seed had the tokens that the first one took (in presets "
    "team_at_grpo), play-outs that score candidates included; random draws among the legal actions, "
    "scripted is the scenario's expert",
    "leader_alone: the role that leads the team, with what it learned in the team, sees all and acts alone; "
    "best_of_n: N of its attempts, N the least that spends no fewer calls for a task than the team (tokens with "
    "matched: tokens); verified: the environment says which one is best, voted: the most frequent output of each turn",
    "no shortest-path oracle enters a reward unless an arm's overrides say scenario.options.oracle=true",
)


def write_summary(path: Path, runs: Sequence[ArmRun], *, command: str, seconds: float) -> dict[str, Any]:
    """Write and return `{"success": ..., "measures": {NAME: ...}, "runs": [...], "command", "seconds"}`."""
    summary = {
        "success": by_arm(runs),
        "measures": {measure: by_arm(runs, measure) for measure in other_measures(runs)},
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
