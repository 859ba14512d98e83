"""Traces as rows, each span below the one that it is in: what a timeline shows, wherever it is shown."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from mas.core.text import printable
from mas.observe.span_records import SpanEvent, SpanRecord

_MISSING = "(missing)"
"""Names a span that did not end, as its process was killed, or whose file is not given."""


class TimelineRow(msgspec.Struct, frozen=True, kw_only=True):
    """One span in its trace.

    Attributes:
        depth: spans that it is in.
        begin_s: after the beginning of the trace; seconds: how long it took.
        note: tokens, adapter and what else is worth a glance.
        error: what it failed with, None where it did not.
    """

    name: str
    process: str
    depth: int
    begin_s: float
    seconds: float
    note: str
    error: str | None
    attributes: Mapping[str, object]
    events: tuple[SpanEvent, ...]
    links: tuple[tuple[str, str], ...]


class Trace(msgspec.Struct, frozen=True, kw_only=True):
    """All that is known of one trace. `begin_ns`: since 1970, on the clock of the process that began first."""

    id: str
    name: str
    begin_ns: int
    seconds: float
    errors: int
    processes: tuple[str, ...]
    rows: tuple[TimelineRow, ...]


def traces_of(spans: Iterable[SpanRecord]) -> tuple[Trace, ...]:
    """The traces that spans belong to, the earliest first."""
    by_trace: defaultdict[str, list[SpanRecord]] = defaultdict(list)
    for span in spans:
        by_trace[span.trace].append(span)
    traces = [_trace(name, found) for name, found in by_trace.items()]
    return tuple(sorted(traces, key=lambda trace: trace.begin_ns))


def _trace(name: str, spans: Sequence[SpanRecord]) -> Trace:
    known = {span.id for span in spans}
    children: defaultdict[str | None, list[SpanRecord]] = defaultdict(list)
    for span in spans:
        children[span.parent].append(span)
    for missing in [parent for parent in children if parent is not None and parent not in known]:
        children[None].append(_stand_in(missing, children[missing]))
    begin_ns = min(span.begin_ns for span in spans)
    rows = _rows(children, begin_ns)
    return Trace(
        id=name,
        name=rows[0].name if rows else _MISSING,  # no row: spans that are in each other
        begin_ns=begin_ns,
        seconds=(max(span.end_ns for span in spans) - begin_ns) / 1e9,
        errors=sum(span.error is not None for span in spans),
        processes=tuple(dict.fromkeys(row.process for row in rows if row.process)),
        rows=rows,
    )


def _rows(children: Mapping[str | None, Sequence[SpanRecord]], begin_ns: int) -> tuple[TimelineRow, ...]:
    """Depth first, children in the order of their beginning."""
    rows: list[TimelineRow] = []
    left = [(0, span) for span in _latest_first(children.get(None, ()))]
    while left:
        depth, span = left.pop()
        rows.append(_row(span, depth, begin_ns))
        left += [(depth + 1, child) for child in _latest_first(children.get(span.id, ()))]
    return tuple(rows)


def _latest_first(spans: Iterable[SpanRecord]) -> list[SpanRecord]:
    return sorted(spans, key=lambda span: span.begin_ns, reverse=True)


def _stand_in(missing: str, spans: Sequence[SpanRecord]) -> SpanRecord:
    """A span that is known by those in it alone: its process was killed, or its file is not here."""
    return SpanRecord(
        trace=spans[0].trace,
        id=missing,
        parent=None,
        name=_MISSING,
        process="",
        begin_ns=min(span.begin_ns for span in spans),
        end_ns=max(span.end_ns for span in spans),
        attributes={},
        events=(),
        links=(),
        error=None,
    )


def _row(span: SpanRecord, depth: int, begin_ns: int) -> TimelineRow:
    return TimelineRow(
        name=span.name,
        process=span.process,
        depth=depth,
        begin_s=(span.begin_ns - begin_ns) / 1e9,
        seconds=max(0, span.end_ns - span.begin_ns) / 1e9,
        note=_note(span.attributes),
        error=span.error,
        attributes=span.attributes,
        events=span.events,
        links=span.links,
    )


def _note(attributes: Mapping[str, object]) -> str:
    known = attributes.get
    words = []
    if "gen_ai.usage.input_tokens" in attributes:
        words.append(f"{known('gen_ai.usage.input_tokens')}+{known('gen_ai.usage.output_tokens', '?')} tokens")
    if "mas.adapter.name" in attributes:
        words.append(f"{known('mas.adapter.name')}@{known('mas.adapter.version', '?')}")
    if "mas.step" in attributes:
        words.append(f"{known('mas.step')}")
    if "mas.imagined" in attributes:
        words.append("imagined")
    return ", ".join(words)


def spoken(attributes: Mapping[str, object]) -> str:
    """Attributes in one line."""
    return printable(", ".join(f"{name.removeprefix('mas.')} {value}" for name, value in attributes.items()))
