"""Spans read back from files, those of several processes together, and how such a file is called. Needs no
OpenTelemetry.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from mas.core.errors import RunDirectoryError

SPANS_NAME = "spans.jsonl"
DROPPED = "masDroppedSpans"
"""Key of a line that says how many spans found no room."""


_ERROR = 2
"""Code of a span's status."""


class SpanEvent(msgspec.Struct, frozen=True, kw_only=True):
    """Something that happened during a span."""

    name: str
    at_ns: int
    attributes: Mapping[str, object]


class SpanRecord(msgspec.Struct, frozen=True, kw_only=True):
    """One span that ended. Times are nanoseconds since 1970 on its process's clock.

    Attributes:
        parent: id of the span that it is in, None for the first of a trace.
        links: (trace, id) of spans that it has to do with.
        error: the type of what it failed with, with the message where there is one; None: it did not fail.
    """

    trace: str
    id: str
    parent: str | None
    name: str
    process: str
    begin_ns: int
    end_ns: int
    attributes: Mapping[str, object]
    events: tuple[SpanEvent, ...]
    links: tuple[tuple[str, str], ...]
    error: str | None


class SpanLog(msgspec.Struct, frozen=True, kw_only=True):
    """What some files hold. `dropped`: spans that they had no room for; after a kill, at least half of them."""

    spans: tuple[SpanRecord, ...]
    dropped: int


def read_spans(paths: Sequence[Path]) -> SpanLog:
    """The spans of files, or of run directories that have one, each once, in the order of their beginning.

    Raises:
        RunDirectoryError: there is no such file, or a line other than the last does not parse.
    """
    spans: dict[tuple[str, str], SpanRecord] = {}
    dropped = 0
    for path in dict.fromkeys(path / SPANS_NAME if path.is_dir() else path for path in paths):
        highest = 0
        for number, message in _messages(path):
            try:
                highest = max(highest, message.get(DROPPED, 0))
                spans |= {(span.trace, span.id): span for span in _spans(message)}
            except (KeyError, TypeError, ValueError, AttributeError) as error:
                raise _damaged(path, number, f"no spans: {error!r}") from error
        dropped += highest
    return SpanLog(spans=tuple(sorted(spans.values(), key=lambda span: span.begin_ns)), dropped=dropped)


def _messages(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    """Whole lines with their numbers, from 1."""
    try:
        lines = path.read_bytes().split(b"\n")
    except OSError as error:
        raise RunDirectoryError(
            f"{path} cannot be read: {error.strerror or error}. `mas run --trace DIR` writes a {SPANS_NAME} to DIR, "
            "`mas train trace.every=10` to its run directory."
        ) from error
    for number, line in enumerate(lines, start=1):
        try:
            if line:
                yield number, msgspec.json.decode(line, type=dict[str, Any])
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            if number == len(lines):
                return  # torn by a kill
            raise _damaged(path, number, str(error)) from error


def _damaged(path: Path, number: int, cause: str) -> RunDirectoryError:
    return RunDirectoryError(f"Line {number} of {path} is damaged ({cause}). Delete that line.")


def _spans(message: Mapping[str, Any]) -> Iterator[SpanRecord]:
    for resource in message.get("resourceSpans", ()):
        named = _attributes(resource.get("resource", {}))
        process = str(named.get("service.instance.id") or named.get("service.name") or "?")
        for scope in resource.get("scopeSpans", ()):
            for span in scope.get("spans", ()):
                yield _record(span, process)


def _record(span: Mapping[str, Any], process: str) -> SpanRecord:
    attributes, status = _attributes(span), span.get("status", {})
    error = None
    if status.get("code") == _ERROR:
        said = (attributes.get("error.type"), status.get("message"))
        error = ": ".join(str(word) for word in said if word) or "failed"
    return SpanRecord(
        trace=span["traceId"],
        id=span["spanId"],
        parent=span.get("parentSpanId") or None,
        name=span["name"],
        process=process,
        begin_ns=int(span["startTimeUnixNano"]),
        end_ns=int(span["endTimeUnixNano"]),
        attributes=attributes,
        events=tuple(
            SpanEvent(name=event["name"], at_ns=int(event["timeUnixNano"]), attributes=_attributes(event))
            for event in span.get("events", ())
        ),
        links=tuple((link["traceId"], link["spanId"]) for link in span.get("links", ())),
        error=error,
    )


def _attributes(holder: Mapping[str, Any]) -> dict[str, object]:
    return {one["key"]: _value(one["value"]) for one in holder.get("attributes", ())}


def _value(value: Mapping[str, Any]) -> object:
    if "intValue" in value:
        return int(value["intValue"])
    if "arrayValue" in value:
        return tuple(_value(one) for one in value["arrayValue"].get("values", ()))
    return next(iter(value.values()), None)
