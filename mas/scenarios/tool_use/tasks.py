"""Tasks of `tool_use`: a first number, from the question or from a hidden table, and operations on it one by one."""

import re
from collections.abc import Mapping
from random import Random
from typing import Annotated, Literal

import msgspec
from pydantic import Field

from mas.core.errors import ToolRefused
from mas.core.naming import did_you_mean
from mas.tools import Parameters, Shorthand, Tool, Toolbox, ToolCall

OPERATIONS = {"+": "add", "-": "subtract", "*": "multiply"}
ITEMS = ("axle", "bolt", "clamp", "disc", "engine", "filter", "gear", "hinge")
UNITS = ("price", "weight")
Kind = Literal["calculate", "look_up", "both"]
KINDS: tuple[Kind, ...] = ("calculate", "look_up", "both")
LOOK_UP = "look_up"
SHORTHAND = Shorthand(
    {sign: (name, ("a", "b")) for sign, name in OPERATIONS.items()} | {"t": (LOOK_UP, ("item", "unit"))}
)
_WORDS = {"+": "Add {}.", "-": "Subtract {}.", "*": "Multiply it by {}."}

_CALCULATION = re.compile(r"(-?[0-9]{1,12}) ([-+*]) (-?[0-9]{1,12})")
_LOOK_UP = re.compile(r"([a-z]+) of the ([a-z]+)")


class ToolRules(msgspec.Struct, frozen=True, kw_only=True):
    """The dial. Compact: one-character names and numbers, and every result is its last digit. `words`: calls are
    written `weight of the bolt` and `7 * 12`; not together with compact."""

    compact: bool = True
    words: bool = False
    operations: int = 1
    items: int = 3
    numbers: int = 9
    kinds: tuple[Kind, ...] = KINDS

    @property
    def max_turns(self) -> int:
        """A look-up, every operation, the answer, and one turn to spare."""
        return self.operations + 3

    def item(self, number: int) -> str:
        """What an item is called."""
        return ITEMS[number][0] if self.compact else ITEMS[number]

    def unit(self, number: int) -> str:
        """What a column of the table is called."""
        return UNITS[number][0] if self.compact else UNITS[number]


class Puzzle(msgspec.Struct, frozen=True):
    """One task.

    Attributes:
        first: the number that it begins with; None: that of `item` and `unit` in the table.
        table: rows of items, a column per unit; only the look-up tool shows it.
        steps: (sign, number), done from left to right.
    """

    first: int | None
    item: int
    unit: int
    table: tuple[int, ...]
    steps: tuple[tuple[str, int], ...]


def make(random: Random, rules: ToolRules) -> Puzzle:
    """A task of one of three kinds: operations on a number, a look-up alone, or operations on what is looked up."""
    kind = random.choice(rules.kinds)
    table = tuple(random.randint(0 if rules.compact else 1, rules.numbers) for _ in range(rules.items * len(UNITS)))
    count = 0 if kind == "look_up" else random.randint(1, rules.operations)
    steps = tuple((random.choice(tuple(OPERATIONS)), random.randint(2, rules.numbers)) for _ in range(count))
    first = random.randint(2, rules.numbers) if kind == "calculate" else None
    return Puzzle(first, random.randrange(rules.items), random.randrange(len(UNITS)), table, steps)


def question(puzzle: Puzzle, rules: ToolRules) -> str:
    """The task as everybody reads it."""
    item, unit = rules.item(puzzle.item), rules.unit(puzzle.unit)
    if rules.compact:
        return (f"{item}{unit}" if puzzle.first is None else f".{puzzle.first}") + "".join(
            f"{sign}{number}" for sign, number in puzzle.steps
        )
    begin = f"Take the {unit} of the {item}." if puzzle.first is None else f"Take the number {puzzle.first}."
    return " ".join([begin, *(_WORDS[sign].format(number) for sign, number in puzzle.steps), "What is the result?"])


