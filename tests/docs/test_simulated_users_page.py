"""The example of the page on simulated people."""

import pytest
from pages import blocks


def test_the_people_say_what_the_page_prints(capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = blocks("docs/simulated_users.md", "python")
    (printed,) = blocks("docs/simulated_users.md", "")
    exec(compile(example.text, "people.py", "exec"), {"__name__": "example"})  # noqa: S102 - our own page
    assert capsys.readouterr().out == printed.text
