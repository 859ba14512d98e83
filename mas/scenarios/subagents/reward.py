"""The own terms of `subagents`: form, as MATPO (arXiv 2510.04678) pays it, and what a search found."""

from collections.abc import Mapping

from mas.core.messages import Failure
from mas.core.reward import Move
from mas.scenarios.subagents.environment import PLANNER, CallEnvironment

SEARCH_AGENTS = ("local", "web")


class CallReward:
    """`format`: -1 for output that cannot be read, of anybody; else 0. `found`, to a search agent: 1 for the entry that
    it was asked for, as the archive has it; else 0.

    Source of `found`: HierSearch, arXiv 2508.08088, whose search agents are trained on questions of their own first.
    """

    terms: tuple[str, ...] = ("format", "found")

    def own(self, move: Move) -> Mapping[str, float]:
        terms = {"format": -float(isinstance(move.output, Failure))}
        if move.role not in SEARCH_AGENTS:
            return terms
        world = move.environment
        assert isinstance(world, CallEnvironment)
        call, found = move.before.get(PLANNER), move.output.content
        asked = call.content[1:] if call is not None else ""
        return terms | {"found": float(found[:2] == asked and found in world.state.case.documents)}
