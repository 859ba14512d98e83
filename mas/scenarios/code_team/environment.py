"""`code_team`: a coder writes a function, a tester at the same time a test of it (after AT-GRPO, arXiv 2510.11062).

The program is run on hidden golden tests, which pay, and on the tester's. Where program and test agree the episode is
over; where they do not both see it, and may say something else as long as there are turns. What an agent does not say
again stands.
"""

from collections.abc import Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Task
from mas.core.joint import read_joint
from mas.scenarios.code_team.language import HOLDS, CodeAnswer, Function, Language
from mas.scenarios.world import RecordEnvironment

MEMBERS = ("coder", "tester")


class CodeState(msgspec.Struct, frozen=True, kw_only=True):
    """`share`: of golden tests that the program passes. `outcome`: what the program did in the last test, empty where
    there was none. `first`: the share after the first turn. `rights`: turns in which the test that stood was right."""

    function: Function
    program: str = ""
    test: str = ""
    share: float = 0.0
    outcome: str = ""
    first: float = 0.0
    rights: int = 0
    turn: int = 0


class CodeEnvironment(RecordEnvironment[CodeState]):
    """A program and a test a turn, until they agree or `turns` are over. Pays the change of the share as `passed`."""

    state_type: ClassVar[type[msgspec.Struct]] = CodeState

    def __init__(self, language: Language, turns: int) -> None:
        super().__init__(
            EnvironmentSpec(
                name="code_team", seats=("team",), views=(*MEMBERS, "solo"), max_turns=turns, terms=("passed",)
            )
        )
        self.language = language

    def initial(self, task: Task) -> CodeState:
        return CodeState(function=self.language.make(Random(task.seed)))

    def fields(self, state: CodeState, view: str) -> Mapping[str, str]:
        return {
            "task": state.function.spec,
            "program": state.program,
            "test": state.test,
            "outcome": state.outcome,
        }

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return self.language.actions()

    def heard(self, action: str) -> tuple[CodeAnswer, bool]:
        """The program and the test of an action, empty what was not said or not legal; whether all of it is legal."""
        if not action:
            return CodeAnswer(), True
        joint = read_joint(action, MEMBERS)
        if joint is None:
            said = self.language.alone(action)
            return said or CodeAnswer(), said is not None
        coder = self.language.heard(joint.get("coder", ""), "")
        tester = self.language.heard("", joint.get("tester", ""))
        said = CodeAnswer(coder.program if coder else "", tester.test if tester else "")
        return said, coder is not None and tester is not None

    def act(self, state: CodeState, action: str) -> tuple[CodeState, dict[str, float], bool]:
        (said, legal), function = self.heard(action), state.function
        program, test = said.program or state.program, said.test or state.test
        share = self.language.share(function, program) if said.program else state.share
        after = msgspec.structs.replace(
            state,
            program=program,
            test=test,
            share=share,
            outcome=self.language.outcome(function, program, test) if program and test else "",
            first=state.first if state.turn else share,
            rights=state.rights + self.language.is_right(function, test),
            turn=state.turn + 1,
        )
        return after, {"passed": share - state.share}, legal

    def is_over(self, state: CodeState) -> bool:
        return state.outcome == HOLDS or state.turn >= self.spec.max_turns

    def is_solved(self, state: CodeState) -> bool:
        return state.share == 1.0

    def measures(self) -> Mapping[str, float]:
        """`first_share`: of golden tests that the first program passed. `right_tests`: of turns, those whose test was
        right."""
        state = self.state
        return {"first_share": state.first, "right_tests": state.rights / max(state.turn, 1)}

    def render(self) -> str:
        state = self.state
        lines = [state.function.spec, f"program: {state.program or '-'}", f"test: {state.test or '-'}"]
        return "\n".join([*lines, f"outcome: {state.outcome or '-'}", f"golden tests passed: {state.share:.2f}"])
