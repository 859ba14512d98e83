"""The calculator is exact, agrees with Python's fractions, and cannot be made to work for long."""

import time
from fractions import Fraction
from random import Random

import pytest

from mas.tools.calculator import MAX_BITS, MAX_DEPTH, MAX_LENGTH, calculate


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("3+4*2", "11"),
        ("(3 + 4) * 2", "14"),
        ("7/3", "7/3"),
        ("0.1 + 0.2", "3/10"),
        (".5*4.", "2"),
        ("-2^2", "-4"),
        ("2^-1", "1/2"),
        ("2**3^2", "512"),
        ("(-2)^3", "-8"),
        ("--3", "3"),
        ("2-3-4", "-5"),
        ("8/4/2", "1"),
        ("0^0", "1"),
        ("(-1)^99999999999", "-1"),
        ("1^-99999999999", "1"),
        ("(-1)^99999999998", "1"),
        ("0^99999999998", "0"),
        ("0^3", "0"),
    ],
)
def test_values_are_exact(expression: str, value: str) -> None:
    assert str(calculate(expression)) == value


def _expression(random: Random, depth: int) -> tuple[str, str]:
    """The same expression for the calculator and, over fractions, for Python."""
    if depth == 0 or random.random() < 0.2:
        number = random.randrange(100)
        return str(number), f"Fraction({number})"
    left, right = _expression(random, depth - 1), _expression(random, depth - 1)
    sign = random.choice("+-*/")
    return f"({left[0]}{sign}{right[0]})", f"({left[1]}{sign}{right[1]})"


def test_it_agrees_with_python_on_random_expressions() -> None:
    random, divided = Random(0), 0
    for _ in range(500):
        ours, theirs = _expression(random, 3)
        try:
            wanted = eval(theirs, {"Fraction": Fraction})  # noqa: S307 - the text that is made above
        except ZeroDivisionError:
            divided += 1
            with pytest.raises(ZeroDivisionError):
                calculate(ours)
            continue
        assert calculate(ours) == wanted
    assert 0 < divided < 100


@pytest.mark.parametrize(
    "expression",
    ["9**9**9", "9^9^9", "2^2048", "10^700", "2^-5000", "2^2^2^2^2^2", "(1/3)^(1/2)", "9" * MAX_LENGTH + "9",
     "(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1), "-" * 100 + "1", "*".join(["9" * 150] * 2) + "^13",
     "((9^600)^1)*(9^600)"],
)  # fmt: skip
def test_what_would_grow_is_refused_at_once(expression: str) -> None:
    begun = time.perf_counter()
    with pytest.raises(ValueError, match=r"too large|whole number|characters|stand in each other"):
        calculate(expression)
    assert time.perf_counter() - begun < 0.1


@pytest.mark.parametrize(
    "expression",
    ["", " ", "3+", "*3", "(3", "3)", "3 4", "1.2.3", "x", "3,4", "__import__('os')", "٣", "1e5", "3\x00", "()", "²"],
)
def test_what_is_no_arithmetic_is_refused(expression: str) -> None:
    with pytest.raises(ValueError):
        calculate(expression)


@pytest.mark.parametrize("expression", ["1/0", "1/(2-2)", "0^-1"])
def test_a_division_by_zero_is_named(expression: str) -> None:
    with pytest.raises(ZeroDivisionError, match="division by zero"):
        calculate(expression)


def test_the_largest_number_is_within_its_bound() -> None:
    assert calculate("2^2047").numerator.bit_length() == MAX_BITS


def test_no_junk_makes_it_fail_in_another_way() -> None:
    random = Random(1)
    for _ in range(5000):
        text = "".join(random.choices("0123456789.+-*/^() x\n", k=random.randrange(20)))
        try:
            calculate(text)
        except (ValueError, ZeroDivisionError):
            continue
