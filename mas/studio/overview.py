"""The list of all runs, the page of one with its curves, and the page with all its metrics."""

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from mas.studio.figures import FigureSection, sections_of
from mas.studio.metric_columns import MetricColumns
from mas.studio.metric_meanings import Meaning, meaning_of, order_of
from mas.studio.run_summary import AgainCommands, adapter_rows, key_numbers, row_of, time_spent
from mas.studio.site import Link, Studio

JSON = "application/json"


class Drawn(msgspec.Struct, frozen=True, kw_only=True):
    """What figures are drawn from. `version` is another text whenever anything in them is."""

    version: str
    sections: Sequence[FigureSection]


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricRow:
    """One metric of a run: its course in numbers, and what it means (None: nobody has written that down)."""

    name: str
    first: float
    last: float
    least: float
    greatest: float
    meaning: Meaning | None


def routes(studio: Studio) -> list[Route]:
    """`/`, and of a run its page, the head of that page, its figures as JSON, and its metrics."""
    studio.links.append(Link("Runs", "/"))
    studio.run_links += [Link("Curves", ""), Link("Metrics", "/metrics")]
    again = AgainCommands()

    def every(request: Request) -> Response:
        rows = sorted((row_of(run) for run in studio.runs.all()), key=lambda row: -row.changed_s)
        leagues = studio.leagues.rows()
        return studio.page(request, "overview.html", rows=rows, places=studio.runs.places, leagues=leagues)

    def one(request: Request) -> Response:
        run = studio.run_of(request)
        columns = run.columns()
        status = run.status()
        return studio.page(
            request,
            "run.html",
            run=run,
            row=row_of(run),
            standing=status,
            team=run.team,
            numbers=key_numbers(columns, status),
            spent=time_spent(columns),
            adapters=adapter_rows(run, columns),
            damaged=columns.damaged,
            first_damaged=columns.first_damaged,
            is_over_tokens=request.query_params.get("x") == "tokens",
            command=again.of(run),
        )

    def figures(request: Request) -> Response:
        run = studio.run_of(request)
        columns, looks = run.columns(), run.looks
        version = f"{columns.version}-{len(looks)}"
        if request.query_params.get("version") == version:
            return Response(status_code=204)
        is_over_tokens = request.query_params.get("x") == "tokens"
        drawn = Drawn(version=version, sections=sections_of(columns, looks, is_over_tokens=is_over_tokens))
        return Response(msgspec.json.encode(drawn), media_type=JSON)

    def metrics(request: Request) -> Response:
        run = studio.run_of(request)
        return studio.page(request, "metrics.html", run=run, metrics=metric_rows(run.columns()))

    return [
        Route("/", every, methods=["GET"]),
        Route("/runs/{run}", one, methods=["GET"]),
        Route("/runs/{run}/figures.json", figures, methods=["GET"]),
        Route("/runs/{run}/metrics", metrics, methods=["GET"]),
    ]


def metric_rows(columns: MetricColumns) -> list[MetricRow]:
    """Every metric of a run, in the order of the table of meanings."""
    rows = []
    for name in sorted(columns.names, key=order_of):
        values = [value for _, value in columns.points(name)]
        rows.append(
            MetricRow(
                name=name,
                first=values[0],
                last=values[-1],
                least=min(values),
                greatest=max(values),
                meaning=meaning_of(name),
            )
        )
    return rows
