"""Jobs of `workflow`: an entry of a table, and operations on it; the table has two sources, and one of them is down."""

from functools import lru_cache
from random import Random

import msgspec

from mas.core.errors import ToolRefused
from mas.scenarios.tool_use.tasks import (
    LOOK_UP,
    OPERATIONS,
    SHORTHAND,
    UNITS,
    Pair,
    Puzzle,
    TableEntry,
    ToolRules,
    question,
    result,
    toolbox,
)
from mas.tools import Shorthand, Tool, Toolbox, ToolCall

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


@lru_cache(maxsize=4096)
def tools(job: WorkflowJob, rules: ToolRules) -> Toolbox:
    """The tools of a job: three operations and two sources, one of which refuses every call."""

    def source(name: str) -> Tool[TableEntry]:
        def look_up(entry: TableEntry) -> str:
            if name == job.down:
                raise ValueError("the table is down")
            return toolbox(rules).perform(job.puzzle.table, ToolCall(LOOK_UP, entry.model_dump()))[1]

        return Tool(name=name, description="The price or weight of an item.", parameters=TableEntry, function=look_up)

    def operation(sign: str) -> Tool[Pair]:
        name = OPERATIONS[sign]
        return Tool(
            name=name,
            description=f"a {sign} b of two whole numbers.",
            parameters=Pair,
            function=lambda pair: str(result(sign, pair.a, pair.b, rules)),
        )

    return Toolbox([*map(operation, OPERATIONS), *map(source, SOURCES)])


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
