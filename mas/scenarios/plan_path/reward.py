"""The own terms of `plan_path`: each role is paid for what its own view lets it do, on top of the team's reward."""

from collections.abc import Mapping

from mas.core.messages import Payload, Verdict
from mas.core.reward import Move
from mas.scenarios.plan_path.environment import PathEnvironment


class PathReward:
    """`valid`: the proposed move is sensible. `verdict`: accepted exactly when it is. `improvement`: the proposal
    after the feedback against the one before it. All from the surroundings, none from a shortest path."""

    terms: tuple[str, ...] = ("valid", "verdict", "improvement")

    def own(self, move: Move) -> Mapping[str, float]:
        assert isinstance(move.environment, PathEnvironment)
        world = move.environment
        if move.role == "executor":
            return {"valid": 0.2 if _sensible(world, move.output) else 0.0}
        if move.role == "verifier" and isinstance(move.output, Verdict):
            right = move.output.accept == _sensible(world, move.before.get("executor"))
            return {"verdict": 1.0 if right else -1.0}
        if move.role == "feedback":
            gain = _sensible(world, move.after.get("executor")) - _sensible(world, move.before.get("executor"))
            return {"improvement": float(gain)}
        return {}


def _sensible(world: PathEnvironment, proposal: Payload | None) -> bool:
    return proposal is not None and world.state.is_sensible(world.move(proposal.content))
