"""`workflow`: carry out a plan of tool calls step by step, and plan again where a step fails.

The plan, what was tried, and the last result are part of the episode's state. Without a verifier in the team the plan's
`answer` step ends the episode; with one (AgentFlow's four modules) its generator answers.

Jobs of `workflow`: an entry of a table, and operations on it; the table has two sources, and one of them is down.
"""

import re
from collections.abc import Iterator, Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import Move, Observation, Task
from mas.core.errors import ToolRefused
from mas.core.messages import Payload, Plan, joint_action, parsed_text, read_joint
from mas.roles.kinds import Planner
from mas.scenarios.noisy_teacher import DIGITS, NoisyTeacher
from mas.scenarios.tool_use.tasks import (
    LOOK_UP,
    OPERATIONS,
    SHORTHAND,
    UNITS,
    Puzzle,
    ToolRules,
    question,
    result,
    toolbox,
)
from mas.scenarios.world import RecordEnvironment, one_seat
from mas.tools import Shorthand, ToolCall
from mas.tools.plan import PlanState, bound

MIRROR, ANSWER = "look_up_mirror", "answer"
SOURCES = (LOOK_UP, MIRROR)
COMPACT = Shorthand({**SHORTHAND.tools, "m": (MIRROR, ("item", "unit")), "=": (ANSWER, ())})


class WorkflowJob(msgspec.Struct, frozen=True):
    """One task. `down`: the source of the table that does not answer; only calling it shows that."""

    puzzle: Puzzle
    down: str


def make(random: Random, rules: ToolRules) -> WorkflowJob:
    """A job with 0 to `rules.operations` operations."""
    table = tuple(random.randint(0, rules.numbers) for _ in range(rules.items * len(UNITS)))
    item, unit = random.randrange(rules.items), random.randrange(len(UNITS))
    count = random.randint(0, rules.operations)
    steps = tuple((random.choice(tuple(OPERATIONS)), random.randint(2, rules.numbers)) for _ in range(count))
    return WorkflowJob(Puzzle(None, item, unit, table, steps), random.choice(SOURCES))


def asked(job: WorkflowJob, rules: ToolRules) -> str:
    """The job as everybody reads it."""
    return question(job.puzzle, rules)


def content_of(job: WorkflowJob, rules: ToolRules) -> str:
    """What tells two jobs apart: the question, what it comes to, and the source that is down."""
    return f"{asked(job, rules)} {answer_of(job, rules)} {job.down}"


def perform(job: WorkflowJob, rules: ToolRules, call: ToolCall) -> str:
    """The result of a call of one of the three operations or the two sources, one of which refuses every call.

    Raises:
        ToolRefused: there is no such tool, or it cannot do it.
    """
    if call.name == job.down:
        raise ToolRefused("the table is down")
    known = ToolCall(LOOK_UP, call.arguments) if call.name == MIRROR else call
    return toolbox(rules).perform(job.puzzle.table, known)[1]


def answer_of(job: WorkflowJob, rules: ToolRules) -> int:
    """What the question comes to."""
    puzzle = job.puzzle
    value = puzzle.table[puzzle.item * len(UNITS) + puzzle.unit]
    for sign, number in puzzle.steps:
        value = result(sign, value, number, rules)
    return value


def steps_of(job: WorkflowJob, rules: ToolRules, source: str) -> tuple[ToolCall, ...]:
    """The whole plan: the look-up at a source, the operations on the last result, and the answer."""
    puzzle = job.puzzle
    begin = ToolCall(source, {"item": rules.item(puzzle.item), "unit": rules.unit(puzzle.unit)})
    rest = [ToolCall(OPERATIONS[sign], {"a": "_", "b": number}) for sign, number in puzzle.steps]
    return (begin, *rest, ToolCall(ANSWER, {}))


def shortened(steps: tuple[ToolCall, ...]) -> str:
    """A plan in compact form, `tap+_4=`."""
    return "".join(COMPACT.shorten(step) for step in steps)


def read_compact(text: str) -> tuple[ToolCall, ...]:
    """A plan from its compact form.

    Raises:
        ToolRefused: a character stands for no tool, or a call has too few characters.
    """
    found, rest = [], text
    while rest:
        size = 1 + len(COMPACT.tools.get(rest[0], ("", ()))[1])
        found.append(COMPACT.expand(rest[:size]))
        rest = rest[size:]
    if not found:
        raise ToolRefused("a plan has one step at least")
    return tuple(found)


PLANNER, EXECUTOR, VERIFIER, GENERATOR, SOLO = "planner", "executor", "verifier", "generator", "solo"
MEMBERS = (VERIFIER, PLANNER, EXECUTOR, GENERATOR)
VIEWS = (PLANNER, EXECUTOR, VERIFIER, "flow_planner", GENERATOR, SOLO)
FAILED = "!"
_ANSWER = re.compile(r"=?([0-9])\.?")


