"""The page on advantages: its example runs, and it names every part and key there is."""

import re
from typing import get_args

import pytest
from pages import ROOT, blocks, read

from mas.algorithms.parts.advantages.pipeline import AdvantageOptions
from mas.algorithms.parts.advantages.steps import StepOptions

PAGE = "docs/advantages.md"


def test_the_example_prints_what_the_page_says(capsys: pytest.CaptureFixture[str]) -> None:
    (example,), (printed,) = blocks(PAGE, "python"), blocks(PAGE, "")
    exec(compile(example.text, PAGE, "exec"), {"__name__": "example"})  # noqa: S102 - our own page
    assert capsys.readouterr().out == printed.text


def test_every_file_of_parts_is_on_the_page() -> None:
    files = {path.name for path in (ROOT / "mas" / "training" / "advantages").glob("*.py")}
    assert files - {"__init__.py"} <= set(re.findall(r"`(\w+\.py)`", read(PAGE)))


def test_every_key_is_on_the_page() -> None:
    table = read(PAGE).partition("| key |")[2]
    named = {name for line in table.splitlines()[1:] for name in re.findall(r"`(\w+)`", line.split("|")[1])}
    options = (AdvantageOptions, StepOptions)
    assert named == {name for model in options for name in get_args(model.model_fields["key"].annotation)}
