"""Curves for a document: charts as one SVG on white."""

import io
import textwrap
from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from mas.observe.charts import drawing_style
from mas.observe.report_records import Chart

_STYLE = {
    "svg.hashsalt": "mas",
    "svg.fonttype": "none",
    "font.size": 9.0,
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_COLOURS = 10
_DASHES = ("solid", "dashed", "dotted")
_HEIGHTS = {1: 4.6, 2: 3.4}
_LOWEST = 2.5
"""Inches of a panel, by the number of columns, and of more."""
_WIDEST = 44
"""Characters of a title or a label before it goes on in the next line."""


def curves_svg(charts: Sequence[Chart], *, names: Sequence[str] = (), columns: int = 2) -> str:
    """All charts in rows on white; the same charts give the same text.

    Args:
        names: of series that may occur, which fixes their colours whatever is drawn; others get those after them.
        columns: panels in a row, 10 inches wide together.
    """
    found = (series.name for chart in charts for series in chart.series)
    numbers = {name: number for number, name in enumerate(dict.fromkeys([*names, *found]))}
    with drawing_style(_STYLE):
        lines = -(-len(charts) // columns)
        size = (10.0, _HEIGHTS.get(columns, _LOWEST) * lines)
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        for chart, axes in zip(charts, figure.subplots(lines, columns, squeeze=False).flat, strict=False):
            _draw(axes, chart, numbers)
        for axes in figure.axes[len(charts) :]:
            axes.set_axis_off()
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def _draw(axes: Axes, chart: Chart, numbers: Mapping[str, int]) -> None:
    for series in chart.series:
        number = numbers[series.name]
        colour, dash = f"C{number % _COLOURS}", _DASHES[number // _COLOURS % len(_DASHES)]
        axes.plot(
            series.xs, series.ys, label=textwrap.fill(series.name, _WIDEST), linewidth=1.6, color=colour, linestyle=dash
        )
        if series.lo is not None and series.hi is not None:
            axes.fill_between(series.xs, series.lo, series.hi, color=colour, alpha=0.15, linewidth=0)
        for seed in series.seeds:
            axes.plot(series.xs, seed, linewidth=0.6, color=colour, alpha=0.45)
    axes.set_title(textwrap.fill(chart.title, _WIDEST), loc="left")
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.xaxis.set_major_formatter(EngFormatter())
    if chart.y_range is not None:
        axes.set_ylim(*chart.y_range)
    axes.legend(frameon=False, fontsize=8)
