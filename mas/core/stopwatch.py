"""Seconds that the environments of a training take: added up where they are called, read by the trainer.

Nothing is measured unless a program enters `measuring`; tasks that are started inside it add to the same stopwatch.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar


class Stopwatch:
    """Wall time added up. Blocks do not nest, and nothing waits inside them."""

    def __init__(self) -> None:
        self.seconds = 0.0


_on: ContextVar[Stopwatch | None] = ContextVar("environment_seconds", default=None)


@contextmanager
def measuring() -> Iterator[Stopwatch]:
    """Add up what `in_environment` takes inside the block."""
    stopwatch = Stopwatch()
    token = _on.set(stopwatch)
    try:
        yield stopwatch
    finally:
        _on.reset(token)


@contextmanager
def in_environment() -> Iterator[None]:
    """Around a call of an environment, where a stopwatch is on; else nothing."""
    stopwatch = _on.get()
    if stopwatch is None:
        yield
        return
    began = time.perf_counter()
    try:
        yield
    finally:
        stopwatch.seconds += time.perf_counter() - began
