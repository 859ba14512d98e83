"""Traces as rows, each span below the one that it is in, and for people: a waterfall in the terminal, and one
self-contained HTML page without a script.

Every text of a span is escaped, and printed as it is, never as markup.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path

import jinja2
import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

from mas.core.printable import printable
from mas.observe.files import write_text_atomic, writing
from mas.observe.span_records import SpanEvent, SpanRecord

_MISSING = "(missing)"
"""Names a span that did not end, as its process was killed, or whose file is not given."""
_BAR = 40
"""Characters of the longest bar in a wide terminal; in a narrow one a third of it."""
_MS, _PROCESS, _BETWEEN = 9, 24, 6
"""Characters of a number of milliseconds, of a process, and between the columns."""
_NUMBERS = 75
"""Characters of a line of the list beside the name."""
_PARTS = " ▏▎▍▌▋▊▉█"
_LEAST_PERCENT = 0.15
"""Width of a bar on the page, so that none vanishes."""


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


def print_list(console: Console, traces: Sequence[Trace]) -> None:
    """One line per trace, the earliest first."""
    table = Table(title=f"{len(traces)} traces, the earliest first")
    table.add_column("trace", no_wrap=True, min_width=12)
    table.add_column("began (UTC)", no_wrap=True)
    table.add_column("first span", no_wrap=True, overflow="ellipsis", max_width=max(10, console.width - _NUMBERS))
    for column in ("seconds", "spans", "errors"):
        table.add_column(column, justify="right", no_wrap=True)
    for trace in traces:
        numbers = (f"{trace.seconds:.3f}", str(len(trace.rows)), str(trace.errors))
        table.add_row(trace.id[:12], _when(trace), Text(_title(trace)), *numbers)
    console.print(table)


def print_waterfall(console: Console, trace: Trace, most: int) -> None:
    """The trace, a line per span and event; `most` spans at most, 0: all."""
    shown = trace.rows[:most] if most else trace.rows
    table = Table(title=Text(f"{_title(trace)}  trace {trace.id}  {_when(trace)}"), box=None, pad_edge=False)
    width, has_processes = min(_BAR, console.width // 3), len(trace.processes) > 1
    others = width + _MS + (_PROCESS if has_processes else 0) + _BETWEEN
    table.add_column("span", no_wrap=True, overflow="ellipsis", max_width=max(_MS, console.width - others))
    if has_processes:
        table.add_column("process", no_wrap=True, overflow="ellipsis", max_width=_PROCESS)
    table.add_column("ms", justify="right", no_wrap=True, min_width=_MS)
    table.add_column("0" + f"{1e3 * trace.seconds:.1f} ms".rjust(width - 1), no_wrap=True, width=width)
    colours = _colours(trace)
    for row in shown:
        bar = Text(_bar(row, trace.seconds, width), style="red" if row.error else colours.get(row.process, ""))
        process = [Text(row.process, style="dim")] if has_processes else []
        table.add_row(_named(row), *process, f"{1e3 * row.seconds:.1f}", bar)
        for event in row.events:
            said = Text(f"{'  ' * (row.depth + 1)}· {event.name} {spoken(event.attributes)}", style="yellow")
            table.add_row(said)
    console.print(table)
    if len(shown) < len(trace.rows):
        console.print(f"{len(trace.rows) - len(shown)} more spans: --rows 0 shows all", style="dim")


def write_page(path: Path, traces: Sequence[Trace], *, dropped: int, most: int) -> None:
    """Write traces as one HTML page, atomically; `most` spans at most, 0: all.

    Raises:
        RunDirectoryError: the page cannot be written there.
    """
    with writing(f"Timeline {path}", ". Choose a file in a writable directory."):
        path.parent.mkdir(parents=True, exist_ok=True)
        write_text_atomic(path, render_page(traces, dropped=dropped, most=most))


def render_page(traces: Sequence[Trace], *, dropped: int = 0, most: int = 0) -> str:
    """The page as text."""
    environment = jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True
    )
    template = environment.from_string(resources.files("mas.observe").joinpath("timeline.html").read_text("utf-8"))
    shown, left = [], most or sum(len(trace.rows) for trace in traces)
    for trace in traces:
        shown.append(msgspec.structs.replace(trace, rows=trace.rows[:left]))
        left -= len(shown[-1].rows)
    processes = dict.fromkeys(process for trace in traces for process in trace.processes)
    return template.render(
        traces=shown,
        hidden=sum(len(trace.rows) for trace in traces) - sum(len(trace.rows) for trace in shown),
        dropped=dropped,
        colours={process: number % 8 for number, process in enumerate(processes)},
        when=_when,
        place=_place,
        spoken=spoken,
    )


def _title(trace: Trace) -> str:
    note = trace.rows[0].note if trace.rows else ""
    return printable(f"{trace.name} {note}".strip())


def _when(trace: Trace) -> str:
    return datetime.fromtimestamp(trace.begin_ns / 1e9, UTC).isoformat(sep=" ", timespec="milliseconds")[:23]


def _place(row: TimelineRow, trace: Trace) -> tuple[float, float]:
    """Where the row's bar begins and how long it is, in percent of the trace."""
    whole = trace.seconds or 1.0
    begin = min(100.0 * row.begin_s / whole, 100.0 - _LEAST_PERCENT)
    return round(begin, 3), round(max(min(100.0 * row.seconds / whole, 100.0 - begin), _LEAST_PERCENT), 3)


def _named(row: TimelineRow) -> Text:
    name = Text("  " * row.depth)
    name.append(printable(row.name), style="bold red" if row.error else "bold" if row.depth == 0 else "")
    if row.note:
        name.append(printable(f"  {row.note}"), style="dim")
    if row.error:
        name.append(printable(f"  {row.error}"), style="red")
    if row.links:
        name.append(f"  {len(row.links)} linked", style="dim")
    return name


def _bar(row: TimelineRow, seconds: float, width: int) -> str:
    """The row's place among so many characters; its length to an eighth of one."""
    whole = seconds or 1.0
    begin = min(int(width * row.begin_s / whole), width - 1)
    eighths = max(1, min(round(8 * width * row.seconds / whole), 8 * (width - begin)))
    return " " * begin + "█" * (eighths // 8) + _PARTS[eighths % 8].strip()


def _colours(trace: Trace) -> dict[str, str]:
    names = ("cyan", "green", "magenta", "blue", "bright_cyan", "bright_green", "bright_magenta", "bright_blue")
    return {process: names[number % len(names)] for number, process in enumerate(trace.processes)}
