"""A study as files for a document: a Markdown table, and one SVG of all learning curves."""

import io
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter

from mas.observe.report_records import Chart
from mas.study.options import ARMS


def markdown_table(success: Mapping[str, Mapping[str, Any]]) -> str:
    """One row per case and arm: greedy and sampled success with spread, seeds, tokens."""
    rows = ["| case | arm | success, greedy | success, sampled | seeds | tokens |", "|---|---|---|---|---|---|"]
    for case, arms in success.items():
        for arm, result in arms.items():
            sampled = result["sampled"]
            tokens = f"{result['tokens'] / 1e3:,.0f}k" if result["tokens"] else "–"
            rows.append(
                f"| `{case}` | `{arm}` | {result['mean']:.3f} ± {result['std']:.3f} "
                f"| {sampled['mean']:.3f} ± {sampled['std']:.3f} | {len(result['seeds'])} | {tokens} |"
            )
    return "\n".join(rows) + "\n"


def curves_svg(charts: Sequence[Chart]) -> str:
    """All charts side by side on white; the same charts give the same text."""
    with matplotlib.rc_context(
        {
            "svg.hashsalt": "mas",
            "svg.fonttype": "none",
            "font.size": 9.0,
            "axes.spines.top": False,
            "axes.spines.right": False,
        }
    ):
        columns = 2
        lines = -(-len(charts) // columns)
        figure = Figure(figsize=(10.0, 3.4 * lines), layout="constrained", facecolor="white")
        for chart, axes in zip(charts, figure.subplots(lines, columns, squeeze=False).flat, strict=False):
            _draw(axes, chart)
        for axes in figure.axes[len(charts) :]:
            axes.set_axis_off()
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None, "Creator": None})
    return out.getvalue()


def _draw(axes: Axes, chart: Chart) -> None:
    for series in chart.series:
        colour = f"C{list(ARMS).index(series.name)}"
        axes.plot(series.xs, series.ys, label=series.name, linewidth=1.6, color=colour)
        if series.lo is not None and series.hi is not None:
            axes.fill_between(series.xs, series.lo, series.hi, color=colour, alpha=0.15, linewidth=0)
    axes.set_title(chart.title, loc="left")
    axes.set_xlabel(chart.x_label)
    axes.set_ylabel(chart.y_label)
    axes.xaxis.set_major_formatter(EngFormatter())
    if chart.y_range is not None:
        axes.set_ylim(*chart.y_range)
    axes.legend(frameon=False, fontsize=8)
