"""The own term of `refine`: in a pair everybody answers, and is paid for the answer."""

from collections.abc import Mapping

from mas.core.messages import Failure
from mas.core.reward import Move
from mas.scenarios.refine.environment import OBSERVER, PIONEER, RefineEnvironment


class RefineReward:
    """`answer`, to pioneer and observer: 1 for the right answer, else 0. Other teams are paid together alone.

    Source: CORY, arXiv 2410.06101: r1 and r2, which `algorithm.reward.shared` adds up.
    """

    terms: tuple[str, ...] = ("answer",)

    def own(self, move: Move) -> Mapping[str, float]:
        world = move.environment
        assert isinstance(world, RefineEnvironment)
        if move.role not in (PIONEER, OBSERVER):
            return {}
        said = "" if isinstance(move.output, Failure) else move.output.content
        return {"answer": float(world.is_right(world.state.question, said))}
