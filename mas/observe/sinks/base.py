"""The contract of a sink, which gets the metrics of a run as they are written to `metrics.jsonl`."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import msgspec

FOLDER = "sinks"
"""The folder of a run directory with what each sink was sent, and with the stores of sinks that are local."""
PROJECT = "mas"
"""The project, or experiment, of runs whose environment names no other."""


class SinkState(msgspec.Struct, frozen=True, kw_only=True):
    """What a sink was sent before the run was resumed.

    Attributes:
        id: what `Sink.open` returned.
        lines: calls of `log` so far. step: of the last one, -1 before the first. names: the metrics of this step.
    """

    id: str
    lines: int = 0
    step: int = -1
    names: tuple[str, ...] = ()


class Sink(Protocol):
    """Made without arguments once per training. All three are called in one thread, which nothing else uses; what they
    raise is printed, and the sink is left out from there on."""

    def open(self, run: Path, config: Mapping[str, Any], earlier: SinkState | None) -> str:
        """Begin a run, or go on with one.

        Args:
            run: its directory. config: nested plain values, as in `config.yaml`.
            earlier: what it was sent before a resume; None: nothing.

        Returns:
            What it needs to find the run again, as `earlier.id`.
        """

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Take some metrics of a step, under flat names like `planner/entropy`; numbers may be nan or infinite.

        Steps never fall, and no metric of a step comes twice, also after a resume. The last line of a run that ends
        has `final/NAME/success` of its last evaluations.
        """

    def close(self, error: str | None) -> None:
        """The end. `error`: the name of what ended training early; None: it is finished."""
