"""Where time goes: spans, phases, and the seconds that environments take.

Spans say what happened, when, and inside what. Nothing is traced unless a program enters `tracing`; what is built
inside it (services, runtimes) then tells the tracer. The tracer that writes OpenTelemetry spans is in
`mas.observe.tracing`; nothing of it is imported here.

The stopwatch adds up the seconds in environments where they are called; the trainer reads it. Nothing is measured
unless a program enters `measuring`; tasks that are started inside it add to the same stopwatch.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from types import MappingProxyType
from typing import Literal, Protocol

Counted = Callable[[str, int, int], None]
"""Told how far a phase is: (what, so many done, of so many). 0 of 0: it cannot be counted."""
Value = str | bool | int | float | Sequence[str] | Sequence[int]
Attributes = Mapping[str, Value | None]
"""What a span is told; None values are left out."""

Kind = Literal["internal", "client", "producer", "consumer"]
NOTHING: Attributes = MappingProxyType({})


class Span(Protocol):
    """One thing that takes time."""

    @property
    def traceparent(self) -> str:
        """Its W3C trace context, for an envelope: whoever gets it can go on with the trace."""

    def set(self, attributes: Attributes) -> None:
        """Add attributes."""

    def event(self, name: str, attributes: Attributes = NOTHING) -> None:
        """Something happened now."""

    def end(self, error: BaseException | None = None) -> None:
        """It is over; `error`: what it failed with. A cancellation is an event, and no failure."""


class Tracer(Protocol):
    """Begins spans.

    Attributes:
        shows_content: whether prompts, texts and messages of errors may be recorded. They are private to their readers.
    """

    shows_content: bool

    def begin(
        self,
        name: str,
        attributes: Attributes = NOTHING,
        *,
        kind: Kind = "internal",
        within: Span | str | None = None,
        is_root: bool = False,
        is_episode: bool = False,
    ) -> Span:
        """A span that the caller ends.

        Args:
            within: the span that it belongs to, or the trace context of one elsewhere; None: the current one.
            is_root: it begins a trace of its own, whatever is current.
            is_episode: inside `episodes` it is a trace of its own, linked to the span that gathers them.
        """

    def span(
        self,
        name: str,
        attributes: Attributes = NOTHING,
        *,
        kind: Kind = "internal",
        within: Span | str | None = None,
        is_root: bool = False,
        is_episode: bool = False,
    ) -> AbstractContextManager[Span]:
        """A span around a block, current inside it; see `begin`."""

    def event(self, name: str, attributes: Attributes = NOTHING) -> None:
        """Something happened now, in the current span."""

    def episodes(self, most: int) -> AbstractContextManager[None]:
        """Inside the block so many episodes are recorded, at most, each as a trace linked with the current span; none
        where that is not recorded."""

    def silent(self) -> AbstractContextManager[None]:
        """Inside the block only spans that begin a trace of their own, and those within them, are recorded."""


_on: ContextVar[Tracer | None] = ContextVar("tracer", default=None)


def current_tracer() -> Tracer | None:
    """The tracer that is on here; None: nothing is traced."""
    return _on.get()


@contextmanager
def tracing(tracer: Tracer) -> Iterator[None]:
    """Trace what is built and done inside the block."""
    token = _on.set(tracer)
    try:
        yield
    finally:
        _on.reset(token)


def phase(name: str) -> AbstractContextManager[Span | None]:
    """A span around a block, where a tracer is on; else nothing."""
    tracer = _on.get()
    return nullcontext() if tracer is None else tracer.span(name)


@contextmanager
def traced_step(step: int, every: int) -> Iterator[None]:
    """A training step, counted from 1, as a trace of its own; nothing where it is none of every so many (0: never)."""
    tracer = _on.get()
    if tracer is None or every == 0 or step % every:
        yield
        return
    with tracer.span("step", {"mas.step": step}, is_root=True):
        yield


@contextmanager
def traced_rollout(episodes: int) -> Iterator[None]:
    """The sampling of a step; so many of its episodes are traces, too, linked with it."""
    tracer = _on.get()
    if tracer is None:
        yield
        return
    with tracer.span("rollout"), tracer.episodes(episodes):
        yield


class Stopwatch:
    """Wall time added up. Blocks do not nest, and nothing waits inside them."""

    def __init__(self) -> None:
        self.seconds = 0.0


class IdleTime:
    """Seconds in which nothing is done, such as no batch played."""

    def __init__(self) -> None:
        self._since, self._busy, self._seconds = time.perf_counter(), 0, 0.0

    @contextmanager
    def busy(self) -> Iterator[None]:
        """While something is done; blocks may overlap."""
        if not self._busy:
            self._seconds += time.perf_counter() - self._since
        self._busy += 1
        try:
            yield
        finally:
            self._busy -= 1
            self._since = time.perf_counter()

    def take(self) -> float:
        """Since this was asked before."""
        now = time.perf_counter()
        if not self._busy:
            self._seconds, self._since = self._seconds + now - self._since, now
        seconds, self._seconds = self._seconds, 0.0
        return seconds


_stopwatch: ContextVar[Stopwatch | None] = ContextVar("environment_seconds", default=None)


@contextmanager
def measuring() -> Iterator[Stopwatch]:
    """Add up what `in_environment` takes inside the block."""
    stopwatch = Stopwatch()
    token = _stopwatch.set(stopwatch)
    try:
        yield stopwatch
    finally:
        _stopwatch.reset(token)


@contextmanager
def in_environment() -> Iterator[None]:
    """Around a call of an environment, where a stopwatch is on; else nothing."""
    stopwatch = _stopwatch.get()
    if stopwatch is None:
        yield
        return
    began = time.perf_counter()
    try:
        yield
    finally:
        stopwatch.seconds += time.perf_counter() - began


def uncounted(what: str, done: int, of: int) -> None:
    """A `Counted` that shows nothing."""
