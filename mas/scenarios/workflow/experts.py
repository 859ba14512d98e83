"""Scripted members of the team. They teach the tiny base, and play as well as is possible."""

from collections.abc import Iterator
from random import Random

import msgspec

from mas.core.joint import joint_action
from mas.scenarios.noisy_teacher import NoisyTeacher
from mas.scenarios.tool_use.tasks import LOOK_UP, ToolRules
from mas.scenarios.workflow.environment import (
    EXECUTOR,
    FAILED,
    PLANNER,
    Tried,
    WorkEnvironment,
    WorkState,
)
from mas.scenarios.workflow.jobs import ANSWER, COMPACT, MIRROR, SOURCES, make, shortened, steps_of, tools
from mas.tools import ToolCall
from mas.tools.plan import bound

DIGITS = "0123456789"
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
    box, state = tools(job, rules), WorkState(job)
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
        outcome = box.perform(call)
        state = msgspec.structs.replace(state, tried=(*state.tried, Tried(short, outcome)), last=int(outcome))
        rest = rest[1:]
    return state, rest
