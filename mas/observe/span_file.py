"""Spans as lines of a file, written as they end: `spans.jsonl` of a run directory.

Each line is a whole OTLP message in JSON, the format of OpenTelemetry's file exporter, which collectors read. It is
handed to the operating system at once: a process that is killed leaves whole lines, but for a torn last one, which
readers ignore and the next writer cuts off.

A file holds `most` spans at most, those of earlier processes included; the last tenth of the room is kept for spans
that are in few others. What finds no room is counted (`masDroppedSpans`, which other readers ignore).
"""

import logging
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
from opentelemetry.context import Context
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.trace import SpanContext, format_span_id, format_trace_id

from mas.core.errors import RunDirectoryError
from mas.observe.span_records import DROPPED

_log = logging.getLogger(__name__)
_NEAR_TOP = 2
"""Spans in fewer others than this are worth more: a run and its episode, an episode and its turns."""


class SpanFile(SpanProcessor):
    """Appends every span that ends.

    Args:
        path: the file; it and its directory are made when missing.
        most: spans that the file may hold.

    Attributes:
        dropped: spans that found no room, those of earlier processes included.

    Raises:
        RunDirectoryError: the file cannot be written there.
    """

    def __init__(self, path: Path, *, most: int) -> None:
        self._path, self._most = path, most
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file: int | None = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o644)
            self._held, self.dropped = _counted(self._file, path.read_bytes())
        except OSError as error:
            raise RunDirectoryError(
                f"{path} cannot be written: {error.strerror or error}. Choose a directory that you may write to."
            ) from error
        self._told = self.dropped
        self._depths: dict[int, int] = {}
        self._resource = msgspec.Raw()

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Note how many spans of this process it is in."""
        parent = -1 if span.parent is None else self._depths.get(span.parent.span_id, -1)
        self._depths[_context(span).span_id] = parent + 1

    def on_end(self, span: ReadableSpan) -> None:
        """Write the span, or count it."""
        is_near_top = self._depths.pop(_context(span).span_id, 0) < _NEAR_TOP
        if self._file is None:
            return
        if self._held < (self._most if is_near_top else 0.9 * self._most):
            self._held += 1
            self._write({"resourceSpans": [self._resource_spans(span)]})
            return
        self.dropped += 1
        if self.dropped >= 2 * self._told:  # seldom enough to keep the file bounded, and right within a factor of two
            self._tell()

    def shutdown(self) -> None:
        """Say how many were dropped, and close the file; a second call does nothing."""
        if self._file is None:
            return
        if self.dropped > self._told:
            self._tell()
        self._close()

    def _resource_spans(self, span: ReadableSpan) -> dict[str, object]:
        if not self._resource:  # the same for all spans of a process
            self._resource = msgspec.Raw(msgspec.json.encode({"attributes": _attributes(span.resource.attributes)}))
        return {"resource": self._resource, "scopeSpans": [{"scope": {"name": "mas"}, "spans": [_span(span)]}]}

    def _tell(self) -> None:
        self._write({"resourceSpans": [], DROPPED: self.dropped})
        self._told = self.dropped

    def _write(self, message: Mapping[str, object]) -> None:
        """One line. A disk that takes no more ends the file with a word in the log: what is traced must go on."""
        assert self._file is not None
        line = msgspec.json.encode(message) + b"\n"
        try:
            if os.write(self._file, line) == len(line):
                return
            cause = "the disk took only a part of a line"
        except OSError as error:
            cause = error.strerror or str(error)
        _log.error("%s ends here, further spans are not written: %s", self._path, cause)
        self._close()

    def _close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None


def _counted(file: int, content: bytes) -> tuple[int, int]:
    """Spans that the file holds, and those that it says were dropped; a torn last line is cut off."""
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.ftruncate(file, whole)
    lines = content[:whole].splitlines()
    notes = [msgspec.json.decode(line)[DROPPED] for line in lines if f'"{DROPPED}"'.encode() in line]
    return len(lines) - len(notes), max(notes, default=0)


def _span(span: ReadableSpan) -> dict[str, object]:
    status = span.status
    return {
        **_ids(_context(span)),
        "parentSpanId": "" if span.parent is None else format_span_id(span.parent.span_id),
        "name": span.name,
        "kind": span.kind.value + 1,  # OTLP has 0 for unspecified
        "startTimeUnixNano": str(span.start_time),
        "endTimeUnixNano": str(span.end_time),
        "attributes": _attributes(span.attributes),
        "events": [
            {"timeUnixNano": str(event.timestamp), "name": event.name, "attributes": _attributes(event.attributes)}
            for event in span.events
        ],
        "links": [_ids(link.context) for link in span.links],
        "status": {"code": status.status_code.value, "message": status.description or ""},
    }


def _context(span: ReadableSpan) -> SpanContext:
    context = span.get_span_context()
    assert context is not None  # only spans that were made by hand have none
    return context


def _ids(context: SpanContext) -> dict[str, str]:
    return {"traceId": format_trace_id(context.trace_id), "spanId": format_span_id(context.span_id)}


def _attributes(attributes: Mapping[str, Any] | None) -> list[dict[str, object]]:
    return [{"key": key, "value": _value(value)} for key, value in (attributes or {}).items()]


def _value(value: Any) -> dict[str, object]:
    if isinstance(value, bool):
        return {"boolValue": value}
    if isinstance(value, int):
        return {"intValue": str(value)}  # JSON's numbers may be too short for 64 bits
    if isinstance(value, float):
        return {"doubleValue": value}
    if isinstance(value, Sequence) and not isinstance(value, str):
        return {"arrayValue": {"values": [_value(one) for one in value]}}
    return {"stringValue": str(value)}
