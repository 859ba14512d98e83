"""The charts of a report as files beside its page: each as SVG and as PNG, the points of all as CSV and Parquet."""

import csv
import io
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from mas.observe.charts import draw_file
from mas.observe.files import text_cell, write_directory_atomic, writing
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
    files[f"{DATA}.csv"] = csv_table(COLUMNS, rows)
    if has_parquet():
        files[f"{DATA}.parquet"] = parquet_table(COLUMNS, rows, _KINDS)
    with writing(folder / FOLDER, "."):
        write_directory_atomic(folder / FOLDER, files)
    return msgspec.structs.replace(report, files=tuple(f"{FOLDER}/{name}" for name in files))


_Row = tuple[str, str, str, str, float, float, float | None, float | None]
_KINDS = (*["string"] * 4, *["double"] * 4)


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


def csv_table(columns: Sequence[str], rows: Sequence[Sequence[Any]]) -> bytes:
    """The rows below the names of the columns, with texts that no spreadsheet takes for formulas."""
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows([text_cell(cell) if isinstance(cell, str) else cell for cell in row] for row in rows)
    return text.getvalue().encode()


def parquet_table(columns: Sequence[str], rows: Sequence[Sequence[Any]], kinds: Sequence[str] | None = None) -> bytes:
    """The rows with pyarrow, which must be installed.

    Args:
        kinds: of the columns, by the names of Arrow's types; None: as the values have them.
    """
    import pyarrow
    from pyarrow.parquet import write_table

    arrays = [
        pyarrow.array([row[at] for row in rows], None if kinds is None else pyarrow.type_for_alias(kinds[at]))
        for at in range(len(columns))
    ]
    out = io.BytesIO()
    write_table(pyarrow.table(arrays, names=list(columns)), out)
    return out.getvalue()
