"""For a document: a study as a Markdown table."""

from collections.abc import Mapping
from typing import Any


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