class Tried(msgspec.Struct, frozen=True):
    """A step that was tried: its call, and the result or `!`."""

    call: str
    outcome: str


class WorkState(msgspec.Struct, frozen=True):
    """`last`: the result of the last step that was carried out. `verdict`: the verifier's last word."""

    job: WorkflowJob
    plan: PlanState = PlanState()
    tried: tuple[Tried, ...] = ()
    last: int | None = None
    verdict: str = ""
    turn: int = 0
    answer: int | None = None


class WorkEnvironment(RecordEnvironment[WorkState]):
    """The team's action is what its members did in the turn, as `joint`: a plan, a call, a verdict, an answer."""

    def __init__(self, rules: ToolRules) -> None:
        super().__init__(one_seat("workflow", VIEWS, rules.operations + 4, ("right",)))
        self.rules = rules

    def initial(self, task: Task) -> WorkState:
        return WorkState(make(Random(task.seed), self.rules))

    def observe(self, view: str) -> Observation:
        """The planner is silent while its plan works."""
        seen = super().observe(view)
        is_silent = view == PLANNER and bool(self.state.plan.pending)
        return Observation(seen.fields, is_silent=is_silent)

    def fields(self, state: WorkState, view: str) -> Mapping[str, str]:
        plan = {"plan": shortened(state.plan.pending)}
        memory = {
            "question": asked(state.job, self.rules),
            "memory": "".join(one.call[:1] + one.outcome for one in state.tried),
        }
        if view == EXECUTOR:
            return plan | {"last": "" if state.last is None else str(state.last)}
        return memory

    def act(self, state: WorkState, action: str) -> tuple[WorkState, dict[str, float], bool]:
        said = read_joint(action, MEMBERS) or {SOLO: action}
        after = msgspec.structs.replace(state, turn=state.turn + 1, verdict=said.get(VERIFIER, "")[:1])
        if answered := _ANSWER.fullmatch(said.get(GENERATOR, said.get(SOLO, ""))):
            return self._answered(after, int(answered[1]))
        if SOLO in said:
            return self._tried(after, said[SOLO], None)
        if planned := said.get(PLANNER):
            after = msgspec.structs.replace(after, plan=self._planned(after.plan, planned))
        if EXECUTOR not in said or not after.plan.pending:
            return after, {"right": 0.0}, True
        step, rest = after.plan.pending[0], after.plan.pending[1:]
        after, paid, is_legal = self._tried(after, said[EXECUTOR], step)
        if after.plan.pending == rest and rest and rest[0].name == ANSWER and after.last is not None:
            return self._answered(after, after.last)
        return after, paid, is_legal

    def _answered(self, state: WorkState, answer: int) -> tuple[WorkState, dict[str, float], bool]:
        after = msgspec.structs.replace(state, answer=answer)
        return after, {"right": float(self.is_solved(after))}, True

    def _planned(self, plan: PlanState, text: str) -> PlanState:
        """The plan that takes the place of the old one; what cannot be read changes nothing."""
        try:
            return plan.revised(read_compact(text))
        except ToolRefused:
            return plan

    def _tried(self, state: WorkState, text: str, step: ToolCall | None) -> tuple[WorkState, dict[str, float], bool]:
        """A call, which must be the plan's step where there is a plan; only then is it carried out."""
        try:
            call = COMPACT.expand(text)
            if step is not None and call != bound(step, state.last):
                raise ToolRefused("this is not the plan's step")
            outcome = perform(state.job, self.rules, call)
        except ToolRefused:
            if not text:
                return state, {"right": 0.0}, True
            sign = COMPACT.shorten(step)[0] if step is not None else text[0] if text[0] in COMPACT.tools else "?"
            tried = (*state.tried, Tried(sign, FAILED))
            return (
                msgspec.structs.replace(state, tried=tried, plan=state.plan.after(is_done=False)),
                {"right": 0.0},
                False,
            )
        plan = state.plan.after(is_done=True) if step is not None else state.plan
        tried = (*state.tried, Tried(text, outcome))
        return msgspec.structs.replace(state, tried=tried, plan=plan, last=int(outcome)), {"right": 0.0}, True

    def follows(self, text: str, plan: str) -> bool:
        """Whether a call is the next step of the plan: of `plan` where the planner has just written it, else of the
        state's."""
        pending = self._planned(self.state.plan, plan).pending if plan else self.state.plan.pending
        try:
            return bool(pending) and COMPACT.expand(text) == bound(pending[0], self.state.last)
        except ToolRefused:
            return False

    def is_solved(self, state: WorkState) -> bool:
        return state.answer is not None and state.answer == answer_of(state.job, self.rules)

    def measures(self) -> Mapping[str, float]:
        """How often a failed plan was revised."""
        return {"revisions": float(self.state.plan.revisions)}

    def render(self) -> str:
        state = self.state
        tried = [f"{one.call} -> {one.outcome}" for one in state.tried]
        answer = f"answer {'-' if state.answer is None else state.answer}, right is {answer_of(state.job, self.rules)}"
        plan = f"plan {shortened(state.plan.pending) or '-'}"
        return "\n".join([asked(state.job, self.rules), f"down: {state.job.down}", *tried, plan, answer])


