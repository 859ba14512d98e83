"""What a report says, as plain records, with the results of a study; `mas.observe.report` turns them into one page,
`success_table` into a table for the terminal.
"""

import re
from collections.abc import Mapping, Sequence
from itertools import chain, count
from typing import Any

import msgspec
from rich.table import Table
from rich.text import Text

from mas.core.records import Line, Scene
from mas.observe.progress import format_number

SUCCESS = "success"
"""What results are of where nothing else is said."""
STEP_PARTS = ("sample", "learn", "publish")
"""Parts of a training step that are timed and do not overlap."""


class ArmResult(msgspec.Struct, frozen=True, kw_only=True):
    """What one arm (a trained team or a baseline) reached in one scenario.

    Attributes:
        mean: success over seeds, in [0, 1], or another measure; `std`: over seeds with ddof = 1, None for one seed.
        seeds: the seeds, or only how many.
        tokens: mean tokens per seed that reaching it cost; None where they were not counted.
    """

    mean: float
    std: float | None = None
    seeds: tuple[int, ...] | int = 1
    tokens: float | None = None

    @property
    def seed_count(self) -> int:
        """How many seeds the mean is over."""
        return self.seeds if isinstance(self.seeds, int) else len(self.seeds)

    @property
    def success_text(self) -> str:
        """`0.950 ± 0.021`, or the mean alone for one seed."""
        spread = "" if self.std is None or self.seed_count < 2 else f" ± {self.std:.3f}"
        return f"{self.mean:.3f}{spread}"

    @property
    def seeds_text(self) -> str:
        """`3 (0, 1, 2)`, or the number alone when the seeds are not known."""
        if isinstance(self.seeds, int):
            return str(self.seeds)
        return f"{len(self.seeds)} ({', '.join(str(seed) for seed in self.seeds)})"

    @property
    def tokens_text(self) -> str:
        """`1.2M`, or `–` where they were not counted."""
        return "–" if self.tokens is None else format_number(round(self.tokens))


def _read(results: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, ArmResult]]:
    """A study's plain mapping, `{scenario: {arm: {"mean": …, "std": …, "seeds": …, "tokens": …}}}`, as records.

    Keys of an arm beyond these are for other readers and left out.
    """
    return {
        scenario: {arm: msgspec.convert(values, ArmResult) for arm, values in arms.items()}
        for scenario, arms in results.items()
    }


def best_arms(arms: Mapping[str, ArmResult]) -> set[str]:
    """Names of the arms with the highest mean; several on a tie, none where there are no arms."""
    best = max((arm.mean for arm in arms.values()), default=None)
    return {name for name, arm in arms.items() if arm.mean == best}


class KeyNumber(msgspec.Struct, frozen=True, kw_only=True):
    """One number for the top of the page; `before` None means that there is nothing to compare it with."""

    label: str
    after: str
    before: str | None = None
    note: str = ""


def throughput(new_tokens: float, seconds: Mapping[str, float], steps: int) -> KeyNumber | None:
    """How fast a run sampled: tokens that models wrote, per second of `sample`; prompts and evaluations do not count.

    Args:
        new_tokens: `completion_tokens` of the last step, which counts from the beginning.
        seconds: of all steps together, by part; `sample`, `learn` and `publish` make a step.
        steps: that were timed. Without any, None is returned.
    """
    sampling_s = seconds.get("sample", 0.0)
    if not steps or sampling_s <= 0:
        return None
    step_s = sum(seconds.get(part, 0.0) for part in STEP_PARTS) / steps
    note = f"new tokens while sampling; {step_s:.2g} s a step"
    return KeyNumber(label="throughput", after=f"{format_number(round(new_tokens / sampling_s))}/s", note=note)


class Series(msgspec.Struct, frozen=True, kw_only=True):
    """One line of a chart.

    Attributes:
        xs, ys: N points; NaN makes a gap.
        lo, hi: N bounds of the shaded band, both or neither.
        seeds: thin lines, one per seed, N points each.

    Raises:
        ValueError: the lengths differ, or only one bound is given.
    """

    name: str
    xs: tuple[float, ...]
    ys: tuple[float, ...]
    lo: tuple[float, ...] | None = None
    hi: tuple[float, ...] | None = None
    seeds: tuple[tuple[float, ...], ...] = ()

    def __post_init__(self) -> None:
        if (self.lo is None) != (self.hi is None):
            raise ValueError(f"Series {self.name!r} has one bound of its band only; give lo and hi, or neither.")
        others = [self.ys, *self.seeds, *(bound for bound in (self.lo, self.hi) if bound is not None)]
        if any(len(other) != len(self.xs) for other in others):
            lengths = ", ".join(str(len(other)) for other in others)
            raise ValueError(f"Series {self.name!r} has {len(self.xs)} xs and lists of {lengths}; they must be equal.")


class Chart(msgspec.Struct, frozen=True, kw_only=True):
    """Curves over one x axis, such as `training step` or `tokens`; `y_range` None fits the axis to the curves."""

    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    y_range: tuple[float, float] | None = None
    note: str = ""


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    """One bar with an error bar of ± `std`, None for none; `is_best` is drawn in the accent colour."""

    name: str
    mean: float
    std: float | None = None
    is_best: bool = False


