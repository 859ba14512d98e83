"""The own terms of `code_team`: penalties of the coder for golden tests, and of the tester for wrong tests.

AT-GRPO (arXiv 2510.11062; its published code) pays the team p, the share of golden tests that the program passes, the
coder p again and the tester q, the share of its tests with which the golden code agrees. Here the own terms are p - 1
and q - 1: the same within a group of candidates, and nobody is paid for another turn.
"""

from collections.abc import Mapping

from mas.core.messages import Failure
from mas.core.reward import Move
from mas.scenarios.code_team.environment import CodeEnvironment
from mas.scenarios.code_team.language import Said


class CodeReward:
    """`failed`: p - 1 of this very program. `mistaken`: -1 for a test that the reference does not agree with, or none.
    A solo agent, which writes both, has both."""

    terms: tuple[str, ...] = ("failed", "mistaken")

    def own(self, move: Move) -> Mapping[str, float]:
        world = move.environment
        assert isinstance(world, CodeEnvironment)
        said, function, language = _said(world, move), world.state.function, world.language
        terms = {}
        if move.role != "tester":
            terms["failed"] = (language.share(function, said.program) if said.program else 0.0) - 1.0
        if move.role != "coder":
            terms["mistaken"] = float(language.is_right(function, said.test)) - 1.0
        return terms


def _said(world: CodeEnvironment, move: Move) -> Said:
    """What the output is to the environment; a failure says nothing."""
    text = "" if isinstance(move.output, Failure) else move.output.content
    if move.role == "coder":
        said = world.language.heard(text, "")
    elif move.role == "tester":
        said = world.language.heard("", text)
    else:
        said = world.heard(text)
    return said or Said()