SIGNS = "".join(COMPACT.tools)
END = "."
"""Where the tiny base stops to write a plan; no part of it."""
_FAILS = 0.15
"""How often a step other than the look-up has failed where a demonstration begins."""


def expert(environment: WorkEnvironment, random: Random) -> dict[str, str]:
    """A plan at the source that answers, and its steps one by one."""
    state, said = environment.state, {}
    pending = state.plan.pending
    if not pending:
        source = MIRROR if state.job.down == LOOK_UP else LOOK_UP
        pending = steps_of(state.job, environment.rules, source)
        said[PLANNER] = shortened(pending)
    said[EXECUTOR] = COMPACT.shorten(bound(pending[0], state.last))
    return {"team": joint_action(said)}


def demonstrations(random: Random, skill: float, *, rules: ToolRules) -> Iterator[tuple[str, str]]:
    """Every role's part at a place that a workflow may come to: right with `skill`, by habit else; the frozen members
    of `flow` are always right.

    Habits: the planner writes the plan that it begins with, whatever has failed; `flow`'s planner looks up at the first
    source; the executor of a sum or product uses the last result twice; solo looks up at the first source.
    """
    teacher, environment = NoisyTeacher(random, skill), WorkEnvironment(rules)
    while True:
        state, rest = _place(random, rules)
        seen = dict(environment.fields(state, PLANNER))
        shown = f"{seen['question']};{seen['memory']}"
        first = steps_of(state.job, rules, LOOK_UP)
        step = rest[0]
        last = "" if state.last is None else str(state.last)
        if step.name == ANSWER:
            yield f"V{shown}>", "y"
            yield f"G{shown}>", last
            yield f"S{shown}>", teacher.answer(f"={last}.", shortened(first[:1]), DIGITS)
            continue
        call = COMPACT.shorten(bound(step, state.last))
        if not state.tried or state.tried[-1].outcome == FAILED:
            yield f"P{shown}>", f"{teacher.answer(shortened(rest), shortened(first), SIGNS)}{END}"
        planned = shortened(rest)
        habit = call if step.name in SOURCES else call[0] + call[1] * 2
        yield f"E{planned};{last}>", teacher.answer(call, habit, DIGITS)
        yield f"X{planned[:3]};{last}>", call
        yield f"Q{shown}>", teacher.answer(planned[:3], shortened(first[:1]), SIGNS)
        yield f"V{shown}>", "n"
        yield f"S{shown}>", teacher.answer(call, shortened(first[:1]), DIGITS)


def _place(random: Random, rules: ToolRules) -> tuple[WorkState, tuple[ToolCall, ...]]:
    """A state on the way, and the steps that are still wanted from there on."""
    job = make(random, rules)
    source = random.choice(SOURCES)
    state = WorkState(job)
    rest = steps_of(job, rules, source)
    for _ in range(random.randint(0, len(rest) + 1)):
        step = rest[0]
        if step.name == ANSWER:
            break
        call = bound(step, state.last)
        short = COMPACT.shorten(call)
        if step.name == job.down or random.random() < _FAILS:
            state = msgspec.structs.replace(state, tried=(*state.tried, Tried(short[0], FAILED)))
            if step.name in SOURCES:
                other = MIRROR if step.name == LOOK_UP else LOOK_UP
                rest = (ToolCall(other, step.arguments), *rest[1:])
            continue
        outcome = perform(job, rules, call)
        state = msgspec.structs.replace(state, tried=(*state.tried, Tried(short, outcome)), last=int(outcome))
        rest = rest[1:]
    return state, rest


class WorkReward:
    """`follow`, to the executor of a plan: -1 for a call that is not the plan's next step, else 0.

    Source: PilotRL, arXiv 2508.00344: in its first stage adherence to the plan is rewarded, here by a rule.
    """

    terms: tuple[str, ...] = ("follow",)

    def own(self, move: Move) -> Mapping[str, float]:
        world = move.environment
        assert isinstance(world, WorkEnvironment)
        if move.role != EXECUTOR:
            return {}
        plan = move.before.get(PLANNER)
        written = parsed_text(plan)
        text = parsed_text(move.output)
        return {"follow": float(world.follows(text, written)) - 1.0}


class StepPlanner(Planner):
    """Emits a plan of typed steps, or a failure that says which step is none."""

    emittable: ClassVar[frozenset[str]] = frozenset({"plan"})

    def answer(self, text: str) -> Payload:
        try:
            read_compact(text)
        except ToolRefused as error:
            return self.failure(text, str(error))
        return Plan(text=text)
