"""The own term of `economy`'s workers: a fine for what they lose against their best hours. Never above 0."""

from collections.abc import Mapping

from mas.core.messages import Action
from mas.core.reward import Move
from mas.scenarios.economy.environment import Workers, number


class WorkerReward:
    """`regret`: the share of the best surplus that a member's hours reach, less 1; who says no hours works none."""

    terms: tuple[str, ...] = ("regret",)

    def own(self, move: Move) -> Mapping[str, float]:
        world = move.environment
        assert isinstance(world, Workers)
        if move.role not in world.members:
            return {}
        said = move.output.text if isinstance(move.output, Action) else ""
        hours = number(said, world.rules.hours) or 0
        return {"regret": world.share(world.state, world.members.index(move.role), hours) - 1}
