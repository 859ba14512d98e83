"""How long a training still takes, from the measured steps and evaluations, and where the time of one went."""

import math
from collections import deque
from collections.abc import Iterable, Mapping
from statistics import fmean
from typing import Any

_RECENT = 20
"""Steps whose mean counts: episodes grow shorter or longer while a team learns."""


class TimeLeft:
    """Adds up what is left. An estimate for a step or an evaluation holds until the first one is measured.

    Args:
        total: number of the last step.
        eval_every: evaluations are due after every so many steps (0: none) and at the end.
        token_budget: training ends once so many tokens are spent, if that comes first; None: there is no budget.
    """

    def __init__(self, total: int, eval_every: int, token_budget: int | None = None) -> None:
        self._total, self._eval_every, self._budget = total, eval_every, token_budget
        self._steps: deque[tuple[float, int]] = deque(maxlen=_RECENT)
        self._tokens = 0
        self._step_s: float | None = None
        self._evaluation_s: float | None = None
        self._is_evaluated = False

    def expect(self, *, step_s: float | None = None, evaluation_s: float | None = None) -> None:
        """Estimates in seconds, each until it is measured; None: as before."""
        if not self._steps and step_s is not None:
            self._step_s = step_s
        if not self._is_evaluated and evaluation_s is not None:
            self._evaluation_s = evaluation_s

    def begin(self, tokens: int) -> None:
        """So many tokens were spent before the first step."""
        self._tokens = tokens

    def on_step(self, seconds: float, tokens: int) -> None:
        """A step took so long, and so many tokens are spent by now, in all steps."""
        self._steps.append((seconds, tokens - self._tokens))
        self._tokens = tokens
        self._step_s = fmean(one for one, _ in self._steps)

    def on_evaluation(self, seconds: float) -> None:
        """An evaluation, greedy and sampled, took so long."""
        self._evaluation_s, self._is_evaluated = seconds, True

    @property
    def has_steps(self) -> bool:
        return bool(self._steps)

    def seconds(self, step: int) -> float | None:
        """From the end of this step to the end of training; None: how long a step takes is not known."""
        left = self._steps_left(step)
        if not left:
            return 0.0
        if self._step_s is None:
            return None
        return left * self._step_s + self.evaluations(step) * (self._evaluation_s or 0.0)

    def evaluations(self, step: int) -> int:
        """How many are left after this step."""
        last = step + self._steps_left(step)
        if last == step:
            return 0
        due = last // self._eval_every - step // self._eval_every if self._eval_every else 0
        return due + (not self._eval_every or last % self._eval_every > 0)

    def _steps_left(self, step: int) -> int:
        left = max(self._total - step, 0)
        spent = fmean(tokens for _, tokens in self._steps) if self._steps else 0.0
        if self._budget is None or spent <= 0:
            return left
        return min(left, math.ceil(max(self._budget - self._tokens, 0) / spent))


def clock_time(seconds: float | None) -> str:
    """`1:02:03`; `unknown` for None and what is no finite number."""
    if seconds is None or not math.isfinite(seconds):
        return "unknown"
    whole = int(seconds)
    return f"{whole // 3600}:{whole // 60 % 60:02d}:{whole % 60:02d}"


def rough_time(seconds: float) -> str:
    """An estimate for people, with as many digits as it deserves: `8 s`, `4 min`, `1 h 20 min`."""
    if seconds < 90:
        return f"{max(math.ceil(seconds), 1)} s"
    minutes = round(seconds / 60)
    return f"{minutes} min" if minutes < 90 else f"{minutes // 60} h {minutes % 60:02d} min"


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
