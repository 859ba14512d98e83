"""Charts as SVG: for inside a page, without colours of their own, and for a document, as one drawing on white.

For a page matplotlib draws with stand-in colours, which are then replaced by the page's CSS variables `--ink`,
`--muted`, `--line`, `--accent`, `--plain` and `--series-0` to `--series-7`, so that a chart follows its light or dark
mode. The same chart gives the same text, byte by byte.
"""

import io
import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any
from xml.etree import ElementTree

import matplotlib.style
import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import EngFormatter, MaxNLocator

from mas.observe.palette import LIGHT
from mas.observe.report_records import Bar, Chart, Series

_INK, _MUTED, _LINE, _ACCENT, _PLAIN = "#010101", "#010102", "#010103", "#010104", "#010105"
_COMMON_STYLE = {
    "svg.hashsalt": "mas",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
_PAGE_STYLE = {
    **_COMMON_STYLE,
    "font.family": "sans-serif",
    "font.size": 9.5,
    "text.color": _INK,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.labelcolor": _MUTED,
    "axes.edgecolor": _LINE,
    "axes.grid": True,
    "grid.color": _LINE,
    "grid.linewidth": 0.6,
    "xtick.color": _LINE,
    "ytick.color": _LINE,
    "xtick.labelcolor": _MUTED,
    "ytick.labelcolor": _MUTED,
}
DOCUMENT_STYLE = {**_COMMON_STYLE, "font.size": 9.0}


def draw_chart(chart: Chart, *, prefix: str, looks: Sequence[int] | None = None) -> str:
    """One `<svg>` with the chart's curves, bands and seeds; the page draws the legend.

    Args:
        prefix: start of every id in it, unique on the page.
        looks: the number of each curve's colour and dash; None: they are counted.
    """
    with drawing_style(_PAGE_STYLE):
        figure = Figure(figsize=(5.4, 3.1), layout="constrained")
        axes = figure.add_subplot()
        _draw_panel(axes, chart, looks or range(len(chart.series)), _draw_page_series, _short)
        axes.margins(x=0.02)
        _label_ticks(axes, chart.series)
        return _as_inline_svg(figure, chart.title, prefix)


def draw_bars(bars: Sequence[Bar], *, label: str, title: str, prefix: str) -> str:
    """One `<svg>` with a horizontal bar per arm, the first on top, with error bars and the value beside it."""
    with drawing_style(_PAGE_STYLE):
        figure = Figure(figsize=(5.4, 0.75 + 0.42 * len(bars)), layout="constrained")
        axes = figure.add_subplot()
        for number, bar in enumerate(bars):
            spread = bar.std or 0.0
            axes.barh(number, bar.mean, height=0.6, color=_ACCENT if bar.is_best else _PLAIN, zorder=2)
            if spread:
                axes.errorbar(bar.mean, number, xerr=spread, color=_INK, capsize=3, linewidth=1.2, zorder=3)
            at = max(bar.mean + spread, 0.0)
            axes.annotate(f"{bar.mean:.2f}", (at, number), (5, 0), textcoords="offset points", va="center")
        axes.set_yticks(range(len(bars)), [_short(bar.name) for bar in bars])
        axes.tick_params(axis="y", length=0, labelcolor=_INK)
        axes.invert_yaxis()
        axes.margins(x=0.14)
        axes.grid(visible=False, axis="y")
        axes.spines["left"].set_visible(False)
        axes.set_xlabel(_short(label))
        return _as_inline_svg(figure, title, prefix)


@contextmanager
def drawing_style(style: Mapping[str, Any]) -> Iterator[None]:
    """matplotlib's own defaults and a style over them, whatever the user's settings are."""
    with matplotlib.style.context(["default", dict(style)]), warnings.catch_warnings():
        # The browser writes the text: what matplotlib's own font lacks does not matter.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


_LONGEST_LABEL = 30


def _short(label: str) -> str:
    """At most `_LONGEST_LABEL` characters on one line, so that a long name leaves room for the chart."""
    line = " ".join(label.split())
    return line if len(line) <= _LONGEST_LABEL else f"{line[: _LONGEST_LABEL - 1]}…"


SERIES_COLOURS = len(LIGHT)
_DASHES = ("solid", "dashed", "dotted")


def series_colour(number: int) -> str:
    """CSS colour of a chart's n-th curve, for the page's legend; eight colours, then again with other dashes."""
    return f"var(--series-{number % SERIES_COLOURS})"


def series_dash(number: int) -> str:
    """Line style of a chart's n-th curve, by the name that CSS and matplotlib share."""
    return _DASHES[number // SERIES_COLOURS % len(_DASHES)]


def _draw_panel(
    axes: Axes,
    chart: Chart,
    numbers: Iterable[int],
    draw_series: Callable[[Axes, Series, int], None],
    label: Callable[[str], str],
) -> None:
    """A chart's series, by the number of each one's colour and dash, its labels and its range."""
    for series, number in zip(chart.series, numbers, strict=True):
        draw_series(axes, series, number)
    axes.set_xlabel(label(chart.x_label))
    axes.set_ylabel(label(chart.y_label))
    if chart.y_range is not None:
        axes.set_ylim(*chart.y_range)


_SERIES = tuple(f"#0102{number:02d}" for number in range(SERIES_COLOURS))
_FEW_POINTS = 12


def _draw_page_series(axes: Axes, series: Series, number: int) -> None:
    colour = _SERIES[number % SERIES_COLOURS]
    if series.lo is not None and series.hi is not None:
        axes.fill_between(series.xs, series.lo, series.hi, color=colour, alpha=0.14, linewidth=0)
    for seed in series.seeds:
        axes.plot(series.xs, seed, color=colour, alpha=0.35, linewidth=0.7)
    marker = "o" if len(series.xs) <= _FEW_POINTS else None
    axes.plot(series.xs, series.ys, color=colour, linewidth=1.9, linestyle=series_dash(number), marker=marker, ms=3.5)


_LARGE = 10_000


def _label_ticks(axes: Axes, series: Sequence[Series]) -> None:
    xs = [x for one in series for x in one.xs]
    whole = all(float(x).is_integer() for x in xs)
    axes.xaxis.set_major_locator(MaxNLocator(nbins=6, integer=whole))
    if xs and max(xs) >= _LARGE:
        axes.xaxis.set_major_formatter(EngFormatter(sep=""))


def _as_inline_svg(figure: Figure, title: str, prefix: str) -> str:
    """The figure without XML header, metadata, size and namespaces, its ids prefixed, its colours variables."""
    stream = io.StringIO()
    figure.savefig(stream, format="svg", metadata={"Date": None})
    root = ElementTree.fromstring(stream.getvalue())
    for parent in root.iter():
        for child in [child for child in parent if child.tag.endswith(("}metadata", "}style"))]:
            parent.remove(child)
    for element in root.iter():
        element.tag = _without_namespace(element.tag)
        element.attrib = {
            _without_namespace(name): _for_page(_without_namespace(name), value, prefix)
            for name, value in element.attrib.items()
        }
    root.attrib = {"role": "img", "aria-label": title, "viewBox": root.attrib["viewBox"]}
    return ElementTree.tostring(root, encoding="unicode")


def _without_namespace(name: str) -> str:
    return name.rpartition("}")[2]


_VARIABLES = {
    _INK: "--ink", _MUTED: "--muted", _LINE: "--line", _ACCENT: "--accent", _PLAIN: "--plain",
    **{colour: f"--series-{number}" for number, colour in enumerate(_SERIES)},
}  # fmt: skip


def _for_page(name: str, value: str, prefix: str) -> str:
    """One attribute: ids made unique, stand-in colours made variables, the font left to the page."""
    if name == "id":
        return f"{prefix}-{value}"
    if name == "href":
        return f"#{prefix}-{value.removeprefix('#')}"
    value = value.replace("url(#", f"url(#{prefix}-")
    value = re.sub(r"font-family: [^;]*; ?", "", value)
    return re.sub(r"#010[12]\d\d", lambda match: f"var({_VARIABLES[match.group()]})", value)


_HEIGHTS = {1: 4.6, 2: 3.4}
_LOWEST = 2.5
"""Inches of a panel, by the number of columns, and of more."""
_WIDEST = 44
"""Characters of a title or a label before it goes on in the next line."""
_DOCUMENT_COLOURS = tuple(f"C{number}" for number in range(10))


def curves_svg(charts: Sequence[Chart], *, names: Sequence[str] = (), columns: int = 2) -> str:
    """All charts in rows on white; the same charts give the same text.

    Args:
        names: of series that may occur, which fixes their colours whatever is drawn; others get those after them.
        columns: panels in a row, 10 inches wide together.
    """
    found = (series.name for chart in charts for series in chart.series)
    numbers = {name: number for number, name in enumerate(dict.fromkeys([*names, *found]))}
    with drawing_style(DOCUMENT_STYLE):
        lines = -(-len(charts) // columns)
        size = (10.0, _HEIGHTS.get(columns, _LOWEST) * lines)
        figure = Figure(figsize=size, layout="constrained", facecolor="white")
        for chart, axes in zip(charts, figure.subplots(lines, columns, squeeze=False).flat, strict=False):
            _draw_document_panel(axes, chart, [numbers[series.name] for series in chart.series])
        for axes in figure.axes[len(charts) :]:
            axes.set_axis_off()
        return saved_figure(figure, "svg").decode()


def draw_file(chart: Chart, *, looks: Sequence[int], kind: str) -> bytes:
    """One chart on white with its title and legend, in the colours that it has on a page in light mode.

    Args:
        looks: the number of each curve's colour and dash.
        kind: `svg`, or `png` with 200 dots an inch.
    """
    with drawing_style(DOCUMENT_STYLE):
        figure = Figure(figsize=(7.0, 4.2), layout="constrained", facecolor="white")
        axes = figure.add_subplot()
        _draw_document_panel(axes, chart, looks, LIGHT)
        _label_ticks(axes, chart.series)
        for line in axes.lines:
            line.set(marker="o" if np.size(line.get_xdata()) <= _FEW_POINTS else None, markersize=3.5)
        return saved_figure(figure, kind)


def saved_figure(figure: Figure, kind: str) -> bytes:
    """A figure as `svg`, or as `png` with 200 dots an inch, without the time and the program that made it."""
    out = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    figure.savefig(out, format=kind, dpi=200, metadata=metadata)
    return out.getvalue()


def _draw_document_panel(
    axes: Axes, chart: Chart, numbers: Iterable[int], colours: Sequence[str] = _DOCUMENT_COLOURS
) -> None:
    _draw_panel(axes, chart, numbers, partial(_draw_document_series, colours=colours), str)
    axes.set_title(textwrap.fill(chart.title, _WIDEST), loc="left")
    axes.xaxis.set_major_formatter(EngFormatter())
    axes.legend(frameon=False, fontsize=8)


def _draw_document_series(axes: Axes, series: Series, number: int, *, colours: Sequence[str]) -> None:
    colour, dash = colours[number % len(colours)], _DASHES[number // len(colours) % len(_DASHES)]
    label = textwrap.fill(series.name, _WIDEST)
    axes.plot(series.xs, series.ys, label=label, linewidth=1.6, color=colour, linestyle=dash)
    if series.lo is not None and series.hi is not None:
        axes.fill_between(series.xs, series.lo, series.hi, color=colour, alpha=0.15, linewidth=0)
    for seed in series.seeds:
        axes.plot(series.xs, seed, linewidth=0.6, color=colour, alpha=0.45)
