"""Exact arithmetic over rational numbers: a parser of its own, bounded in length, depth and size.

Leaves out on purpose: roots, functions and variables; a power needs a whole exponent.
"""

import re
from dataclasses import dataclass
from fractions import Fraction
from typing import Annotated

from pydantic import Field

from mas.tools.toolbox import Parameters, Tool

MAX_LENGTH = 200
"""Characters of an expression."""
MAX_DEPTH = 32
"""Brackets and signs that stand in each other."""
MAX_BITS = 2048
"""Of a numerator or denominator: 616 decimal digits."""

_TOKEN = re.compile(r"\s*(?:([0-9]+(?:\.[0-9]*)?|\.[0-9]+)|(\*\*|[-+*/^()]))")


def calculate(expression: str) -> Fraction:
    """The exact value of an expression with `+ - * / ^ ( )`; `**` is `^`, decimals are exact (0.1 is 1/10).

    Powers bind tightest and to the right, signs next: -2^2 is -4 and 2^-1 is 1/2.

    Raises:
        ValueError: no expression, too long or too deep, or a number that would grow too large.
        ZeroDivisionError: a division by zero.
    """
    if len(expression) > MAX_LENGTH:
        raise ValueError(f"the expression has {len(expression)} characters, at most {MAX_LENGTH} are read")
    parser = _Parser(_tokens(expression))
    value = parser.sum(0)
    if parser.at < len(parser.tokens):
        raise ValueError(f"{parser.tokens[parser.at]!r} was not expected in {expression!r}")
    return value


def _tokens(expression: str) -> list[str]:
    tokens, at, text = [], 0, expression.rstrip()
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise ValueError(f"{text[at]!r} is no part of arithmetic; use numbers and + - * / ^ ( )")
        tokens.append(match.group(1) or match.group(2))
        at = match.end()
    return tokens


@dataclass(slots=True)
class _Parser:
    """Recursive descent over the tokens; `at` is the next one."""

    tokens: list[str]
    at: int = 0

    def sum(self, depth: int) -> Fraction:
        """Terms joined by + and -."""
        value = self._product(depth)
        while (sign := self._take("+", "-")) is not None:
            other = self._product(depth)
            value = _bounded(value + other if sign == "+" else value - other)
        return value

    def _product(self, depth: int) -> Fraction:
        value = self._signed(depth)
        while (sign := self._take("*", "/")) is not None:
            other = self._signed(depth)
            if sign == "/" and not other:
                raise ZeroDivisionError("division by zero")
            value = _bounded(value * other if sign == "*" else value / other)
        return value

    def _signed(self, depth: int) -> Fraction:
        if depth > MAX_DEPTH:
            raise ValueError(f"more than {MAX_DEPTH} brackets, signs or powers stand in each other")
        sign = self._take("+", "-")
        if sign is not None:
            value = self._signed(depth + 1)
            return -value if sign == "-" else value
        base = self._atom(depth)
        if self._take("^", "**") is None:
            return base
        return _power(base, self._signed(depth + 1))

    def _atom(self, depth: int) -> Fraction:
        if self._take("(") is not None:
            value = self.sum(depth + 1)
            if self._take(")") is None:
                raise ValueError("a bracket is not closed")
            return value
        token = self.tokens[self.at] if self.at < len(self.tokens) else ""
        if not token or not (token[0].isdigit() or token[0] == "."):
            raise ValueError(f"a number was expected, not {token!r}" if token else "a number is missing at the end")
        self.at += 1
        return _bounded(Fraction(token))

    def _take(self, *wanted: str) -> str | None:
        if self.at < len(self.tokens) and self.tokens[self.at] in wanted:
            self.at += 1
            return self.tokens[self.at - 1]
        return None


def _power(base: Fraction, exponent: Fraction) -> Fraction:
    """base ^ exponent, refused before it is computed where it would be too large."""
    if exponent.denominator != 1:
        raise ValueError(f"the exponent {exponent} is no whole number")
    if not base and exponent < 0:
        raise ZeroDivisionError("division by zero: a negative power of 0")
    if not base:
        return Fraction(not exponent)
    if abs(base) == 1:
        return base ** (int(exponent) % 2)
    if abs(exponent) * (_bits(base) - 1) > MAX_BITS:
        raise ValueError(f"the power is too large: numbers have at most {MAX_BITS} bits")
    return _bounded(base ** int(exponent))


def _bits(value: Fraction) -> int:
    return max(value.numerator.bit_length(), value.denominator.bit_length())


def _bounded(value: Fraction) -> Fraction:
    if _bits(value) > MAX_BITS:
        raise ValueError(f"a number is too large: at most {MAX_BITS} bits")
    return value


class Expression(Parameters):
    """What to calculate."""

    expression: Annotated[str, Field(description="arithmetic with + - * / ^ and brackets, as (3 + 4) * 2")]


CALCULATOR = Tool(
    name="calculator",
    description="Calculates exactly over whole numbers and fractions, and answers with a number such as 7 or 7/3.",
    parameters=Expression,
    function=lambda given: str(calculate(given.expression)),
)
"""The calculator; its answers are exact."""
