"""Tasks of `tool_use`: a first number, from the question or from a hidden table, and operations on it one by one."""

import re
from functools import cache
from random import Random
from typing import Annotated, Any, Literal

import msgspec
from pydantic import Field

from mas.core.errors import ToolRefused
from mas.core.naming import did_you_mean
from mas.core.tool_call import ToolCall
from mas.tools import Parameters, Shorthand, StateTool, StateToolbox

OPERATIONS = {"+": "add", "-": "subtract", "*": "multiply"}
ITEMS = ("axle", "bolt", "clamp", "disc", "engine", "filter", "gear", "hinge")
UNITS = ("price", "weight")
Kind = Literal["calculate", "look_up", "both", "store"]
KINDS: tuple[Kind, ...] = ("calculate", "look_up", "both")
"""Those that change nothing: what a task is where nothing is said."""
LOOK_UP, STORE = "look_up", "store"
Table = tuple[int, ...]
"""Rows of items, a column per unit."""
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
        """A look-up, every operation, what is stored, the answer, and one turn to spare."""
        return self.operations + 3 + self.stores

    @property
    def stores(self) -> bool:
        """Whether there is a tool that changes the table."""
        return "store" in self.kinds

    def item(self, number: int) -> str:
        """What an item is called."""
        return ITEMS[number][0] if self.compact else ITEMS[number]

    def unit(self, number: int) -> str:
        """What a column of the table is called."""
        return UNITS[number][0] if self.compact else UNITS[number]


class Puzzle(msgspec.Struct, frozen=True, omit_defaults=True):
    """One task.

    Attributes:
        first: the number that it begins with; None: that of `item` and `unit` in the table.
        table: as the task begins; only the look-up tool shows it.
        steps: (sign, number), done from left to right.
        kept_in: item and unit of the entry that is to be the result; None: nothing is to be stored.
    """

    first: int | None
    item: int
    unit: int
    table: Table
    steps: tuple[tuple[str, int], ...]
    kept_in: tuple[int, int] | None = None


def make(random: Random, rules: ToolRules) -> Puzzle:
    """A task of one of these kinds: operations on a number, a look-up alone, operations on what is looked up, or these
    and their result is to be stored in the table."""
    kind = random.choice(rules.kinds)
    table = tuple(random.randint(0 if rules.compact else 1, rules.numbers) for _ in range(rules.items * len(UNITS)))
    count = 0 if kind == "look_up" else random.randint(1, rules.operations)
    steps = tuple((random.choice(tuple(OPERATIONS)), random.randint(2, rules.numbers)) for _ in range(count))
    first = random.randint(2, rules.numbers) if kind == "calculate" else None
    item, unit = random.randrange(rules.items), random.randrange(len(UNITS))
    kept_in = (random.randrange(rules.items), random.randrange(len(UNITS))) if kind == "store" else None
    return Puzzle(first, item, unit, table, steps, kept_in)


def question(puzzle: Puzzle, rules: ToolRules) -> str:
    """The task as everybody reads it."""
    item, unit = rules.item(puzzle.item), rules.unit(puzzle.unit)
    if rules.compact:
        return (f"{item}{unit}" if puzzle.first is None else f".{puzzle.first}") + "".join(
            f"{sign}{number}" for sign, number in puzzle.steps
        )
    begin = f"Take the {unit} of the {item}." if puzzle.first is None else f"Take the number {puzzle.first}."
    steps = [_WORDS[sign].format(number) for sign, number in puzzle.steps]
    if puzzle.kept_in is not None:
        kept_item, kept_unit = puzzle.kept_in
        steps.append(f"Store the result as the {rules.unit(kept_unit)} of the {rules.item(kept_item)}.")
    return " ".join([begin, *steps, "What is the result?"])


class Pair(Parameters):
    """Two whole numbers."""

    a: Annotated[int, Field(ge=-(10**12), le=10**12)]
    b: Annotated[int, Field(ge=-(10**12), le=10**12)]


class TableEntry(Parameters):
    """A place in the table."""

    item: str
    unit: str


class NewEntry(TableEntry):
    """A place in the table and what is to stand there."""

    value: Annotated[int, Field(ge=-(10**12), le=10**12)]


def place_of(entry: TableEntry, rules: ToolRules) -> int:
    """Where an entry stands in the table.

    Raises:
        ValueError: there is no such item or unit.
    """
    items = [rules.item(number) for number in range(rules.items)]
    units = [rules.unit(number) for number in range(len(UNITS))]
    for name, known in ((entry.item, items), (entry.unit, units)):
        if name not in known:
            raise ValueError(f"the table has no {name[:40]!r}. {did_you_mean(name[:40], known)}")
    return items.index(entry.item) * len(UNITS) + units.index(entry.unit)


def changed(table: Table, place: int, value: int) -> Table:
    """The table with another value in one place."""
    return (*table[:place], value, *table[place + 1 :])


@cache
def toolbox(rules: ToolRules) -> StateToolbox[Table]:
    """Three operations, the table, and with `rules.stores` a tool that changes it."""

    def look_up(table: Table, entry: TableEntry) -> tuple[Table, str]:
        return table, str(table[place_of(entry, rules)])

    def store(table: Table, entry: NewEntry) -> tuple[Table, str]:
        return changed(table, place_of(entry, rules), entry.value), str(entry.value)

    def operation(sign: str) -> StateTool[Table, Pair]:
        last = " (last digit)" if rules.compact else ""
        return StateTool(
            name=OPERATIONS[sign],
            description=f"a {sign} b of two whole numbers{last}.",
            parameters=Pair,
            function=lambda table, pair: (table, str(result(sign, pair.a, pair.b, rules))),
        )

    tools: list[StateTool[Table, Any]] = [
        *map(operation, OPERATIONS),
        StateTool(name=LOOK_UP, description="The price or weight of an item.", parameters=TableEntry, function=look_up),
    ]
    if rules.stores:
        about = "Makes a number the price or weight of an item; answers with it."
        tools.append(StateTool(name=STORE, description=about, parameters=NewEntry, function=store))
    return StateToolbox(tools)


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
    if puzzle.kept_in is not None:
        item, unit = puzzle.kept_in
        calls.append((ToolCall(STORE, {"item": rules.item(item), "unit": rules.unit(unit), "value": value}), value))
    return tuple(calls)


def wanted_table(puzzle: Puzzle, rules: ToolRules) -> Table:
    """The table when the task is done."""
    if puzzle.kept_in is None:
        return puzzle.table
    item, unit = puzzle.kept_in
    return changed(puzzle.table, item * len(UNITS) + unit, solution(puzzle, rules)[-1][1])


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
    return is_free and {"a": call.arguments.get("b"), "b": call.arguments.get("a")} == dict(wanted.arguments)
