"""The own terms of `code_team`: what the coder's program gains on golden tests, and the tester's test in being right.

AT-GRPO (arXiv 2510.11062; its published code) pays the team p, the share of golden tests that the program passes, the
coder p again and the tester q, the share of its tests with which the golden code agrees. Here every term is the change
of p or q in the turn. What there was before is the same for all candidates of a group, so their advantages are those of
AT-GRPO. Over an episode the changes add up to p and q of what stands at its end, however many turns it has; an output
that says nothing, or does not parse, costs what stood before it on top.
"""

from collections.abc import Mapping

from mas.core.joint import joint_action
from mas.core.messages import Failure, Payload
from mas.core.reward import Move
from mas.scenarios.code_team.environment import MEMBERS, CodeEnvironment
from mas.scenarios.code_team.language import CodeAnswer


class CodeReward:
    """`program`: p of this program less p of the last one; `test`: the same of q. Of an output without one they are 0.
    A solo agent, which writes both, has both terms."""

    terms: tuple[str, ...] = ("program", "test")

    def own(self, move: Move) -> Mapping[str, float]:
        world = move.environment
        assert isinstance(world, CodeEnvironment)
        state = world.state
        before = move.before.get(move.agent)
        now = _said(world, move.role, move.output)
        last = CodeAnswer(state.program, state.test) if before is None else _said(world, move.role, before)
        terms = {}
        if move.role != "tester":
            terms["program"] = _share(world, now) - _share(world, last)
        if move.role != "coder":
            terms["test"] = float(_is_right(world, now)) - float(_is_right(world, last))
        return terms


def _share(world: CodeEnvironment, said: CodeAnswer) -> float:
    return world.language.share(world.state.function, said.program) if said.program else 0.0


def _is_right(world: CodeEnvironment, said: CodeAnswer) -> bool:
    return world.language.is_right(world.state.function, said.test)


def _said(world: CodeEnvironment, role: str, output: Payload) -> CodeAnswer:
    """What an output is to the environment; a failure says nothing."""
    text = "" if isinstance(output, Failure) else output.content
    return world.heard(joint_action({role: text}) if role in MEMBERS else text)[0]
