"""The own terms of `sudoku`: what each role's own view lets it know. All are penalties: none can be collected."""

from collections.abc import Mapping

from mas.core.messages import Payload, Verdict
from mas.core.reward import Move
from mas.scenarios.sudoku.environment import NAMES, WIPE, SudokuEnvironment, SudokuState
from mas.scenarios.sudoku.puzzle import BLANK

FAULT = -0.2


class SudokuReward:
    """`narrow`: the planned blank is one with the fewest digits. `valid`: the digit is for that blank, its row
    leaves it, and it was not just sent back. `verdict`: accepted exactly when column and block leave it."""

    terms: tuple[str, ...] = ("narrow", "valid", "verdict")

    def own(self, move: Move) -> Mapping[str, float]:
        assert isinstance(move.environment, SudokuEnvironment)
        state = move.environment.state
        if move.role == "planner":
            said = move.output.content
            return {"narrow": 0.0 if len(said) == 1 and said in state.sensible_blanks() else FAULT}
        if move.role == "executor":
            return {"valid": 0.0 if _is_valid(state, move) else FAULT}
        if move.role == "verifier" and isinstance(move.output, Verdict):
            right = move.output.accept == _fits(state, move.before.get("executor"))
            return {"verdict": 0.0 if right else -1.0}
        return {}


def _is_valid(state: SudokuState, move: Move) -> bool:
    said, plan, rejected = move.output.content, move.before.get("planner"), move.before.get("executor")
    if plan is None or said[:1] != plan.content or (rejected is not None and rejected.content == said):
        return False
    return _is_left(state, said, state.row_digits())


def _fits(state: SudokuState, proposal: Payload | None) -> bool:
    return proposal is not None and _is_left(state, proposal.content, state.around_digits())


def _is_left(state: SudokuState, action: str, table: Mapping[str, str]) -> bool:
    """Whether a table of digits per blank has the action's digit, or there is something that it wipes."""
    name, digit = action[:1], action[1:]
    if name not in table or len(digit) != 1:
        return False
    return state.written[NAMES.index(name)] != BLANK if digit == WIPE else digit in table[name]
