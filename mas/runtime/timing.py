"""Time in a team turn: the order of waves, found again after agents took unequal times, and limits of joins. Pure.

Agents are played as soon as they can begin. What they heard and said is then joined as if all had taken equally long,
so that a team turn does not depend on who was quick: outputs of the agents that begin together join in declared order.
Only where a join takes the first that arrives has timing a say; then arrival is the order. How long a join may wait is
measured by a clock that the caller reads.
"""

from collections.abc import Iterable, Mapping, Sequence
from functools import lru_cache

from mas.core.messages import Payload
from mas.graph.plan import TeamPlan
from mas.graph.wiring import ALL, Loop
from mas.runtime.flow import Flow

_RESOLUTION_S = 1e-6
"""What is less is no time: a clock that is a sum of times may never come nearer."""
Heard = tuple[tuple[str, Payload], ...]
"""Senders and payloads that an agent had heard when it began. Items of lists are made anew, equal and not the same."""


def heard(flow: Flow, agent: str) -> Heard:
    """What the agent has heard so far, to compare."""
    return tuple((message.sender, message.payload) for message in flow.messages(agent))


def in_waves(
    start: Flow, said: Mapping[str, Sequence[Payload]], begun: Mapping[tuple[str, int], Heard]
) -> tuple[Flow, bool] | None:
    """The turn from `start`, at which no agent was at work, if all outputs since then had come wave by wave.

    Args:
        said: outputs since `start`, by agent, oldest first.
        begun: what each agent had heard at the beginning of each visit since `start`.

    Returns:
        The turn, and whether no wave is incomplete: no agent of an earlier wave has yet to speak than one that has.
        None where an agent would have heard something else than it did, or would not have begun: timing has decided.
    """
    flow, taken = start, dict.fromkeys(said, 0)
    waiting, is_behind = set(begun), False
    while not flow.finished:
        lagging = 0
        for agent in flow.ready():
            visit = (agent, flow.visits(agent))
            known = begun.get(visit)
            if known is None:
                lagging += 1  # it has not begun yet
                continue
            if known != heard(flow, agent):
                return None
            waiting.discard(visit)
            flow = flow.begin(agent)
        speaking = [agent for agent in flow.running() if taken.get(agent, 0) < len(said.get(agent, ()))]
        if not speaking:
            break
        is_behind = is_behind or lagging > 0 or len(speaking) < len(flow.running())
        for agent in speaking:
            flow = flow.complete(agent, said[agent][taken[agent]])
            taken[agent] += 1
    if waiting and not flow.finished:
        return None
    return (flow, not is_behind) if all(taken[agent] == len(said[agent]) for agent in said) else None


@lru_cache(maxsize=256)
def needs_steps(plan: TeamPlan) -> bool:
    """Whether agents must be waited for wave by wave: every join is `all`, and yet timing would decide, because a loop
    may iterate while something that left it is on its way."""
    if plan.timeouts or any(need != ALL for need in plan.wiring.needs):
        return False
    loops = plan.wiring.loops
    return any(not _is_closed(plan, loop) or _overlaps(loop, loops) for loop in loops)


def _is_closed(plan: TeamPlan, loop: Loop) -> bool:
    """Whether a loop is entered at its head alone, and left at its end alone, on another route than it iterates on."""
    edges = plan.wiring.edges
    back = edges[loop.edge]
    return all(edges[index].head == loop.head for index in loop.entries) and all(
        edges[index].tail == back.tail and None not in (edges[index].when, back.when) and edges[index].when != back.when
        for index in loop.exits
    )


def _overlaps(loop: Loop, loops: Sequence[Loop]) -> bool:
    body = set(loop.body)
    others = (set(other.body) for other in loops if other is not loop)
    return any(body & other and not (body < other or other < body) for other in others)


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
