"""The charts of a report as files beside its page: each as SVG and as PNG, the points of all as CSV and Parquet."""

import csv
import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

import msgspec

from mas.core.errors import RunDirectoryError
from mas.observe.charts import draw_file
from mas.observe.files import text_cell, write_directory_atomic
from mas.observe.report import chart_looks
from mas.observe.report_records import Chart, Report, figure_names

FOLDER = "figures"
DATA = "curves"
COLUMNS = ("figure", "series", "x_label", "y_label", "x", "y", "low", "high")
"""Of `curves.csv` and `curves.parquet`: one row per point; `low` and `high` bound the band of several seeds."""


def has_parquet() -> bool:
    """Whether pyarrow is installed, which writes Parquet."""
    return find_spec("pyarrow") is not None


def write_figures(folder: Path, report: Report) -> Report:
    """Write `figures/` into the page's folder, in place of an older one, whole or not at all.

    Returns:
        The report with the names of the files, to which its page links.

    Raises:
        RunDirectoryError: the files cannot be written there.
    """
    files: dict[str, bytes] = {}
    for name, chart in zip(figure_names(report.curves), report.curves, strict=True):
        for kind in ("svg", "png"):
            files[f"{name}.{kind}"] = draw_file(chart, looks=chart_looks(chart, report), kind=kind)
    rows = _rows(report.curves)
    files[f"{DATA}.csv"] = _csv(rows)
    if has_parquet():
        files[f"{DATA}.parquet"] = _parquet(rows)
    try:
        write_directory_atomic(folder / FOLDER, files)
    except OSError as error:
        raise RunDirectoryError(f"{folder / FOLDER} cannot be written: {error.strerror or error}.") from error
    return msgspec.structs.replace(report, files=tuple(f"{FOLDER}/{name}" for name in files))


_Row = tuple[str, str, str, str, float, float, float | None, float | None]


def _rows(charts: Sequence[Chart]) -> list[_Row]:
    return [
        (
            chart.title,
            series.name,
            chart.x_label,
            chart.y_label,
            float(x),
            float(y),
            _at(series.lo, n),
            _at(series.hi, n),
        )
        for chart in charts
        for series in chart.series
        for n, (x, y) in enumerate(zip(series.xs, series.ys, strict=True))
    ]


def _at(bounds: Sequence[float] | None, number: int) -> float | None:
    return None if bounds is None else float(bounds[number])


def _csv(rows: Sequence[_Row]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(COLUMNS)
    writer.writerows((*(text_cell(cell) for cell in row[:4]), *row[4:]) for row in rows)
    return text.getvalue().encode()


def _parquet(rows: Sequence[_Row]) -> bytes:
    import pyarrow
    from pyarrow.parquet import write_table

    kinds = [pyarrow.string()] * 4 + [pyarrow.float64()] * 4
    columns = list(zip(*rows, strict=True)) or [()] * len(COLUMNS)
    arrays = [pyarrow.array(column, kind) for column, kind in zip(columns, kinds, strict=True)]
    out = io.BytesIO()
    write_table(pyarrow.table(arrays, names=list(COLUMNS)), out)
    return out.getvalue()
