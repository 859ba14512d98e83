"""The tracer that makes OpenTelemetry spans, and where they go: a file, and a collector if the environment names one.

Nothing leaves the machine unless OTEL_EXPORTER_OTLP_ENDPOINT or OTEL_EXPORTER_OTLP_TRACES_ENDPOINT is set. The rest of
OpenTelemetry's standard variables (OTEL_TRACES_SAMPLER, OTEL_RESOURCE_ATTRIBUTES, ...) means what it always does.
"""

import asyncio
import importlib.util
import os
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path

from opentelemetry import context as contexts
from opentelemetry import trace
from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import SpanProcessor, TracerProvider
from opentelemetry.trace import Link, SpanKind, Status, StatusCode
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from mas.core.errors import ConfigError, MissingPackage
from mas.core.tracing import NOTHING, Attributes, Kind, Span, Value, tracing
from mas.observe.span_file import SpanFile
from mas.observe.span_records import SPANS_NAME

_KINDS = {
    "internal": SpanKind.INTERNAL,
    "client": SpanKind.CLIENT,
    "producer": SpanKind.PRODUCER,
    "consumer": SpanKind.CONSUMER,
}
_PROPAGATOR = TraceContextTextMapPropagator()
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")


@contextmanager
def open_tracing(directory: Path, *, process: str, most: int, shows_content: bool = False) -> Iterator["OtelTracer"]:
    """Trace what is built and done inside the block: into `spans.jsonl` of the directory, and to a collector, if any.

    Args:
        process: what this process does; timelines show it.
        most: spans that the file may hold.

    Raises:
        RunDirectoryError: the file cannot be written. ConfigError: the environment names a collector and `mas[otel]` is
            not installed, asks for another protocol, or switches OpenTelemetry off.
    """
    if os.environ.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        raise ConfigError("OTEL_SDK_DISABLED switches all tracing off: unset it, or do not ask for a trace")
    collector = _collector()
    provider = TracerProvider(resource=_resource(process), shutdown_on_exit=False)
    provider.add_span_processor(SpanFile(directory / SPANS_NAME, most=most))
    if collector is not None:
        provider.add_span_processor(collector)
    tracer = OtelTracer(provider, shows_content=shows_content)
    try:
        with tracing(tracer):
            yield tracer
    finally:
        provider.shutdown()


def _resource(process: str) -> Resource:
    """Who makes the spans: what the environment says, `mas` where it does not name a service."""
    resource = Resource.create({"service.instance.id": f"{process}-{socket.gethostname()}-{os.getpid()}"})
    if str(resource.attributes["service.name"]).startswith("unknown_service"):
        resource = resource.merge(Resource({"service.name": "mas"}))
    return resource


def _collector() -> SpanProcessor | None:
    """What sends spans to the collector that the environment names; None: it names none."""
    named = next((name for name in _ENDPOINTS if os.environ.get(name)), None)
    if named is None or os.environ.get("OTEL_TRACES_EXPORTER", "otlp") == "none":
        return None
    protocol = next((os.environ[name] for name in _PROTOCOLS if os.environ.get(name)), "http/protobuf")
    if protocol != "http/protobuf":
        raise ConfigError(f"the environment asks for OTLP over {protocol!r}; mas speaks http/protobuf")
    try:
        is_installed = importlib.util.find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        is_installed = False
    if not is_installed:
        raise MissingPackage(f"{named} names a collector; sending to it needs: pip install 'mas[otel]'")
    from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
    from opentelemetry.sdk.trace.export import BatchSpanProcessor

    return BatchSpanProcessor(OTLPSpanExporter())


class OtelSpan:
    """Satisfies `mas.core.tracing.Span`. `raw`: the span as OpenTelemetry has it."""

    __slots__ = ("_shows_content", "raw")

    def __init__(self, raw: trace.Span, *, shows_content: bool) -> None:
        self.raw, self._shows_content = raw, shows_content

    @property
    def traceparent(self) -> str:
        carrier: dict[str, str] = {}
        _PROPAGATOR.inject(carrier, trace.set_span_in_context(self.raw, Context()))
        return carrier["traceparent"]

    def set(self, attributes: Attributes) -> None:
        self.raw.set_attributes(_given(attributes))

    def event(self, name: str, attributes: Attributes = NOTHING) -> None:
        self.raw.add_event(name, _given(attributes))

    def end(self, error: BaseException | None = None) -> None:
        """Over; an error is recorded by its type, its message only where content is shown."""
        if isinstance(error, asyncio.CancelledError | GeneratorExit):
            self.raw.add_event("cancelled")
        elif error is not None:
            self.raw.set_attribute("error.type", type(error).__name__)
            self.raw.set_status(Status(StatusCode.ERROR, str(error) if self._shows_content else None))
        self.raw.end()


