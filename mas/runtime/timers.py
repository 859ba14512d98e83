"""The time limits of a team turn's joins. Pure: the caller says what time it is, on any steady clock, in seconds."""

from mas.runtime.flow import Flow

_RESOLUTION_S = 1e-6
"""What is less is no time: a clock that is a sum of times may never come nearer."""


class JoinTimers:
    """Which joins wait since when. A limit begins with a join's first live branch, and anew in each iteration."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def watch(self, flow: Flow, now_s: float) -> float | None:
        """Begin the limits of joins that have begun to wait, forget those that wait no more.

        Returns:
            Seconds until the first limit is over, 0 or less where one is; None where none runs.
        """
        limits = flow.plan.timeouts
        waiting = [name for name in flow.waiting_joins() if name in limits] if limits else []
        self._until = {name: self._until.get(name, now_s + limits[name]) for name in waiting}
        return min(self._until.values()) - now_s if self._until else None

    def over(self, now_s: float) -> tuple[str, ...]:
        """The joins whose limit is over, the longest over first."""
        limits = sorted(self._until.items(), key=lambda limit: limit[1])
        return tuple(name for name, until in limits if until - now_s <= _RESOLUTION_S)
