"""A key of the configuration that is written as an option is refused with the way it is written."""

from collections.abc import Callable
from typing import Any

import pytest

Mas = Callable[..., Any]


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("train", "--steps", "3"), "--steps is no option of this command, but a key: write train.steps=VALUE or"),
        (("train", "--learner.lr=0.1"), "write learner.lr=0.1, without dashes"),
        (("config", "--scenario", "relay"), "write scenario=VALUE, without dashes"),
        (("eval", "runs/none", "--run-dir=x"), "write run_dir=x, without dashes"),
        (("train", "scenario=plan_path", "scenario.options.size=wide"), "scenario.options.size='wide' is not possible"),
    ],
)
def test_what_was_meant_is_said(words: tuple[str, ...], text: str, mas: Mas) -> None:
    ran = mas(*words)
    assert (ran.code, ran.err.count("\n")) == (2, 1)
    assert text in ran.err


def test_options_of_the_command_and_typing_errors_in_them_are_left_to_it(mas: Mas) -> None:
    assert "No such option: --truts" in mas("train", "--truts").err
    assert "holds no run" in mas("eval", "runs/none", "--tasks", "3").err
