"""What is said while the tiny base is made, and of prompts that it cannot show."""

from pathlib import Path

import pytest
from conftest import BaseFor

from mas.config.load import load_config
from mas.runs.resolve import resolve
from mas.training.base import open_base, progress_in

TEAM = """
name: callers
tools: {code: {sandbox: {}}}
roles:
  solver: {type: executor, view: solo, template: "{goal}>", history: 2, tools: [code.python]}
  clerk: {voice: tools, view: solo}
edges:
  - start -> solver
  - solver -> clerk when call
  - clerk -> solver loop 2
  - solver -> done when answer
joins: {solver: any}
output: solver
"""


def test_the_steps_of_a_tiny_base_are_told_with_the_time_that_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    now, said = iter([100.0, 110.0, 130.0]), list[str]()
    monkeypatch.setattr("mas.training.base.time.monotonic", lambda: next(now))
    tell = progress_in(said.append, "relay")
    tell(50, 550, 1.5)  # 10 s for 50 steps: 500 more take 100 s
    tell(550, 550, 0.25)
    assert said == [
        "tiny base for relay: step 50/550, loss 1.500  left 0:01:40",
        "tiny base for relay: step 550/550, loss 0.250  left 0:00:00",
    ]


def test_agents_without_a_prompt_are_not_named_where_prompts_leave_out_earlier_answers(
    tmp_path: Path, small_overrides: tuple[str, ...], base_for: BaseFor
) -> None:
    base_for("relay")
    (tmp_path / "team.yaml").write_text(TEAM)
    config = load_config(["scenario=relay", f"algorithm.team={tmp_path / 'team.yaml'}", *small_overrides])
    said = list[str]()
    open_base(resolve(config), said.append)
    (note,) = [text for text in said if "earlier answers" in text]
    assert "earlier answers of solver (history: 2)" in note


def test_a_prompt_that_shows_the_last_answer_leaves_out_none(
    small_overrides: tuple[str, ...], base_for: BaseFor
) -> None:
    base_for("questions")
    said = list[str]()
    open_base(resolve(load_config(["scenario=questions", *small_overrides])), said.append)
    assert [text for text in said if "earlier answers" in text] == []
