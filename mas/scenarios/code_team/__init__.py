"""`code_team`: a coder writes a function, a tester at the same time a test of it (after AT-GRPO, arXiv 2510.11062).

The program is run on hidden golden tests, which pay, and on the tester's. Where program and test agree the episode is
over; where they do not both see it, and may say something else as long as there are turns. What an agent does not say
again stands.

The own terms of `code_team`: what the coder's program gains on golden tests, and the tester's test in being right.
AT-GRPO (arXiv 2510.11062; its published code) pays the team p, the share of golden tests that the program passes, the
coder p again and the tester q, the share of its tests with which the golden code agrees. Here every term is the change
of p or q in the turn. What there was before is the same for all candidates of a group, so their advantages are those of
AT-GRPO. Over an episode the changes add up to p and q of what stands at its end, however many turns it has; an output
that says nothing, or does not parse, costs what stood before it on top.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Annotated

import msgspec
from pydantic import Field

from mas.core.environment import Move, Task
from mas.core.messages import Payload, joint_action, parsed_text, read_joint
from mas.core.options import Options
from mas.scenarios.code_team.language import (
    DIGITS,
    HOLDS,
    INPUTS,
    CodeAnswer,
    Compact,
    Function,
    program_of,
    reference,
    run,
)
from mas.scenarios.code_team.worded import Worded
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, RecordEnvironment, Style, one_seat

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

    def __init__(self, language: Compact | Worded, turns: int) -> None:
        super().__init__(one_seat("code_team", (*MEMBERS, "solo"), turns, ("passed",)))
        self.language = language

    def initial(self, task: Task) -> CodeState:
        return CodeState(function=self.language.make(Random(task.seed)))

    def fields(self, state: CodeState, view: str) -> Mapping[str, str]:
        return {"task": state.function.spec, "program": state.program, "test": state.test, "outcome": state.outcome}

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


def expert(environment: CodeEnvironment, random: Random) -> dict[str, str]:
    """A program that passes all golden tests, and a right test."""
    program, test = environment.language.solution(environment.state.function, random)
    return {"team": joint_action(dict(zip(MEMBERS, (program, test), strict=True)))}


def demonstrations(random: Random, skill: float, *, steps: int) -> Iterator[tuple[str, str]]:
    """Each member's task in its first turn and after a test that failed: right with `skill`, by habit else.

    The habit of a first turn is to read the first operation alone, so that program and test share the mistake; of a
    later turn, to say the same again.
    """
    language, teacher = Compact(steps), NoisyTeacher(random, skill)
    while True:
        function = language.make(random)
        given = random.choice(INPUTS)
        right = program_of(function.steps), f"{given}{reference(function, int(given))}"
        first = program_of(function.steps[:1])
        habit = first, f"{given}{run(first, int(given))}"
        yield from _turn(teacher, f"{function.spec};", right, habit)
        said = _failed(random, right, habit)
        yield from _turn(teacher, f"{function.spec};{''.join(said)}", right, said)


def _turn(
    teacher: NoisyTeacher, seen: str, right: tuple[str, str], habit: tuple[str, str]
) -> Iterator[tuple[str, str]]:
    yield f"C{seen}>", teacher.answer(right[0], habit[0], DIGITS)
    yield f"T{seen}>", teacher.answer(right[1], habit[1], DIGITS)
    yield f"S{seen}>", teacher.answer("".join(right), "".join(habit), DIGITS)


def _failed(random: Random, right: tuple[str, str], habit: tuple[str, str]) -> tuple[str, str]:
    """A program and a test that do not agree, one of them right half of the time."""
    while True:
        any_program = random.choice("+-*") + random.choice(DIGITS)
        program, test = random.choice((right[0], habit[0], any_program)), random.choice((right[1], habit[1]))
        if random.random() < 0.3:
            test = test[0] + random.choice(DIGITS)
        if run(program, int(test[0])) != int(test[1]):
            return program, test


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
    text = parsed_text(output)
    return world.heard(joint_action({role: text}) if role in MEMBERS else text)[0]


class CodeOptions(Options):
    """The dial is `steps`: how many a function has, one after another.

    `style`: programs of two characters over digits, which the tiny base can learn, or functions in words and programs
    in Python, for real models; they are run in the sandbox alone. `turns`: how often the team may speak. `skill`: share
    of right answers of the noisy teacher that the tiny base learns from last.
    """

    style: Style = "letters"
    steps: Annotated[int, Field(ge=2, le=6)] = 2
    turns: Annotated[int, Field(ge=1, le=5)] = 2
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.3


def build(options: CodeOptions) -> FolderScenario:
    """The scenario with these options; in words it has no task on a machine that cannot run programs safely."""
    language = Compact(options.steps) if options.style == "letters" else Worded(options.steps)
    return FolderScenario(
        __file__,
        options,
        partial(CodeEnvironment, language, options.turns),
        lambda random: language.make(random).spec,
        partial(demonstrations, steps=options.steps),
        inner=options.style,
        reward=CodeReward(),
        expert=expert,
    )


ENTRY = ScenarioEntry(
    CodeOptions,
    build,
    "mathematics and code",
    {"small": {}, "medium": {"style": "words"}, "large": {"style": "words", "steps": 4}},
)
