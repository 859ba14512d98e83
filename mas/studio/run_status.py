"""How far a run is, and whether a process trains it, told from its files alone.

Whoever trains a run holds `flock` on its `.lock`, and has written its process id there. The kernel lists such locks in
`/proc/locks`, so nothing has to be locked to see it. Without that list (no Linux) a process with that id counts.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from mas.studio.metric_columns import MetricColumns

State = Literal["running", "finished", "stopped"]
_LOCKS = Path("/proc/locks")


@dataclass(frozen=True, slots=True, kw_only=True)
class RunStatus:
    """Where a run stands.

    Attributes:
        state: `running`: a process trains it; `finished`: its end is reached; `stopped`: neither.
        reason: in words, why it has that state.
        step: the last with a measurement, None before the first; steps: of the configuration, None: unknown.
        success: of the last greedy evaluation on held-out tasks, or of the last step without one; None: neither.
        changed_s: when the metrics last changed, in seconds since 1970; None: there are none.
    """

    state: State
    reason: str
    step: int | None
    steps: int | None
    success: float | None
    changed_s: float | None


def status_of(run: Path, option: Callable[[str], Any], columns: MetricColumns, metrics: Path) -> RunStatus:
    """The status of a run.

    Args:
        option: value of a dotted key of the configuration. metrics: the file of the columns.
    """
    held_out = columns.last("eval/greedy/success")
    end = _end(option, columns)
    owner = owner_of(run)
    state: State = "running" if owner is not None else "finished" if end else "stopped"
    reasons = {"running": f"process {owner} trains it", "finished": end}
    steps = option("train.steps")
    return RunStatus(
        state=state,
        reason=reasons.get(state, "no process trains it, and its end is not reached"),
        step=columns.last_step,
        steps=steps if type(steps) is int else None,
        success=columns.last("success") if held_out is None else held_out,
        changed_s=metrics.stat().st_mtime if columns.last_step is not None else None,
    )


def _end(option: Callable[[str], Any], columns: MetricColumns) -> str:
    """Why training is over, as the trainer decides it; empty while it is not."""
    step, steps = columns.last_step, option("train.steps")
    if step is not None and type(steps) is int and step >= steps:
        return f"{steps} steps done"
    budget, spent = option("train.token_budget"), _spent(option("train.budget_prompts"), columns)
    if isinstance(budget, int) and spent >= budget:
        return f"token budget of {budget} spent"
    target, success = option("train.target"), columns.last("eval/greedy/success")
    if isinstance(target, int | float) and success is not None and success >= target:
        return f"target success {target} reached"
    return ""


def _spent(prompts: object, columns: MetricColumns) -> float:
    name = {"per_call": "prompt_tokens", "shared": "shared_prompt_tokens"}.get(str(prompts), "")
    return (columns.last(name) or 0.0) + (columns.last("completion_tokens") or 0.0)


def owner_of(run: Path) -> int | None:
    """The id of the process that holds the lock of a run directory; None: there is none, or it cannot be seen."""
    path = run / ".lock"
    try:
        if not path.is_file():
            return None
        with path.open("rb") as file:
            owner = int(file.read(32))
            inode = os.fstat(file.fileno()).st_ino
    except (OSError, ValueError):
        return None
    try:
        locks = _LOCKS.read_text()
    except OSError:
        return owner if _is_alive(owner) else None
    fields = (line.split() for line in locks.splitlines())
    held = any(f[1] == "FLOCK" and f[4] == str(owner) and f[5].endswith(f":{inode}") for f in fields if len(f) > 5)
    return owner if held else None


def _is_alive(process: int) -> bool:
    if process <= 0:
        return False
    try:
        os.kill(process, 0)
    except PermissionError:
        return True
    except OSError:
        return False
    return True