class BaselineTable(msgspec.Struct, frozen=True, kw_only=True):
    """A table of finished texts, and the same as bars.

    Attributes:
        rows: one text per column each.
        best_rows: indices of rows to emphasise.
        bars: drawn beside the table; none draws none. `bars_label` names their axis.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best_rows: tuple[int, ...] = ()
    bars: tuple[Bar, ...] = ()
    bars_label: str = "success"
    notes: tuple[str, ...] = ()


class Conversation(msgspec.Struct, frozen=True, kw_only=True):
    """One played task.

    Attributes:
        label: when it was, such as `before training`.
        outcome: how it ended, in words; `is_success` colours it, None leaves it plain.
        scenes: the world at the beginning and after each turn, with what the team did; none where none were kept.
    """

    label: str
    lines: tuple[Line, ...]
    outcome: str
    is_success: bool | None = None
    scenes: tuple[Scene, ...] = ()


class ConversationPair(msgspec.Struct, frozen=True, kw_only=True):
    """The same task played twice, shown side by side."""

    title: str
    before: Conversation
    after: Conversation


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All that one page says; a part that is empty or None gets no section.

    Attributes:
        roles: agent -> role; a role has one colour on the whole page, in curves as in conversations.
        numbers: large, first on the page; `headline`: sentences under them.
        graph_svg: a whole `<svg>` document; shown as an image, so that nothing in it can run or load.
        graph_mermaid: source text of the same graph, to copy.
        command: what reproduces the run, or a sentence that says why nothing does.
        files: of its charts, relative to the page, which links to them (`mas.observe.figures`).
    """

    title: str
    subtitle: str = ""
    roles: Mapping[str, str] = {}
    numbers: tuple[KeyNumber, ...] = ()
    headline: tuple[str, ...] = ()
    curves: tuple[Chart, ...] = ()
    tables: tuple[BaselineTable, ...] = ()
    conversations: tuple[ConversationPair, ...] = ()
    graph_svg: str | None = None
    graph_mermaid: str | None = None
    command: str = ""
    configuration: str = ""
    files: tuple[str, ...] = ()


def figure_names(charts: Sequence[Chart]) -> list[str]:
    """A file name for each chart, without suffix, from its title: lower case, words joined by `-`, no two equal."""
    names = ["curves"]  # of the points of all charts
    for chart in charts:
        stem = re.sub(r"[^a-z0-9]+", "-", chart.title.lower())[:60].strip("-") or "figure"
        others = (f"{stem}-{number}" for number in count(2))
        names.append(next(name for name in chain((stem,), others) if name not in names))
    return names[1:]


def baseline_tables(
    results: Mapping[str, Mapping[str, Any]], *, told: str = SUCCESS, notes: Sequence[str] = ()
) -> tuple[BaselineTable, ...]:
    """One table with bars per scenario of a study's plain mapping.

    Args:
        results: `{scenario: {arm: {"mean": …, "std": …, "seeds": […] or number, "tokens": …}}}`.
        told: what the numbers are; the best ones are marked of success alone.
    """
    tables = []
    for scenario, arms in _read(results).items():
        best = best_arms(arms) if told == SUCCESS else set()
        rows = ((name, arm.success_text, arm.seeds_text, arm.tokens_text) for name, arm in arms.items())
        bars = (Bar(name=name, mean=arm.mean, std=arm.std, is_best=name in best) for name, arm in arms.items())
        tables.append(
            BaselineTable(
                title=scenario,
                columns=("arm", told, "seeds", "tokens"),
                rows=tuple(rows),
                best_rows=tuple(number for number, name in enumerate(arms) if name in best),
                bars=tuple(bars),
                bars_label=told,
                notes=tuple(notes),
            )
        )
    return tuple(tables)


def success_table(results: Mapping[str, Mapping[str, Any]], *, title: str = "", told: str = SUCCESS) -> Table:
    """One row per scenario and arm, in the given order: mean ± std, seeds, tokens; the best arm of each in bold.

    Args:
        told: what the numbers are; the best ones are marked of success alone.
        results: as of `baseline_tables`.
    """
    marks = "; bold: best of the scenario" if told == SUCCESS else ""
    table = Table(title=title or told, caption=f"mean ± standard deviation over seeds{marks}")
    for column in ("scenario", "arm"):
        table.add_column(column, overflow="fold")
    for column in (told, "seeds", "tokens"):
        table.add_column(column, justify="right")
    for scenario, arms in _read(results).items():
        best = best_arms(arms) if told == SUCCESS else set()
        table.add_section()
        for number, (name, arm) in enumerate(arms.items()):
            cells = (name, arm.success_text, arm.seeds_text, arm.tokens_text)
            style = "bold green" if name in best else ""
            table.add_row(Text(scenario if number == 0 else ""), *(Text(cell, style=style) for cell in cells))
    return table
