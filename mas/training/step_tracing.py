"""The spans of training.

Every so many steps one is traced, with some of its episodes, so that a long run stays bounded. A traced step is a trace
of its own: rollout, update, publish. Its episodes are traces, too, linked with its rollout. Evaluations are not traced.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mas.config.options import TraceOptions
from mas.core.tracing import current_tracer


@contextmanager
def traced_run(options: TraceOptions, directory: Path) -> Iterator[None]:
    """Trace the steps that are due inside the block into the directory of a run.

    Raises:
        As `mas.observe.tracing.open_tracing`.
    """
    if options.every == 0:
        yield
        return
    from mas.observe.tracing import open_tracing

    tracing = open_tracing(directory, process="train", most=options.spans, shows_content=options.content)
    with tracing as tracer, tracer.silent():
        yield


@contextmanager
def traced_step(step: int, options: TraceOptions) -> Iterator[None]:
    """One training step, counted from 1; nothing where it is not due."""
    tracer = current_tracer()
    if tracer is None or options.every == 0 or step % options.every:
        yield
        return
    with tracer.span("step", {"mas.step": step}, is_root=True):
        yield


@contextmanager
def traced_rollout(options: TraceOptions) -> Iterator[None]:
    """The sampling of one step."""
    tracer = current_tracer()
    if tracer is None:
        yield
        return
    with tracer.span("rollout"), tracer.episodes(options.episodes):
        yield
