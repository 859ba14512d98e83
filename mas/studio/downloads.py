"""The metrics of a run as CSV, and as Parquet where pyarrow is installed: a row per step, a column per metric."""

import csv
import io
from collections.abc import Iterator

from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from mas.core.errors import MissingPackage
from mas.observe.figures import has_parquet, parquet_table
from mas.observe.files import text_cell
from mas.studio.metric_columns import MetricColumns
from mas.studio.site import Studio


def routes(studio: Studio) -> list[Route]:
    """`/runs/{run}/metrics.csv` and `/runs/{run}/metrics.parquet`."""
    studio.templates.globals["HAS_PARQUET"] = has_parquet()

    def as_csv(request: Request) -> Response:
        run = studio.run_of(request)
        return StreamingResponse(csv_lines(run.columns()), media_type="text/csv", headers=_saved(f"{run.key}.csv"))

    def as_parquet(request: Request) -> Response:
        run = studio.run_of(request)
        kind = "application/vnd.apache.parquet"
        return Response(parquet(run.columns()), media_type=kind, headers=_saved(f"{run.key}.parquet"))

    return [
        Route("/runs/{run}/metrics.csv", as_csv, methods=["GET"]),
        Route("/runs/{run}/metrics.parquet", as_parquet, methods=["GET"]),
    ]


def _saved(name: str) -> dict[str, str]:
    return {"content-disposition": f'attachment; filename="{name}"'}


def _table(columns: MetricColumns) -> tuple[list[int], dict[str, dict[int, float]]]:
    by_name = {name: dict(columns.points(name)) for name in columns.names}
    return sorted({step for values in by_name.values() for step in values}), by_name


def csv_lines(columns: MetricColumns) -> Iterator[str]:
    """The table as text, line by line; what was not measured at a step is empty. A name that a spreadsheet would take
    for a formula begins with `'`."""
    steps, by_name = _table(columns)
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(["step", *map(text_cell, by_name)])
    for step in steps:
        yield text.getvalue()
        text.seek(0)
        text.truncate()
        writer.writerow([step, *(values.get(step, "") for values in by_name.values())])
    yield text.getvalue()


def parquet(columns: MetricColumns) -> bytes:
    """The table as a Parquet file; what was not measured at a step is null.

    Raises:
        MissingPackage: pyarrow is not installed.
    """
    if not has_parquet():
        raise MissingPackage("Parquet needs pyarrow: pip install 'mas[data]', or take the CSV file")
    steps, by_name = _table(columns)
    rows = [(step, *(values.get(step) for values in by_name.values())) for step in steps]
    return parquet_table(["step", *by_name], rows, ["int64", *["double"] * len(by_name)])
