"""What the page on tools says is what happens."""

from pathlib import Path

import pytest
from pages import blocks

from mas.tools import ToolCall, tool_score


def test_the_examples_print_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    calls, shelf, basket = blocks("docs/tools.md", "python")
    for example, printed in zip((calls, basket), blocks("docs/tools.md", ""), strict=True):
        exec(compile(example.text, "docs/tools.md", "exec"), {"__name__": "example"})  # noqa: S102 - our own page
        assert capsys.readouterr().out == printed.text
    assert shelf.file == "examples/shelf.py"
    assert shelf.text == (Path(__file__).parents[2] / shelf.file).read_text()


@pytest.mark.parametrize(
    ("name", "arguments", "correct"),
    [("add", {"a": 3, "b": 5}, 1.5), ("add", {"a": 3}, 0.75), ("multiply", {"a": 3, "b": 4}, -3.0)],
)
def test_the_worked_scores_are_right(name: str, arguments: dict[str, int], correct: float) -> None:
    wanted = [ToolCall("add", {"a": 3, "b": 4})]
    assert tool_score([ToolCall(name, arguments)], wanted, readable=True).correct == pytest.approx(correct)