class _Gathering:
    """Episodes that are traces of their own: what links to them, and how many more are recorded."""

    def __init__(self, span: trace.Span, left: int) -> None:
        self.span, self.left = span, left


_gathering: ContextVar[_Gathering | None] = ContextVar("episodes", default=None)


class OtelTracer:
    """Satisfies `mas.core.tracing.Tracer` with the spans of a provider."""

    def __init__(self, provider: trace.TracerProvider, *, shows_content: bool = False) -> None:
        self.shows_content = shows_content
        self._tracer = provider.get_tracer("mas")

    def begin(
        self,
        name: str,
        attributes: Attributes = NOTHING,
        *,
        kind: Kind = "internal",
        within: Span | str | None = None,
        is_root: bool = False,
        is_episode: bool = False,
    ) -> OtelSpan:
        gathering = _gathering.get() if is_episode else None
        context = Context() if is_root else _context(within)
        links: list[Link] = []
        if gathering is not None:
            context, links = _apart(gathering)
        raw = self._tracer.start_span(name, context, kind=_KINDS[kind], attributes=_given(attributes), links=links)
        if links and gathering is not None:
            gathering.span.add_link(raw.get_span_context())
        return OtelSpan(raw, shows_content=self.shows_content)

    @contextmanager
    def span(
        self,
        name: str,
        attributes: Attributes = NOTHING,
        *,
        kind: Kind = "internal",
        within: Span | str | None = None,
        is_root: bool = False,
        is_episode: bool = False,
    ) -> Iterator[OtelSpan]:
        span = self.begin(name, attributes, kind=kind, within=within, is_root=is_root, is_episode=is_episode)
        token = contexts.attach(trace.set_span_in_context(span.raw))
        error: BaseException | None = None
        try:
            yield span
        except BaseException as raised:
            error = raised
            raise
        finally:
            contexts.detach(token)
            span.end(error)

    def event(self, name: str, attributes: Attributes = NOTHING) -> None:
        trace.get_current_span().add_event(name, _given(attributes))

    @contextmanager
    def episodes(self, most: int) -> Iterator[None]:
        span = trace.get_current_span()
        is_recorded = span.get_span_context().trace_flags.sampled
        token = _gathering.set(_Gathering(span, most if is_recorded else 0))
        try:
            yield
        finally:
            _gathering.reset(token)

    @contextmanager
    def silent(self) -> Iterator[None]:
        token = contexts.attach(trace.set_span_in_context(_unrecorded()))
        try:
            yield
        finally:
            contexts.detach(token)


def _given(attributes: Attributes) -> dict[str, Value]:
    return {name: value for name, value in attributes.items() if value is not None}


def _context(within: Span | str | None) -> Context | None:
    """What a span belongs to, as OpenTelemetry wants it; None: the current context."""
    if isinstance(within, str):
        return _PROPAGATOR.extract({"traceparent": within}, Context())
    if isinstance(within, OtelSpan):
        return trace.set_span_in_context(within.raw)
    return None


def _apart(gathering: _Gathering) -> tuple[Context, list[Link]]:
    """Where the next episode belongs, and what it is linked with."""
    if gathering.left == 0:
        return trace.set_span_in_context(_unrecorded(), Context()), []
    gathering.left -= 1
    return Context(), [Link(gathering.span.get_span_context())]


def _unrecorded() -> trace.Span:
    """A parent that is not sampled: nothing within it is, in other processes either."""
    return trace.NonRecordingSpan(
        trace.SpanContext(
            trace_id=secrets.randbits(127) + 1,
            span_id=secrets.randbits(63) + 1,
            is_remote=False,
            trace_flags=trace.TraceFlags(trace.TraceFlags.DEFAULT),
        )
    )
