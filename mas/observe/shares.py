"""Where the time of a training went, from its metrics."""

from collections.abc import Iterable, Mapping
from typing import Any

from mas.observe.remaining import clock_time

_STEP = {"sample": "sampling", "environment": "environment", "learn": "learning", "publish": "publishing"}


def seconds_spent(lines: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Seconds by activity, summed over all steps and evaluations; they do not overlap.

    `sampling` is without `environment`, which in a step's metrics is part of `sample`. What is between steps, such as
    loading and saving, is in none of them.
    """
    spent = dict.fromkeys((*_STEP.values(), "evaluation"), 0.0)
    for line in lines:
        seconds = line.get("seconds", {})
        for name, activity in _STEP.items():
            spent[activity] += seconds.get(name, 0.0)
        spent["sampling"] -= seconds.get("environment", 0.0)
        spent["evaluation"] += sum(seconds.get("evaluate", {}).values())
    return spent


def shares_text(lines: Iterable[Mapping[str, Any]]) -> str:
    """`0:05:12: sampling 48 %, environment 1 %, learning 40 %, publishing 3 %, evaluation 8 %`; empty: no time."""
    spent = seconds_spent(lines)
    whole = sum(spent.values())
    if whole <= 0:
        return ""
    parts = ", ".join(f"{activity} {100 * seconds / whole:.0f} %" for activity, seconds in spent.items())
    return f"{clock_time(whole)}: {parts}"
