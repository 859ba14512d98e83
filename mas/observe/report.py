"""One self-contained HTML page about a run or a study: no script, no external address, light and dark.

Every text is escaped (much of it is model output), the graph is an image, and the page's own content security policy
forbids scripts and all loading. See `mas.observe.report_records` for what a page can say.
"""

import base64
from importlib import resources
from pathlib import Path

import jinja2
import msgspec
from markupsafe import Markup

from mas.core.errors import RunDirectoryError
from mas.observe.atomic import write_text_atomic
from mas.observe.charts import draw_bars, draw_chart, series_colour, series_dash
from mas.observe.progress import format_number
from mas.observe.report_records import BaselineTable, Chart, Report, Series


class _Key(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of a chart's legend."""

    name: str
    colour: str
    dash: str
    last: str


class _Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """A chart with its picture and legend."""

    chart: Chart
    svg: Markup
    legend: tuple[_Key, ...]


class _Tabled(msgspec.Struct, frozen=True, kw_only=True):
    """A table with the picture of its bars, None without bars."""

    table: BaselineTable
    svg: Markup | None


def write_report(path: Path, report: Report) -> None:
    """Write the report as one HTML page, atomically; missing parents are made.

    Raises:
        RunDirectoryError: the page cannot be written there.
    """
    page = render_report(report)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomic(path, page)
    except OSError as error:
        raise RunDirectoryError(
            f"Report {path} cannot be written: {error.strerror or error}. Choose a file in a writable directory."
        ) from error


def render_report(report: Report) -> str:
    """The page as text; the same text for the same report."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(resources.files("mas.observe").joinpath("report.html").read_text("utf-8"))
    return template.render(
        report=report,
        charts=[_drawn(chart, f"chart{number}") for number, chart in enumerate(report.curves)],
        tables=[_tabled(table, f"bars{number}") for number, table in enumerate(report.tables)],
        agent_colours=_agent_colours(report),
        graph=_as_image(report.graph_svg),
    )


def _drawn(chart: Chart, prefix: str) -> _Drawn:
    legend = tuple(
        _Key(name=series.name, colour=series_colour(number), dash=series_dash(number), last=_last(series))
        for number, series in enumerate(chart.series)
    )
    return _Drawn(chart=chart, svg=Markup(draw_chart(chart, prefix=prefix)), legend=legend)


def _last(series: Series) -> str:
    return format_number(series.ys[-1]) if series.ys else ""


def _tabled(table: BaselineTable, prefix: str) -> _Tabled:
    if not table.bars:
        return _Tabled(table=table, svg=None)
    svg = draw_bars(table.bars, label=table.bars_label, title=table.title, prefix=prefix)
    return _Tabled(table=table, svg=Markup(svg))


def _agent_colours(report: Report) -> dict[str, str]:
    """One colour per agent, the same in every conversation of the page."""
    sides = (side for pair in report.conversations for side in (pair.before, pair.after))
    agents = dict.fromkeys(line.agent for side in sides for line in side.lines)
    return {agent: series_colour(number) for number, agent in enumerate(agents)}


def _as_image(svg: str | None) -> str | None:
    return None if svg is None else "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
