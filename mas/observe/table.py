"""Success per scenario and arm as a table for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from mas.observe.results import best_arms, read_results


def success_table(results: Mapping[str, Mapping[str, Any]], *, title: str = "success") -> Table:
    """One row per scenario and arm, in the given order: mean ± std, seeds, tokens; the best arm of each in bold.

    Args:
        results: `{scenario: {arm: {"mean": …, "std": …, "seeds": […] or number, "tokens": …}}}`.

    Raises:
        ConfigError: an arm has no mean, or a value of the wrong kind.
    """
    table = Table(title=title, caption="mean ± standard deviation over seeds; bold: best of the scenario")
    for column in ("scenario", "arm"):
        table.add_column(column, overflow="fold")
    for column in ("success", "seeds", "tokens"):
        table.add_column(column, justify="right")
    for scenario, arms in read_results(results).items():
        best = best_arms(arms)
        table.add_section()
        for number, (name, arm) in enumerate(arms.items()):
            cells = (name, arm.success_text, arm.seeds_text, arm.tokens_text)
            style = "bold green" if name in best else ""
            table.add_row(Text(scenario if number == 0 else ""), *(Text(cell, style=style) for cell in cells))
    return table
