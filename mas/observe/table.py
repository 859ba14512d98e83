"""Success per scenario and arm as a table for the terminal."""

from collections.abc import Mapping
from typing import Any

from rich.table import Table
from rich.text import Text

from mas.observe.results import SUCCESS, best_arms, read_results


def success_table(results: Mapping[str, Mapping[str, Any]], *, title: str = "", told: str = SUCCESS) -> Table:
    """One row per scenario and arm, in the given order: mean ± std, seeds, tokens; the best arm of each in bold.

    Args:
        told: what the numbers are; the best ones are marked of success alone.
        results: `{scenario: {arm: {"mean": …, "std": …, "seeds": […] or number, "tokens": …}}}`.

    Raises:
        ConfigError: an arm has no mean, or a value of the wrong kind.
    """
    marks = "; bold: best of the scenario" if told == SUCCESS else ""
    table = Table(title=title or told, caption=f"mean ± standard deviation over seeds{marks}")
    for column in ("scenario", "arm"):
        table.add_column(column, overflow="fold")
    for column in (told, "seeds", "tokens"):
        table.add_column(column, justify="right")
    for scenario, arms in read_results(results).items():
        best = best_arms(arms) if told == SUCCESS else set()
        table.add_section()
        for number, (name, arm) in enumerate(arms.items()):
            cells = (name, arm.success_text, arm.seeds_text, arm.tokens_text)
            style = "bold green" if name in best else ""
            table.add_row(Text(scenario if number == 0 else ""), *(Text(cell, style=style) for cell in cells))
    return table
