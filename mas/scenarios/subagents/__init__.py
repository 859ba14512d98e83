"""`subagents`: a planner calls a sub-agent, reads its report, calls again, and answers (after MATPO, arXiv 2510.04678).

A team turn is one call with its report, or the answer. Calls and reports are all that the planner is shown of what a
sub-agent did; a sub-agent sees neither the question nor other reports.

The own terms of `subagents`: form, as MATPO (arXiv 2510.04678) pays it, and what a search found.
"""

from collections.abc import Iterator, Mapping
from functools import partial
from random import Random
from typing import Annotated, ClassVar

import msgspec
from pydantic import Field

from mas.core.environment import Move, Task
from mas.core.messages import Failure, Payload, Plan, joint_action, read_joint
from mas.core.options import Options
from mas.roles.kinds import Planner
from mas.scenarios.delegate import FACTS, LARGEST, NAMES, DelegateCase, content_of, make, page, value
from mas.scenarios.noisy_teacher import DIGITS, NoisyTeacher
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario, RecordEnvironment, kept_text, one_seat

PLANNER, SOLO = "planner", "solo"
REPORTERS = ("worker.reader", "left_clerk", "right_clerk", "refiner")
"""Agents whose output is a report to the planner."""
VIEWS = (PLANNER, "searcher", "reader", "coordinator", "left_clerk", "right_clerk", "local", "web", "refiner", SOLO)
LEFT, RIGHT = "p", "q"
"""The facts that each of two clerks, or of two search agents, has in its part of the archive."""
NO_REPORT = "?"
_ANSWERS = tuple(f"={digit}" for digit in DIGITS)


class WorkerCall(msgspec.Struct, frozen=True):
    """A call and what the planner was told."""

    call: str
    report: str


class CallState(msgspec.Struct, frozen=True):
    """`answer` is None before the team's."""

    case: DelegateCase
    calls: tuple[WorkerCall, ...] = ()
    turn: int = 0
    answer: str | None = None


class CallEnvironment(RecordEnvironment[CallState]):
    """The team's action is a call and its report as `joint`, or the answer, `=7`."""

    def __init__(self, spare: int) -> None:
        super().__init__(one_seat("subagents", VIEWS, 3 + spare, ("right",)))

    def initial(self, task: Task) -> CallState:
        return CallState(make(Random(task.seed), "letters", 2))

    def fields(self, state: CallState, view: str) -> Mapping[str, str]:
        case = state.case
        if view in (PLANNER, SOLO):
            seen = {"question": case.question, "reports": "".join(one.call + one.report for one in state.calls)}
            return seen | {"archive": case.archive} if view == SOLO else seen
        part = {"left_clerk": LEFT, "local": LEFT, "right_clerk": RIGHT, "web": RIGHT}.get(view)
        if view == "reader" or part is not None:
            kept = [line for line in case.documents if part is None or line[1] == part]
            return {"archive": "\n".join(kept)}
        return {}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        """The answers; calls with their reports, which are actions too, are too many to be listed."""
        return _ANSWERS

    def act(self, state: CallState, action: str) -> tuple[CallState, dict[str, float], bool]:
        said = read_joint(action, (PLANNER, *REPORTERS)) or ({SOLO: action} if action else {})
        after = msgspec.structs.replace(state, turn=state.turn + 1)
        text = said.get(PLANNER, said.get(SOLO, ""))
        if text.startswith("=") and text[1:] in tuple(DIGITS):
            after = msgspec.structs.replace(after, answer=text[1:])
            return after, {"right": float(self.is_solved(after))}, True
        if SOLO in said:
            return after, {"right": 0.0}, False
        if PLANNER in said:
            report = next((said[name] for name in REPORTERS if name in said), NO_REPORT)
            called = WorkerCall(kept_text(text[-2:]), kept_text(report, 1))
            after = msgspec.structs.replace(after, calls=(*after.calls, called))
        return after, {"right": 0.0}, True

    def is_solved(self, state: CallState) -> bool:
        return state.answer == state.case.answer

    def render(self) -> str:
        state = self.state
        needed = [state.case.documents[at] for at in state.case.needed]
        calls = [f"{one.call} -> {one.report}" for one in state.calls]
        said = "-" if state.answer is None else state.answer
        return "\n".join([state.case.question, *needed, *calls, f"answer {said}, right is {state.case.answer}"])


_SMALL = DIGITS[: LARGEST + 1]


def expert(environment: CallEnvironment, random: Random) -> dict[str, str]:
    """The calls that are needed with true reports, then the answer."""
    state = environment.state
    case, made = state.case, len(state.calls)
    if made == len(case.parts):
        return {"team": joint_action({PLANNER: f"={case.answer}"})}
    report = value(case.documents[case.needed[made]])
    return {"team": joint_action({PLANNER: case.parts[made], REPORTERS[0]: report})}


