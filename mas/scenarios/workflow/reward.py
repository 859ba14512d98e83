"""The own term of `workflow`: whether the executor does what the plan says."""

from collections.abc import Mapping

from mas.core.messages import Failure
from mas.core.reward import Move
from mas.scenarios.workflow.environment import EXECUTOR, PLANNER, WorkEnvironment


class WorkReward:
    """`follow`, to the executor of a plan: -1 for a call that is not the plan's next step, else 0.

    Source: PilotRL, arXiv 2508.00344: in its first stage adherence to the plan is rewarded, here by a rule.
    """

    terms: tuple[str, ...] = ("follow",)

    def own(self, move: Move) -> Mapping[str, float]:
        world = move.environment
        assert isinstance(world, WorkEnvironment)
        if move.role != EXECUTOR:
            return {}
        plan = move.before.get(PLANNER)
        written = "" if plan is None or isinstance(plan, Failure) else plan.content
        text = "" if isinstance(move.output, Failure) else move.output.content
        return {"follow": float(world.follows(text, written)) - 1.0}
