"""Generated problems with one exact answer, and the calls that lead to it.

Small: digits, every result is its last digit (arithmetic modulo 10). Large: nested arithmetic and linear equations over
whole numbers, with rational answers.
"""

from fractions import Fraction
from random import Random

import msgspec

from mas.core.errors import ToolRefused
from mas.tools import CALCULATOR, Toolbox, ToolCall, read_call

BOX = Toolbox([CALCULATOR])


class MathRules(msgspec.Struct, frozen=True, kw_only=True):
    """The dial. `compact`: one-digit numbers modulo 10, a call is three characters and one operation."""

    compact: bool = True
    operations: int = 2
    numbers: int = 9

    @property
    def max_turns(self) -> int:
        """Every operation, the answer, and one turn to spare."""
        return self.operations + 2


class Milestone(msgspec.Struct, frozen=True):
    """A result on the way. `calls`: the expressions that count as reaching it; empty: whatever gives the value."""

    value: str
    calls: tuple[str, ...] = ()


class MathProblem(msgspec.Struct, frozen=True):
    """`milestones`: in order; the value of the last is the answer."""

    text: str
    milestones: tuple[Milestone, ...]

    @property
    def answer(self) -> str:
        """As the calculator writes it."""
        return self.milestones[-1].value


def make(random: Random, rules: MathRules) -> MathProblem:
    """Arithmetic or an equation, equally often."""
    kind = random.choice((_arithmetic, _equation) if rules.compact else (_nested, _linear))
    return kind(random, rules)


def _arithmetic(random: Random, rules: MathRules) -> MathProblem:
    """(a+b)*c and the like: two operations on digits, each of which is one call."""
    text, milestones, value = str(random.randint(1, rules.numbers)), [], ""
    for place in range(rules.operations):
        sign, number = random.choice("+-*"), str(random.randint(1, rules.numbers))
        left = value or text
        milestones.append(_digit_milestone(left, sign, number))
        value = milestones[-1].value
        text = f"{text if place == 0 else f'({text})'}{sign}{number}"
    return MathProblem(text, tuple(milestones))


def _equation(random: Random, rules: MathRules) -> MathProblem:
    """x+a=b or x-a=b modulo 10."""
    sign, a, b = random.choice("+-"), str(random.randint(1, rules.numbers)), str(random.randint(0, 9))
    back = "-" if sign == "+" else "+"
    return MathProblem(f"x{sign}{a}={b}", (_digit_milestone(b, back, a),))


def _digit_milestone(left: str, sign: str, right: str) -> Milestone:
    forms = (f"{left}{sign}{right}", f"{right}{sign}{left}")
    return Milestone(calculated(forms[0], compact=True), forms if sign != "-" else forms[:1])


def _nested(random: Random, rules: MathRules) -> MathProblem:
    """A random tree of operations; its inner results are milestones."""
    found: list[Milestone] = []

    def tree(operations: int) -> str:
        if operations == 0:
            return str(random.randint(2, rules.numbers))
        left = random.randrange(operations)
        text = f"({tree(left)} {random.choice('+-*')} {tree(operations - 1 - left)})"
        found.append(Milestone(calculated(text, compact=False)))
        return text

    text = tree(random.randint(2, max(2, rules.operations)))
    return MathProblem(f"Calculate {text[1:-1]}.", tuple(found))


def _linear(random: Random, rules: MathRules) -> MathProblem:
    """a·x + b = c·x + d with a different from c: x = (d - b) / (a - c)."""
    a, b, d = (random.randint(2, rules.numbers) for _ in range(3))
    c = random.randint(1, a - 1)
    steps = (Fraction(d - b), Fraction(a - c), Fraction(d - b, a - c))
    return MathProblem(f"Solve {a}*x + {b} = {c}*x + {d} for x.", tuple(Milestone(str(value)) for value in steps))


def calculated(expression: str, *, compact: bool) -> str:
    """What the calculator answers; in compact form its last digit.

    Raises:
        ToolRefused: no expression that it can calculate.
    """
    value = BOX.perform(ToolCall(CALCULATOR.name, {"expression": expression}))
    return str(int(value) % 10) if compact else value


def called(action: str, *, compact: bool) -> str:
    """The expression of a call: `3+4`, or JSON for the calculator.

    Raises:
        ToolRefused: the action is no call of the calculator.
    """
    if not compact:
        call = read_call(action)
        BOX.check(call)
        return str(call.arguments["expression"])
    if len(action) != 3 or action[1] not in "+-*" or not {action[0], action[2]} <= set("0123456789"):
        raise ToolRefused(f"{action[:20]!r} is no call: write a digit, one of + - *, and a digit")
    return action
