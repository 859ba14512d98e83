"""The own terms of `code_team`: what the coder's program gains on golden tests, and the tester's test in being right.

AT-GRPO (arXiv 2510.11062; its published code) pays the team p, the share of golden tests that the program passes, the
coder p again and the tester q, the share of its tests with which the golden code agrees. Here every term is the change
of p or q in the turn. What there was before is the same for all candidates of a group, so their advantages are those of
AT-GRPO. Over an episode the changes add up to p and q of what stands at its end, however many turns it has.
"""

from collections.abc import Mapping

from mas.core.joint import joint_action
from mas.core.messages import Failure, Payload
from mas.core.reward import Move
from mas.scenarios.code_team.environment import MEMBERS, CodeEnvironment
from mas.scenarios.code_team.language import Said


class CodeReward:
    """`program`: the change of p. `test`: that of q, 1 while the test that stands is right, else 0. What is not said
    again, or does not parse, stands and changes nothing. A solo agent, which writes both, has both terms."""

    terms: tuple[str, ...] = ("program", "test")

    def own(self, move: Move) -> Mapping[str, float]:
        world = move.environment
        assert isinstance(world, CodeEnvironment)
        said, before = (_said(world, move.role, output) for output in (move.output, move.before.get(move.agent)))
        terms = {}
        if move.role != "tester":
            terms["program"] = _share(world, said) - _share(world, before)
        if move.role != "coder":
            terms["test"] = float(_is_right(world, said)) - float(_is_right(world, before))
        return terms


def _share(world: CodeEnvironment, said: Said) -> float:
    state = world.state
    return world.language.share(state.function, said.program) if said.program else state.share


def _is_right(world: CodeEnvironment, said: Said) -> bool:
    state = world.state
    return world.language.is_right(state.function, said.test or state.test)


def _said(world: CodeEnvironment, role: str, output: Payload | None) -> Said:
    """What an output is to the environment; a failure says nothing."""
    text = "" if output is None or isinstance(output, Failure) else output.content
    return world.heard(joint_action({role: text}) if role in MEMBERS else text)[0]
