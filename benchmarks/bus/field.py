"""Who competes in one workload, and why somebody does not."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec

from benchmarks.bus.options import AUTOGEN, LANGGRAPH, OPTIONAL, BusBench
from benchmarks.rounds import Competitor

MODULES = {AUTOGEN: "autogen_core", LANGGRAPH: "langgraph"}
"""Row -> the module that it needs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One workload's competitors, the first of them mas.

    Attributes:
        absent: row -> why it cannot run here.
        measures: row -> what else was found, by name with its unit in it.
    """

    competitors: Sequence[Competitor]
    absent: Mapping[str, str] = field(default_factory=dict)
    measures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


def why_absent(row: str, options: BusBench) -> str | None:
    """Why another framework does not take part: empty where it was left out, None where it takes part."""
    if row in {OPTIONAL[name] for name in options.without}:
        return ""
    return None if find_spec(MODULES[row]) is not None else "not installed: pip install 'mas[bench]'"


def absent_rows(row: str, options: BusBench) -> dict[str, str]:
    """The row with its reason where it was asked for and cannot run."""
    reason = why_absent(row, options)
    return {row: reason} if reason else {}
