"""How often a team's loops are taken: what a gate, such as feedback only where it is needed, costs and saves.

Source: the adaptive feedback of WaltzRL (The Alignment Waltz, arXiv 2510.08240): a reply goes back to the conversation
agent only where the feedback agent says that it must. A loop within another one counts from that one's last round.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

import msgspec

from mas.core.records import Episode
from mas.graph.plan import TeamPlan


class Gate(msgspec.Struct, frozen=True, kw_only=True):
    """One loop over team turns.

    Attributes:
        triggered: share of team turns in which it was taken.
        rounds: how often it was taken in a team turn, mean.
        saved: rounds of those that its bound allows that were not needed, mean; `rounds` + `saved` is the bound.
    """

    triggered: float
    rounds: float
    saved: float

    def told(self, name: str) -> str:
        """One line for the terminal."""
        return f"loop {name}: triggered {self.triggered:.3f}, rounds {self.rounds:.3f}, saved {self.saved:.3f}"


def loops_of(plan: TeamPlan) -> list[tuple[str, int]]:
    """`SOURCE-TARGET` and bound of the team's loops, in the order of `Flow.uses`."""
    edges = [plan.spec.edges[loop.edge] for loop in plan.wiring.loops]
    return [(f"{edge.source}-{edge.target}", edge.loop or 0) for edge in edges]


def gates(bounds: Mapping[str, int], episodes: Sequence[Episode]) -> dict[str, Gate]:
    """Every loop over the team turns of all episodes; those that could not be played to their end are left out."""
    found = {}
    for name, bound in bounds.items():
        taken = [count for one in episodes if one.status == "done" for count in one.loops.get(name, ())]
        if taken:
            rounds = fmean(taken)
            found[name] = Gate(triggered=fmean(count > 0 for count in taken), rounds=rounds, saved=bound - rounds)
    return found
