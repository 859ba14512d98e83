"""A benchmark's rows as a picture: bars of speed and cost; a learner's sweeps as lines over their points."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import matplotlib.style
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from benchmarks.result import Result, Row, check_writable
from mas.core.errors import ConfigError, RunDirectoryError

_SUFFIXES = (".svg", ".png")
_PEAK = "peak_mib"
_STYLE = {
    "svg.hashsalt": "mas",
    "svg.fonttype": "none",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
}


def check_plot(path: Path) -> None:
    """Find out before minutes of measuring whether a picture can be drawn there.

    Raises:
        ConfigError: its name has another ending.
        RunDirectoryError: it cannot be written.
    """
    if path.suffix not in _SUFFIXES:
        raise ConfigError(f"--plot {path}: a picture ends with {' or '.join(_SUFFIXES)}")
    check_writable(path)


def write_plot(path: Path, result: Result) -> None:
    """Two charts a workload, tokens per second and memory; the same result gives the same picture.

    Raises:
        RunDirectoryError: it cannot be written.
    """
    sizes = list(dict.fromkeys(row.size for row in result.rows))
    with matplotlib.style.context(["default", _STYLE]):
        figure = Figure(figsize=(10.0, 2.8 * len(sizes)), layout="constrained", facecolor="white")
        for size, (left, right) in zip(sizes, figure.subplots(len(sizes), 2, squeeze=False), strict=True):
            rows = [row for row in result.rows if row.size == size and row.median is not None]
            _draw_speed(left, rows, result.workload[size])
            _draw_memory(right, rows, result.workload[size])
        _save(path, figure)


def write_bars(path: Path, result: Result, measure: str) -> None:
    """Two charts a workload, units per second and one measure; the same result gives the same picture.

    Raises:
        RunDirectoryError: it cannot be written.
    """
    sizes = list(dict.fromkeys(row.size for row in result.rows))
    with matplotlib.style.context(["default", _STYLE]):
        figure = Figure(figsize=(10.0, 1.6 * len(sizes)), layout="constrained", facecolor="white")
        for size, (left, right) in zip(sizes, figure.subplots(len(sizes), 2, squeeze=False), strict=True):
            rows = [row for row in result.rows if row.size == size and row.median is not None]
            unit = next(row.unit for row in result.rows if row.size == size)
            _draw_rates(left, rows, f"{size}: {unit} per second")
            costs = [row.measures.get(measure, 0.0) for row in rows]
            right.set_title(f"{size}: {measure.replace('_', ' ')}", loc="left")
            _bars(right, rows, costs, costs)
        _save(path, figure)


def _save(path: Path, figure: Figure) -> None:
    metadata = {"Date": None, "Creator": None} if path.suffix == ".svg" else None
    try:
        figure.savefig(path, metadata=metadata, dpi=150)
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be written: {error.strerror}") from error


def _draw_speed(axes: Axes, rows: Sequence[Row], workload: dict[str, Any]) -> None:
    """Medians with the least and the most of all rounds."""
    title = f"{workload['name']}: tokens per second"
    if workload["sweep"] is None:
        _draw_rates(axes, rows, title)
    else:
        axes.set_title(title, loc="left")
        values = workload["sweep"]["values"]
        axes.errorbar(values, [row.median or 0.0 for row in rows], yerr=_spread(rows), marker="o", capsize=3)
        _label_points(axes, workload)


def _draw_rates(axes: Axes, rows: Sequence[Row], title: str) -> None:
    """Bars of medians, with the least and the most of all rounds."""
    medians = [row.median or 0.0 for row in rows]
    axes.set_title(title, loc="left")
    _bars(axes, rows, medians, [row.max or 0.0 for row in rows])
    axes.errorbar(medians, range(len(rows)), xerr=_spread(rows), fmt="none", color="0.2", capsize=3)


def _spread(rows: Sequence[Row]) -> list[list[float]]:
    """How far the least is below the median, and the most above it."""
    below = [(row.median or 0.0) - (row.min or 0.0) for row in rows]
    above = [(row.max or 0.0) - (row.median or 0.0) for row in rows]
    return [below, above]


def _draw_memory(axes: Axes, rows: Sequence[Row], workload: dict[str, Any]) -> None:
    """Peaks, where they were measured."""
    peaks = [row.measures.get(_PEAK, 0.0) for row in rows]
    axes.set_title(f"{workload['name']}: MiB of a step", loc="left")
    if workload["sweep"] is None:
        _bars(axes, rows, peaks, peaks)
    else:
        axes.plot(workload["sweep"]["values"], peaks, marker="o")
        _label_points(axes, workload)


def _bars(axes: Axes, rows: Sequence[Row], widths: Sequence[float], ends: Sequence[float]) -> None:
    """One horizontal bar a row, the first on top and in another colour, its number behind `ends`."""
    colours = ["C0" if number == 0 else "0.75" for number in range(len(rows))]
    axes.barh(range(len(rows)), widths, height=0.6, color=colours)
    for number, (width, end) in enumerate(zip(widths, ends, strict=True)):
        axes.annotate(f"{width:,.0f}", (end, number), (6, 0), textcoords="offset points", va="center")
    axes.set_yticks(range(len(rows)), [row.name for row in rows])
    axes.invert_yaxis()
    axes.margins(x=0.2)


def _label_points(axes: Axes, workload: dict[str, Any]) -> None:
    values = workload["sweep"]["values"]
    axes.set_xscale("log", base=2)
    axes.set_xticks(values, [str(value) for value in values])
    axes.set_xlabel(workload["sweep"]["over"])
    axes.set_ylim(0.0, 1.08 * axes.dataLim.ymax)  # room for the highest point and its bar
