"""The own terms of `tool_use`: ToolRL's reward for whoever writes calls, its parts as terms of their own.

They add up to ToolRL's total but for its constant -3, which no comparison inside a group sees.
"""

from collections.abc import Mapping, Sequence

from mas.core.errors import ToolRefused
from mas.core.messages import Failure
from mas.core.reward import Move
from mas.scenarios.tool_use.environment import ToolEnvironment
from mas.scenarios.tool_use.tasks import solution
from mas.tools import ToolCall, tool_score

WRITERS = ("caller", "solo")


class ToolReward:
    """`format`: the output is a call, or for `solo` an answer. `tool_name`, `tool_parameters`, `tool_values`: against
    the next call that is wanted, or none where all were made."""

    terms: tuple[str, ...] = ("format", "tool_name", "tool_parameters", "tool_values")

    def own(self, move: Move) -> Mapping[str, float]:
        if move.role not in WRITERS:
            return {}
        world = move.environment
        assert isinstance(world, ToolEnvironment)
        state = world.state
        wanted = [call for call, _ in solution(state.puzzle, world.rules)[state.done :][:1]]
        called = _called(world, move)
        if called is None:
            return dict.fromkeys(self.terms, 0.0)
        score = tool_score(called, wanted, readable=True)
        scale = 6 / score.most
        return {
            "format": score.format,
            "tool_name": scale * score.name,
            "tool_parameters": scale * score.parameters,
            "tool_values": scale * score.values,
        }


def _called(world: ToolEnvironment, move: Move) -> Sequence[ToolCall] | None:
    """The calls of an output, none in an answer of `solo`; None: it is neither, so that it is worth nothing."""
    text = "" if isinstance(move.output, Failure) else move.output.content
    if move.role == "solo" and world.answer(text) is not None:
        return ()
    try:
        return (world.call(text),)
    except ToolRefused:
        return None
