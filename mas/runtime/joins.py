"""What the tokens on its edges mean for a node that waits: go, go never, or wait on; and how long joins may wait. Pure:
the caller says what time it is.

A *branch* is one source: of several edges from one source, at most one can be live. A branch is *live* if it brought
something in this iteration, or in an earlier one of a loop that it leads into; *open* if it may still do so.
"""

from collections.abc import Iterable, Mapping, Sequence

from mas.graph.wiring import ALL, QUORUM, Wiring
from mas.runtime.flow_state import DEAD, HELD, KEPT, LIVE, NONE, READY, SKIPPED, WAITING

_OF_ONE = {NONE: WAITING, LIVE: READY, KEPT: READY, HELD: WAITING, DEAD: SKIPPED}
"""What its only branch means for a node."""
_RESOLUTION_S = 1e-6
"""What is less is no time: a clock that is a sum of times may never come nearer."""


def decide(wiring: Wiring, tokens: Sequence[int], node: int) -> int:
    """`READY`, `SKIPPED` or `WAITING`.

    A join that has only what it kept from earlier iterations waits for something new as long as any branch is open.
    """
    forward = wiring.forward_in[node]
    if len(forward) == 1 and not wiring.loop_in[node]:
        return _OF_ONE[tokens[forward[0]]]
    need = wiring.needs[node]
    seen = {tokens[index] for index in forward}
    is_open = NONE in seen or HELD in seen
    seen.update(tokens[index] for index in wiring.loop_in[node])
    is_new = LIVE in seen
    if need == ALL or need == 1:
        if (is_new and (need == 1 or not is_open)) or (not is_open and KEPT in seen):
            return READY
        return WAITING if is_open else SKIPPED
    live, still_open = _branches(wiring, tokens, node)
    if (live > still_open if need == QUORUM else live >= need) and (is_new or not is_open):
        return READY
    if node in wiring.skips and live + still_open < need:
        return SKIPPED
    if is_open:
        return WAITING
    return READY if live else SKIPPED


def out_of_time(wiring: Wiring, tokens: Sequence[int], node: int) -> int:
    """What a join does that waits no longer: `READY` with what has come, `SKIPPED` with nothing or too little."""
    live, _ = _branches(wiring, tokens, node)
    return READY if live and not (node in wiring.skips and live < wiring.needs[node]) else SKIPPED


def has_begun(wiring: Wiring, tokens: Sequence[int], node: int) -> bool:
    """Whether a live branch has come while another is open."""
    live, still_open = _branches(wiring, tokens, node)
    return live > 0 and still_open > 0


def _branches(wiring: Wiring, tokens: Sequence[int], node: int) -> tuple[int, int]:
    """How many branches are live, and how many are open."""
    edges = wiring.edges
    coming = (*wiring.forward_in[node], *wiring.loop_in[node])
    live = {edges[index].tail for index in coming if tokens[index] in (LIVE, KEPT)}
    still_open = {edges[index].tail for index in wiring.forward_in[node] if tokens[index] in (NONE, HELD)}
    return len(live), len(still_open - live)


class JoinTimers:
    """Which joins wait since when. A limit begins with a join's first live branch, and anew in each iteration."""

    def __init__(self) -> None:
        self._until: dict[str, float] = {}

    def watch(self, waiting: Iterable[str], limits: Mapping[str, float], now_s: float) -> float | None:
        """Begin the limits of joins that have begun to wait, forget those that wait no more.

        Args:
            waiting: as `Flow.waiting_joins`; limits: seconds for each join that has a limit, as `TeamPlan.timeouts`.
            now_s: seconds on any steady clock.

        Returns:
            Seconds until the first limit is over, 0 or less where one is; None where none runs.
        """
        self._until = {name: self._until.get(name, now_s + limits[name]) for name in waiting if name in limits}
        return min(self._until.values()) - now_s if self._until else None

    def over(self, now_s: float) -> tuple[str, ...]:
        """The joins whose limit is over, the longest over first."""
        limits = sorted(self._until.items(), key=lambda limit: limit[1])
        return tuple(name for name, until in limits if until - now_s <= _RESOLUTION_S)
