"""What the page on tools says is what happens."""

import pytest
from pages import blocks

from mas.tools import ToolCall, tool_score


def test_the_example_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks("docs/tools.md", "python")
    (printed,) = blocks("docs/tools.md", "")
    exec(compile(example.text, "docs/tools.md", "exec"), {"__name__": "example"})  # noqa: S102 - our own page
    assert capsys.readouterr().out == printed.text


@pytest.mark.parametrize(
    ("name", "arguments", "correct"),
    [("add", {"a": 3, "b": 5}, 1.5), ("add", {"a": 3}, 0.75), ("multiply", {"a": 3, "b": 4}, -3.0)],
)
def test_the_worked_scores_are_right(name: str, arguments: dict[str, int], correct: float) -> None:
    wanted = [ToolCall("add", {"a": 3, "b": 4})]
    assert tool_score([ToolCall(name, arguments)], wanted, readable=True).correct == pytest.approx(correct)
