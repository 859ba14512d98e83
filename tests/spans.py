"""What was traced, read back from its files."""

from pathlib import Path

from mas.observe.span_records import SpanRecord, read_spans
from mas.observe.timeline import traces_of


def spans_in(*places: Path) -> tuple[SpanRecord, ...]:
    return read_spans(places).spans


def tree_of(*places: Path) -> list[str]:
    """The names of all spans, each two spaces further in than the one that it is in, trace after trace."""
    return [f"{'  ' * row.depth}{row.name}" for trace in traces_of(spans_in(*places)) for row in trace.rows]


def one(spans: tuple[SpanRecord, ...], name: str) -> SpanRecord:
    (found,) = (span for span in spans if span.name == name)
    return found