def demonstrations(random: Random, skill: float) -> Iterator[tuple[str, str]]:
    """Each role's part: right with `skill`, else biased (see `NoisyTeacher`); coordinator, clerks and refiner are
    frozen and always right.

    Solo is shown nothing: two look-ups and a sum in one answer are too much for the tiny base.

    The habits: a planner asks for the first entry again and answers with the first report, a reader and a search agent
    take the first entry of the page.
    """
    teacher = NoisyTeacher(random, skill)
    while True:
        case = make(random, "letters", 2)
        yield from _planners(case, teacher)
        for part, at in zip(case.parts, case.needed, strict=True):
            told = value(case.documents[at])
            side, web = ("l", "l") if part[1] == LEFT else ("r", "w")
            whole = page(case.archive, part, "letters")
            half = page("\n".join(line for line in case.documents if line[1] == part[1]), part, "letters")
            yield f"W{part}>", part
            yield f"R{part};{whole}>", teacher.answer(told, whole[2], _SMALL)
            yield f"K{part}>", side + part
            yield f"C{side}{part};{half}>", told
            yield f"L{web}{part};{half}>", teacher.answer(part + told, half[:3], NAMES + FACTS + _SMALL)
            found = random.choice((part + told, half[:3]))
            yield (
                f"F{web}{part};{found}>",
                teacher.answer(found[2] if found[:2] == part else "-", found[2], _SMALL + "-"),
            )


def _planners(case: DelegateCase, teacher: NoisyTeacher) -> Iterator[tuple[str, str]]:
    """The planner of `team` and of `hierarchy`, at each of its turns."""
    first, second = case.parts
    told = [value(case.documents[at]) for at in case.needed]
    letters = NAMES + FACTS
    where = {LEFT: "l"}
    for name, before in (("P", ("", "")), ("H", (where.get(first[1], "w"), where.get(second[1], "w")))):
        yield f"{name}{case.question};>", before[0] + first
        yield f"{name}{case.question};{first}{told[0]}>", teacher.answer(before[1] + second, before[0] + first, letters)
        said = f"={teacher.answer(case.answer, told[0], DIGITS)}"
        yield f"{name}{case.question};{first}{told[0]}{second}{told[1]}>", said


SEARCH_AGENTS = ("local", "web")


class CallReward:
    """`format`: -1 for output that cannot be read, of anybody; else 0. `found`, to a search agent: 1 for the entry that
    it was asked for, as the archive has it; else 0.

    Source of `found`: HierSearch, arXiv 2508.08088, whose search agents are trained on questions of their own first.
    """

    terms: tuple[str, ...] = ("format", "found")

    def own(self, move: Move) -> Mapping[str, float]:
        terms = {"format": -float(isinstance(move.output, Failure))}
        if move.role not in SEARCH_AGENTS:
            return terms
        world = move.environment
        assert isinstance(world, CallEnvironment)
        call, found = move.before.get(PLANNER), move.output.content
        asked = call.content[1:] if call is not None else ""
        return terms | {"found": float(found[:2] == asked and found in world.state.case.documents)}


class CallingPlanner(Planner):
    """Emits a call, `bp`, on the route `call`, or the answer, `=7`, on the route `answer`."""

    default_routes: ClassVar[tuple[str, ...]] = ("call", "answer")
    default_failure_route: ClassVar[str | None] = "answer"
    emittable: ClassVar[frozenset[str]] = frozenset({"plan"})
    size: ClassVar[int] = 2

    def answer(self, text: str) -> Payload:
        if text[0] == "=":
            if text[1:] not in tuple(DIGITS):
                return self.failure(text, "is no answer: write = and one digit")
            return Plan(text=text, chosen_route="answer")
        if len(text) != self.size or not text.isalpha():
            return self.failure(text, f"is no call: write {self.size} letters")
        return Plan(text=text, chosen_route=self.called(text))

    def called(self, text: str) -> str:
        return "call"


class ChoosingPlanner(CallingPlanner):
    """Says first whom it calls: `lbp` the local agent, `wbp` the web agent."""

    default_routes: ClassVar[tuple[str, ...]] = ("local", "web", "answer")
    size: ClassVar[int] = 3

    def called(self, text: str) -> str:
        return "local" if text[0] == "l" else "web"


class Coordinator(Planner):
    """Hands a planner's call to one of two clerks: `lbp` to the left one, `rbp` to the right one."""

    default_accepts: ClassVar[frozenset[str]] = frozenset({"plan"})
    default_routes: ClassVar[tuple[str, ...]] = ("left", "right")
    default_failure_route: ClassVar[str | None] = "left"
    emittable: ClassVar[frozenset[str]] = frozenset({"plan"})
    duty: ClassVar[str] = "Say which clerk is to do what the planner asks for."

    def answer(self, text: str) -> Payload:
        return Plan(text=text, chosen_route="right" if text.startswith("r") else "left")


class CallOptions(Options):
    """`spare`: team turns beyond two calls and the answer. `skill`: share of right answers of the noisy teacher that
    the tiny base learns from last."""

    spare: Annotated[int, Field(ge=0, le=5)] = 1
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.75


def build(options: CallOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        __file__,
        options,
        partial(CallEnvironment, options.spare),
        lambda random: content_of(make(random, "letters", 2)),
        demonstrations,
        reward=CallReward(),
        expert=expert,
    )


ENTRY = ScenarioEntry(CallOptions, build, "tool use", {"small": {}, "medium": {"spare": 0}})