class Pair(Parameters):
    """Two whole numbers."""

    a: Annotated[int, Field(ge=-(10**12), le=10**12)]
    b: Annotated[int, Field(ge=-(10**12), le=10**12)]


class TableEntry(Parameters):
    """A place in the table."""

    item: str
    unit: str


def toolbox(puzzle: Puzzle, rules: ToolRules) -> Toolbox:
    """The tools of one task: three operations, and its own table."""

    def look_up(entry: TableEntry) -> str:
        items = [rules.item(number) for number in range(rules.items)]
        units = [rules.unit(number) for number in range(len(UNITS))]
        for name, known in ((entry.item, items), (entry.unit, units)):
            if name not in known:
                raise ValueError(f"the table has no {name[:40]!r}. {did_you_mean(name[:40], known)}")
        return str(puzzle.table[items.index(entry.item) * len(UNITS) + units.index(entry.unit)])

    def operation(sign: str) -> Tool[Pair]:
        name = OPERATIONS[sign]
        last = " (last digit)" if rules.compact else ""
        description = f"a {sign} b of two whole numbers{last}."
        return Tool(
            name=name,
            description=description,
            parameters=Pair,
            function=lambda pair: str(result(sign, pair.a, pair.b, rules)),
        )

    table = Tool(name=LOOK_UP, description="The price or weight of an item.", parameters=TableEntry, function=look_up)
    return Toolbox([*(operation(sign) for sign in OPERATIONS), table])


def result(sign: str, a: int, b: int, rules: ToolRules) -> int:
    """a sign b; its last digit where the rules are compact."""
    value = {"+": a + b, "-": a - b, "*": a * b}[sign]
    return value % 10 if rules.compact else value


def solution(puzzle: Puzzle, rules: ToolRules) -> tuple[tuple[ToolCall, int], ...]:
    """The calls that are wanted, in order, each with its result."""
    calls: list[tuple[ToolCall, int]] = []
    value = puzzle.first
    if value is None:
        value = puzzle.table[puzzle.item * len(UNITS) + puzzle.unit]
        calls.append((ToolCall(LOOK_UP, {"item": rules.item(puzzle.item), "unit": rules.unit(puzzle.unit)}), value))
    for sign, number in puzzle.steps:
        before, value = value, result(sign, value, number, rules)
        calls.append((ToolCall(OPERATIONS[sign], {"a": before, "b": number}), value))
    return tuple(calls)


def in_words(call: ToolCall) -> str:
    """A call as it is written in words."""
    if call.name == LOOK_UP:
        return f"{call.arguments['unit']} of the {call.arguments['item']}"
    (sign,) = (sign for sign, name in OPERATIONS.items() if name == call.name)
    return f"{call.arguments['a']} {sign} {call.arguments['b']}"


def read_words(text: str) -> ToolCall:
    """The call that is written in words.

    Raises:
        ToolRefused: it is none.
    """
    if found := _CALCULATION.fullmatch(text):
        return ToolCall(OPERATIONS[found[2]], {"a": int(found[1]), "b": int(found[3])})
    if found := _LOOK_UP.fullmatch(text):
        return ToolCall(LOOK_UP, {"item": found[2], "unit": found[1]})
    raise ToolRefused(f"{text[:40]!r} is no call: write one such as '7 * 12' or 'weight of the bolt'")


def is_wanted(call: ToolCall, wanted: ToolCall) -> bool:
    """Whether a call does what is wanted; the numbers of sums and products may be exchanged."""
    if call == wanted:
        return True
    is_free = wanted.name in (OPERATIONS["+"], OPERATIONS["*"]) and call.name == wanted.name
    return is_free and _exchanged(call.arguments) == dict(wanted.arguments)


def _exchanged(arguments: Mapping[str, object]) -> Mapping[str, object]:
    return {"a": arguments.get("b"), "b": arguments.get("a")}
