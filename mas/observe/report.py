"""One self-contained HTML page about a run or a study: no script, no external address, light and dark.

Every text is escaped (much of it is model output), the graph is an image, and the page's own content security policy
forbids scripts and all loading. See `mas.observe.report_records` for what a page can say.
"""

import base64
from collections.abc import Mapping, Sequence
from importlib import resources
from itertools import count
from pathlib import Path, PurePosixPath

import jinja2
from markupsafe import Markup

from mas.core.naming import agent_of
from mas.observe.charts import draw_bars, draw_chart, series_colour, series_dash
from mas.observe.files import write_text_atomic, writing
from mas.observe.palette import role_numbers
from mas.observe.progress import format_number
from mas.observe.report_records import BaselineTable, Chart, Report, Series, figure_names


def write_report(path: Path, report: Report) -> None:
    """Write the report as one HTML page, atomically; missing parents are made.

    Raises:
        RunDirectoryError: the page cannot be written there.
    """
    page = render_report(report)
    with writing(f"Report {path}", ". Choose a file in a writable directory."):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomic(path, page)


def render_report(report: Report) -> str:
    """The page as text; the same text for the same report."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    files = resources.files("mas.observe")
    template = environment.from_string(files.joinpath("report.html").read_text("utf-8"))
    return template.render(
        report=report,
        palette=Markup(files.joinpath("palette.css").read_text("utf-8")),
        charts=[
            _drawn(chart, f"chart{number}", chart_looks(chart, report), _named(report.files, name))
            for number, (chart, name) in enumerate(zip(report.curves, figure_names(report.curves), strict=True))
        ],
        points=_named(report.files, "curves"),
        tables=[_tabled(table, f"bars{number}") for number, table in enumerate(report.tables)],
        agent_colours=_agent_colours(report),
        graph=_as_image(report.graph_svg),
    )


def _named(files: Sequence[str], name: str) -> dict[str, str]:
    """The files of one name, by their kind: `{"SVG": "figures/reward-of-the-team.svg"}`."""
    paths = [PurePosixPath(file) for file in files]
    return {path.suffix[1:].upper(): str(path) for path in paths if path.stem == name}


def _drawn(chart: Chart, prefix: str, looks: Sequence[int], files: Mapping[str, str]) -> dict[str, object]:
    """A chart with its picture and legend, and its files beside the page, by their kind in capitals."""
    legend = [
        {"name": series.name, "colour": series_colour(number), "dash": series_dash(number), "last": _last(series)}
        for number, series in zip(looks, chart.series, strict=True)
    ]
    svg = Markup(draw_chart(chart, prefix=prefix, looks=looks))
    return {"chart": chart, "svg": svg, "legend": legend, "files": files}


def chart_looks(chart: Chart, report: Report) -> list[int]:
    """The look of each curve: a role's is its own on the whole page, the others take those that no role has."""
    roles = role_numbers(report.roles)
    others = count(len(roles))
    return [roles[series.name] if series.name in roles else next(others) for series in chart.series]


def _last(series: Series) -> str:
    return format_number(series.ys[-1]) if series.ys else ""


def _tabled(table: BaselineTable, prefix: str) -> dict[str, object]:
    """A table with the picture of its bars, None without bars."""
    svg = None
    if table.bars:
        svg = Markup(draw_bars(table.bars, label=table.bars_label, title=table.title, prefix=prefix))
    return {"table": table, "svg": svg}


def _agent_colours(report: Report) -> dict[str, str]:
    """One colour per agent: its role's, or one of its own if it has none; the same in every conversation."""
    sides = (side for pair in report.conversations for side in (pair.before, pair.after))
    agents = dict.fromkeys(line.agent for side in sides for line in side.lines)
    roles = role_numbers(report.roles)
    others = count(len(roles))
    role_of = {agent: report.roles.get(agent_of(agent)) for agent in agents}
    return {agent: series_colour(next(others) if role is None else roles[role]) for agent, role in role_of.items()}


def _as_image(svg: str | None) -> str | None:
    return None if svg is None else "data:image/svg+xml;base64," + base64.b64encode(svg.encode()).decode()
