"""ToolRL's reward against numbers derived by hand from its formula.

One wanted call with two parameters: most = 1 + 1 + 2 = 4, correct = 6 · match / 4 - 3.
"""

from collections.abc import Mapping
from random import Random
from typing import Any

import pytest

from mas.tools import ToolCall, tool_score

ADD = ToolCall("add", {"a": 3, "b": 4})


def call(name: str = "add", **arguments: Any) -> ToolCall:
    return ToolCall(name, arguments)


@pytest.mark.parametrize(
    ("called", "correct"),
    [
        ([call(a=3, b=4)], 3.0),  # 1 + 1 + 2 = 4
        ([call(a=3, b=5)], 1.5),  # 1 + 1 + 1 = 3
        ([call(a=9, b=9)], 0.0),  # 1 + 1 + 0 = 2
        ([call(a=3)], 0.75),  # 1 + 1/2 + 1 = 2.5
        ([call(a=3, b=4, c=5)], 2.5),  # 1 + 2/3 + 2 = 11/3: 5.5 - 3
        ([call()], -1.5),  # 1 + 0 + 0 = 1
        ([call("multiply", a=3, b=4)], -3.0),  # 0: another tool
        ([], -3.0),
        ([call(a=3, b=4), call("look_up", item="x")], 2.25),  # 1/2 + 1 + 2 = 3.5
        ([call(a=3, b=4), call(a=3, b=4)], 2.25),  # the name stands once too often: 1/2 + 1 + 2
    ],
)
def test_correctness_is_that_of_the_formula(called: list[ToolCall], correct: float) -> None:
    score = tool_score(called, [ADD], readable=True)
    assert score.correct == pytest.approx(correct)
    assert score.total == pytest.approx(correct + 1)
    assert tool_score(called, [ADD], readable=False).total == pytest.approx(correct)


def test_a_value_of_another_type_is_another_value() -> None:
    # most = 1 + 1 + 1 = 3; name and parameter are right, the value is not: 6 · 2 / 3 - 3 = 1.
    for value in (True, 1.0, "1"):
        assert tool_score([call(a=value)], [call(a=1)], readable=True).correct == pytest.approx(1)


def test_calls_are_compared_in_the_best_assignment_not_in_the_first() -> None:
    # With the first wanted call, both calls share the parameters and one value: taken in order, the first call goes
    # to the first wanted one and leaves 1 + 0 for the rest: 2 + 1 = 3. The other way round it is 2 + 3 = 5.
    # most = 1 + 2 + 4 = 7, match = 1 + 5 = 6: 6 · 6 / 7 - 3 = 15/7.
    wanted = [call("f", x=1, y=1), call("f", x=1, y=2)]
    called = [call("f", x=1, y=2), call("f", x=3, y=1)]
    score = tool_score(called, wanted, readable=True)
    assert (score.name, score.parameters, score.values, score.most) == (1.0, 2.0, 3.0, 7.0)
    assert score.correct == pytest.approx(15 / 7)


def test_nothing_where_nothing_is_wanted_is_right_and_a_call_there_is_wrong() -> None:
    assert tool_score([], [], readable=True).total == 4.0
    assert tool_score([ADD], [], readable=True).correct == -3.0
    assert tool_score([call("now")], [call("now")], readable=True).correct == 3.0


def test_the_order_of_calls_does_not_matter_and_the_bounds_hold() -> None:
    random = Random(0)

    def calls() -> list[ToolCall]:
        arguments: list[Mapping[str, Any]] = [
            {key: random.randrange(3) for key in "abc"[: random.randrange(4)]} for _ in range(random.randrange(4))
        ]
        return [ToolCall(random.choice("fg"), one) for one in arguments]

    for _ in range(300):
        called, wanted = calls(), calls()
        score = tool_score(called, wanted, readable=True)
        assert -3 <= score.correct <= 3
        assert tool_score(called[::-1], wanted[::-1], readable=True).total == pytest.approx(score.total)
        assert tool_score(wanted, wanted, readable=True).correct == pytest.approx(3)
