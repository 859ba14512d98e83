"""What a benchmark found: the machine, a row per competitor and size, and the targets that it is held to."""

import os
from pathlib import Path
from statistics import median
from typing import Any, Literal

import msgspec

from benchmarks.machine import Machine
from benchmarks.rounds import Timing, ratio
from mas.core.errors import RunDirectoryError
from mas.observe.files import write_json_file

LEFT_OUT = "left out"
"""Why a target was not measured whose competitor nobody asked for."""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """One competitor at one size.

    Attributes:
        name: the competitor; `size` the model's, which has `parameters` weights (adapters not counted), or the
            workload's where there is no model and `parameters` is 0.
        unit: what is counted as work: tokens, or what else the workload is made of.
        median, min, max: units per second over `repeats`; None where it did not run, and `note` says why.
        repeats: units per second of every measured round, in order.
        tokens: wanted units of one round; `seconds`: wall time of every measured round.
        ratio: median over rounds of its units per second / the reference competitor's.
        measures: whatever else was found, by name with its unit in it.
        note: empty where it ran.
    """

    name: str
    size: str
    parameters: int
    median: float | None = None
    min: float | None = None
    max: float | None = None
    repeats: tuple[float, ...] = ()
    tokens: int = 0
    seconds: tuple[float, ...] = ()
    ratio: float | None = None
    measures: dict[str, float] = {}
    note: str = ""
    unit: str = "tokens"

    @classmethod
    def measured(
        cls,
        name: str,
        size: str,
        parameters: int,
        timing: Timing,
        reference: Timing,
        measures: dict[str, float],
        unit: str = "tokens",
    ) -> "Row":
        """The row of a competitor that ran; its ratio is to `reference`."""
        rates = timing.rates
        return cls(
            name=name,
            size=size,
            parameters=parameters,
            median=median(rates),
            min=min(rates),
            max=max(rates),
            repeats=rates,
            tokens=timing.tokens[0],
            seconds=timing.seconds,
            ratio=ratio(timing, reference),
            measures=measures,
            unit=unit,
        )


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """What was found, what is wanted of it (`bound`: the goal is the least or the most), and whether it is met.

    `value` and `met` are None where it was not measured, as `note` says.
    """

    name: str
    value: float | None
    goal: float
    bound: Literal["at least", "at most"]
    met: bool | None
    note: str = ""

    @classmethod
    def at_least(cls, name: str, value: float | None, goal: float, note: str = "") -> "Target":
        """The more the better. A `value` of None was not measured, and `note` says why."""
        met = None if value is None else value >= goal
        return cls(name=name, value=value, goal=goal, bound="at least", met=met, note=note)

    @classmethod
    def at_most(cls, name: str, value: float | None, goal: float, note: str = "") -> "Target":
        """The less the better; as `at_least`."""
        met = None if value is None else value <= goal
        return cls(name=name, value=value, goal=goal, bound="at most", met=met, note=note)


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """All of one benchmark.

    Attributes:
        workload: the options that the work follows from.
        notes: what could not be measured, and why.
    """

    bench: str
    machine: Machine
    workload: dict[str, Any]
    rows: tuple[Row, ...]
    targets: tuple[Target, ...]
    notes: tuple[str, ...] = ()

    @property
    def exit_code(self) -> int:
        """1 where a target is missed, else 0; one that was not measured is none that is missed."""
        return 1 if any(target.met is False for target in self.targets) else 0


def check_writable(path: Path) -> None:
    """Find out before minutes of measuring whether a file can be written.

    Raises:
        RunDirectoryError: it cannot.
    """
    if path.is_dir():
        raise RunDirectoryError(f"{path} is a directory; name a file")
    if not path.parent.is_dir() or not os.access(path.parent, os.W_OK):
        raise RunDirectoryError(f"{path} cannot be written: {path.parent} is no directory that can be written to")


def write_result(path: Path, result: Result) -> None:
    """Write the result as JSON, whole or not at all.

    Raises:
        RunDirectoryError: it cannot be written.
    """
    write_json_file(path, result)
