"""The own term of `refine`: in a pair everybody answers, and is paid for the answer; so are a leader's peers."""

from collections.abc import Mapping

from mas.core.messages import Failure
from mas.core.reward import Move
from mas.scenarios.refine.environment import OBSERVER, PIONEER, RefineEnvironment

PEERS = ("peer", "maximum", "minimum")
"""Roles of a leader's peers."""


class RefineReward:
    """`answer`, to pioneer, observer and peers: 1 for the right answer, else 0. Other teams are paid together alone.

    Sources: CORY, arXiv 2410.06101: r1 and r2, which `algorithm.reward.shared` adds up. MLPO, arXiv 2507.08960: whether
    a peer is right decides which tasks the leader learns from (`algorithm.sampler.filter.by=solved`).
    """

    terms: tuple[str, ...] = ("answer",)

    def own(self, move: Move) -> Mapping[str, float]:
        world = move.environment
        assert isinstance(world, RefineEnvironment)
        if move.role not in (PIONEER, OBSERVER, *PEERS):
            return {}
        said = "" if isinstance(move.output, Failure) else move.output.content
        return {"answer": float(world.is_right(world.state.question, said))}
