"""What a report says, as plain records; `mas.observe.report` turns them into one page."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from mas.core.records import Line, Scene
from mas.observe.results import SUCCESS, best_arms, read_results


class KeyNumber(msgspec.Struct, frozen=True, kw_only=True):
    """One number for the top of the page; `before` None means that there is nothing to compare it with."""

    label: str
    after: str
    before: str | None = None
    note: str = ""


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

    Raises:
        ValueError: a row has not one text per column.
    """

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    best_rows: tuple[int, ...] = ()
    bars: tuple[Bar, ...] = ()
    bars_label: str = "success"
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for row in self.rows:
            if len(row) != len(self.columns):
                raise ValueError(f"Row {row} of table {self.title!r} does not fit its columns {self.columns}.")


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


def baseline_tables(
    results: Mapping[str, Mapping[str, Any]], *, told: str = SUCCESS, notes: Sequence[str] = ()
) -> tuple[BaselineTable, ...]:
    """One table with bars per scenario of a study's plain mapping; see `mas.observe.results.read_results`.

    Args:
        told: what the numbers are; the best ones are marked of success alone.

    Raises:
        ConfigError: an arm has no mean, or a value of the wrong kind.
    """
    tables = []
    for scenario, arms in read_results(results).items():
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
