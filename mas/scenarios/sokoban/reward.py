"""The own terms of `sokoban`: what each role's own view lets it know. All are penalties: none can be collected."""

from collections.abc import Mapping

from mas.core.messages import Payload, Verdict
from mas.core.reward import Move
from mas.scenarios.plan_path.grid import MOVES
from mas.scenarios.sokoban.environment import BOX, OPEN, VISITED, SokobanEnvironment, SokobanState, name
from mas.scenarios.sokoban.experts import accepted

FAULT = -0.2


class SokobanReward:
    """`nearer`: the planned push leads nearer, or none does and it is safe. `valid`: the move goes to a free cell, or
    is the planned push, and was not just sent back. `verdict`: accepted exactly if it moves and loses no box."""

    terms: tuple[str, ...] = ("nearer", "valid", "verdict")

    def own(self, move: Move) -> Mapping[str, float]:
        assert isinstance(move.environment, SokobanEnvironment)
        state = move.environment.state
        if move.role == "planner":
            return {"nearer": 0.0 if move.output.content in state.sensible_plans() else FAULT}
        if move.role == "executor":
            return {"valid": 0.0 if _is_valid(state, move) else FAULT}
        if move.role == "verifier" and isinstance(move.output, Verdict):
            right = move.output.accept == _is_safe(state, move.before.get("executor"))
            return {"verdict": 0.0 if right else -1.0}
        return {}


def _is_valid(state: SokobanState, move: Move) -> bool:
    said, plan, rejected = move.output.content, move.before.get("planner"), move.before.get("executor")
    if said not in MOVES or (rejected is not None and rejected.content == said):
        return False
    seen = dict(zip(MOVES, state.around(), strict=True))[said]
    planned = plan is not None and plan.content == name(state.level.cell) + said
    return seen in (OPEN, VISITED) or (seen == BOX and planned)


def _is_safe(state: SokobanState, proposal: Payload | None) -> bool:
    return proposal is not None and proposal.content in tuple(accepted(state))
