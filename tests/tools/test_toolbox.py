"""The toolbox: a good call is done, every other is refused with one sentence that says what is wrong."""

from typing import Annotated, Any, Literal

import pytest
from pydantic import Field

from mas.core.errors import ConfigError, ToolRefused
from mas.tools import CALCULATOR, NoParameters, Parameters, Shorthand, Tool, Toolbox, ToolCall, read_call
from mas.tools.toolbox import MAX_CALL


class Order(Parameters):
    item: Literal["bolt", "nut"]
    count: Annotated[int, Field(ge=1)] = 1


def _order(order: Order) -> str:
    if order.count > 9:
        raise ValueError("only 9 are left")
    return f"{order.count} {order.item}"


def _broken(nothing: NoParameters) -> str:
    raise TypeError("a mistake in the tool itself")


ORDER = Tool(name="order", description="Orders an item.", parameters=Order, function=_order)
BROKEN = Tool(name="broken", description="Has a mistake.", parameters=NoParameters, function=_broken)
BOX = Toolbox([CALCULATOR, ORDER, BROKEN])


def call(arguments: str, name: str = "order") -> str:
    return BOX.call(f'{{"name": "{name}", "arguments": {arguments}}}')


def test_a_call_is_done_with_typed_arguments_and_defaults() -> None:
    assert call('{"item": "nut", "count": 3}') == "3 nut"
    assert call('{"item": "bolt"}') == "1 bolt"
    assert call('{"expression": "(3 + 4) / 2"}', "calculator") == "7/2"


@pytest.mark.parametrize(
    "text",
    ["", "order", "[]", '{"name": "order"}', '{"name": 3, "arguments": {}}', '{"name": "order", "arguments": []}',
     '{"name": "order", "arguments": {"item": "nut"}} and more', '{"name": "order", "arguments": {}, "why": 1}',
     "[" * 9000, '"\ud800"', "\x00", '{"name": "order", "arguments": {"item": "nut",}}'],
)  # fmt: skip
def test_what_is_no_call_is_refused_with_the_form_of_one(text: str) -> None:
    with pytest.raises(ToolRefused, match=r'this is no tool call.*"name": TOOL'):
        BOX.call(text)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("{}", r"tool 'order': parameter 'item' is missing\. Parameters: 'item', 'count'"),
        ('{"item": "gear"}', "parameter 'item' is 'gear': Input should be 'bolt' or 'nut'"),
        ('{"item": "nut", "count": "3"}', "parameter 'count' is '3': Input should be a valid integer"),
        ('{"item": "nut", "count": true}', "parameter 'count' is True: Input should be a valid integer"),
        ('{"item": "nut", "count": 0}', "parameter 'count' is 0: Input should be greater than or equal to 1"),
        ('{"item": "nut", "colour": "red"}', "there is no parameter 'colour'"),
        ('{"colour": "red"}', "parameter 'item' is missing; there is no parameter 'colour'"),
        ('{"item": "nut", "count": 10}', r"tool 'order' failed: only 9 are left"),
    ],
)
def test_a_wrong_call_is_refused_with_every_reason(arguments: str, message: str) -> None:
    with pytest.raises(ToolRefused, match=message):
        call(arguments)


def test_an_unknown_tool_is_refused_with_the_nearest_name() -> None:
    with pytest.raises(ToolRefused, match=r"no tool 'ordre'\. Did you mean 'order'"):
        call("{}", "ordre")


def test_a_refusal_shows_the_beginning_of_what_is_long() -> None:
    many = ", ".join(f'"{number}": 1' for number in range(800))
    for text in (
        "x" * MAX_CALL,
        f'{{"name": "{"x" * 9000}", "arguments": {{}}}}',
        f'{{"name": "order", "arguments": {{}}, "{"x" * 9000}": 1}}',
        f'{{"name": "order", "arguments": {{{many}}}}}',
        f'{{"name": "order", "arguments": {{"{"x" * 9000}": 1}}}}',
    ):
        with pytest.raises(ToolRefused) as refused:
            BOX.call(text)
        assert len(str(refused.value)) < 500
    with pytest.raises(ToolRefused, match=f"{MAX_CALL + 1} characters"):
        BOX.call(" " * (MAX_CALL + 1))


def test_a_mistake_in_a_tool_is_not_taken_for_the_callers() -> None:
    with pytest.raises(TypeError, match="a mistake in the tool itself"):
        call("{}", "broken")


def test_a_calls_text_reads_as_the_call() -> None:
    made = ToolCall("order", {"item": "nut", "count": 3})
    assert read_call(made.text()) == made


def test_schemas_are_those_of_function_calling() -> None:
    schema: dict[str, Any] = BOX.schemas()[1]
    assert schema["type"] == "function"
    assert schema["function"]["name"] == "order"
    parameters = schema["function"]["parameters"]
    assert parameters["required"] == ["item"]
    assert parameters["properties"]["item"]["enum"] == ["bolt", "nut"]
    assert parameters["additionalProperties"] is False
    assert BOX.names == ("calculator", "order", "broken")


def test_impossible_tools_are_refused_where_they_are_made() -> None:
    with pytest.raises(ConfigError, match="two tools are named 'order'"):
        Toolbox([ORDER, ORDER])
    with pytest.raises(ConfigError, match="cannot be named 'an order'"):
        Tool(name="an order", description="Orders.", parameters=Order, function=_order)
    with pytest.raises(ConfigError, match="no description"):
        Tool(name="order", description=" ", parameters=Order, function=_order)


SHORT = Shorthand({"o": ("order", ("item", "count")), "b": ("broken", ())})


def test_shorthand_reads_and_writes_calls_of_a_few_characters() -> None:
    assert SHORT.expand("on3") == ToolCall("order", {"item": "n", "count": 3})
    assert SHORT.expand("b") == ToolCall("broken", {})
    for text in ("on3", "b"):
        assert SHORT.shorten(SHORT.expand(text)) == text


@pytest.mark.parametrize("text", ["", "x", "o", "on", "on33", "xn3"])
def test_shorthand_that_stands_for_nothing_is_refused(text: str) -> None:
    with pytest.raises(ToolRefused, match=r"stands for no tool|characters, not"):
        SHORT.expand(text)


def test_a_call_that_no_shorthand_stands_for_is_refused() -> None:
    for arguments in ({"item": "nut", "count": 3}, {"item": "n"}, {"item": "n", "count": 3, "colour": "r"}):
        with pytest.raises(ToolRefused, match="no character stands"):
            SHORT.shorten(ToolCall("order", arguments))
