"""For a document: a study as a Markdown table."""

from collections.abc import Mapping
from typing import Any


def markdown_table(success: Mapping[str, Mapping[str, Any]], measure: str = "success") -> str:
    """One row per case and arm: greedy and sampled success with spread, seeds, tokens and seconds of training, and the
    calls and tokens of a task."""
    told = f"{measure}, greedy | {measure}, sampled"
    rows = [f"| case | arm | {told} | seeds | tokens | s | calls/task | tokens/task |", "|---" * 9 + "|"]
    for case, arms in success.items():
        for arm, result in arms.items():
            sampled = result["sampled"]
            tokens = f"{result['tokens'] / 1e3:,.0f}k" if result["tokens"] else "–"
            seconds = f"{result['seconds']:.0f}" if result["seconds"] else "–"
            rows.append(
                f"| `{case}` | `{arm}` | {result['mean']:.3f} ± {result['std']:.3f} "
                f"| {sampled['mean']:.3f} ± {sampled['std']:.3f} | {len(result['seeds'])} | {tokens} | {seconds} "
                f"| {result['calls']:.1f} | {result['test_tokens']:.0f} |"
            )
    return "\n".join(rows) + "\n"
