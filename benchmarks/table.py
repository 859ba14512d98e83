"""A benchmark's rows and targets as tables for the terminal."""

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from benchmarks.result import Result, Row, Target
from mas.observe.progress import format_number


def print_result(console: Console, result: Result, *, reference: str) -> None:
    """Print the rows, the targets and the machine; `reference` is the competitor that ratios are to."""
    machine = result.machine
    units = list(dict.fromkeys(row.unit for row in result.rows)) or ["tokens"]
    unit = units[0] if len(units) == 1 else "units of work"
    console.print(_rows(result.rows, f"mas bench {result.bench}: {unit} per second", f"/ {reference}"))
    if result.targets:
        console.print(_targets(result.targets))
    for note in result.notes:
        console.print(Text(note), soft_wrap=True)
    versions = ", ".join(f"{name} {number or '–'}" for name, number in machine.versions.items())
    where = f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib} GiB, on {machine.device}"
    threads = f"{machine.threads} threads, " if machine.threads else ""
    work = f"{threads}load {machine.load_before} before and {machine.load_after} after, {machine.date}"
    console.print(Text(f"{where}; {work}\n{versions}", style="dim"), soft_wrap=True)


def _rows(rows: Sequence[Row], title: str, ratio: str) -> Table:
    measures = list(dict.fromkeys(name for row in rows for name in row.measures))
    table = Table(title=title, caption="median over rounds; a ratio is the median of the rounds' ratios")
    for column in ("size", "competitor"):
        table.add_column(column, overflow="fold")
    for column in ("median", "min – max", ratio, *(name.replace("_", " ") for name in measures)):
        table.add_column(column, justify="right")
    before = ""
    for row in rows:
        if row.size != before:
            table.add_section()
        what = f"{row.parameters:,}" if row.parameters else row.unit
        size = f"{row.size} ({what})" if row.size != before else ""
        table.add_row(size, row.name, *_numbers(row), *(_cell(row.measures.get(name)) for name in measures))
        before = row.size
    return table


def _numbers(row: Row) -> tuple[str, str, str]:
    if row.median is None or row.min is None or row.max is None or row.ratio is None:
        return escape(row.note), "", ""
    return f"{row.median:,.0f}", f"{row.min:,.0f} – {row.max:,.0f}", f"{row.ratio:.2f}"


def _cell(value: float | None) -> str:
    if value is None:
        return ""
    return f"{value:,.0f}" if value >= 100 else format_number(value)


def _targets(targets: Sequence[Target]) -> Table:
    table = Table(title="targets")
    table.add_column("target", overflow="fold")
    for column in ("value", "goal", "met"):
        table.add_column(column, justify="right")
    for target in targets:
        goal = f"{target.bound} {format_number(target.goal)}"
        if target.value is None:
            table.add_row(target.name, Text("not measured", style="yellow"), goal, escape(target.note))
            continue
        met = Text("yes", style="green") if target.met else Text("no", style="bold red")
        table.add_row(target.name, format_number(target.value), goal, met)
    return table
