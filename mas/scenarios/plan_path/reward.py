"""The own terms of `plan_path`: each role is paid for what its own view lets it do, on top of the team's reward."""

from collections.abc import Mapping

from mas.core.messages import Payload, Verdict
from mas.core.reward import Move
from mas.scenarios.plan_path.environment import PathEnvironment, PathState


class PathReward:
    """`valid`: the proposed move is sensible. `verdict`: accepted exactly when it is. `improvement`: the proposal
    after the feedback against the one before it. All from the surroundings, none from a shortest path."""

    terms: tuple[str, ...] = ("valid", "verdict", "improvement")

    def own(self, move: Move) -> Mapping[str, float]:
        assert isinstance(move.environment, PathEnvironment)
        state = move.environment.state
        if move.role == "executor":
            return {"valid": 0.2 if _sensible(state, move.output) else 0.0}
        if move.role == "verifier" and isinstance(move.output, Verdict):
            right = move.output.accept == _sensible(state, move.before.get("executor"))
            return {"verdict": 1.0 if right else -1.0}
        if move.role == "feedback":
            gain = _sensible(state, move.after.get("executor")) - _sensible(state, move.before.get("executor"))
            return {"improvement": float(gain)}
        return {}


def _sensible(state: PathState, proposal: Payload | None) -> bool:
    return proposal is not None and state.is_sensible(proposal.content)
