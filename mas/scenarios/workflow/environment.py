"""`workflow`: carry out a plan of tool calls step by step, and plan again where a step fails.

The plan, what was tried, and the last result are part of the episode's state. Without a verifier in the team the plan's
`answer` step ends the episode; with one (AgentFlow's four modules) its generator answers.
"""

import re
from collections.abc import Mapping
from random import Random
from typing import ClassVar

import msgspec

from mas.core.environment import EnvironmentSpec, Observation, Task
from mas.core.errors import ToolRefused
from mas.core.joint import read_joint
from mas.scenarios.tool_use.tasks import ToolRules
from mas.scenarios.workflow.jobs import (
    ANSWER,
    COMPACT,
    WorkflowJob,
    answer_of,
    asked,
    make,
    read_compact,
    shortened,
    tools,
)
from mas.scenarios.world import RecordEnvironment
from mas.tools import ToolCall
from mas.tools.plan import PlanState, bound

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

    state_type: ClassVar[type[msgspec.Struct]] = WorkState

    def __init__(self, rules: ToolRules) -> None:
        super().__init__(
            EnvironmentSpec(
                name="workflow", seats=("team",), views=VIEWS, max_turns=rules.operations + 4, terms=("right",)
            )
        )
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

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return None

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
            outcome = tools(state.job, self.rules).perform(call)
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

    def is_over(self, state: WorkState) -> bool:
        return state.answer is not None or state.turn >= self.spec.max_turns

    def is_solved(self, state: WorkState) -> bool:
        return state.answer == answer_of(state.job, self.rules)

    def measures(self) -> Mapping[str, float]:
        """How often a failed plan was revised."""
        return {"revisions": float(self.state.plan.revisions)}

    def render(self) -> str:
        state = self.state
        tried = [f"{one.call} -> {one.outcome}" for one in state.tried]
        answer = f"answer {'-' if state.answer is None else state.answer}, right is {answer_of(state.job, self.rules)}"
        plan = f"plan {shortened(state.plan.pending) or '-'}"
        return "\n".join([asked(state.job, self.rules), f"down: {state.job.down}", *tried, plan, answer])
