"""`mas demo`: trains, shows the same tasks before and after, writes the report; again, it does what is left."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from mas.commands.demo import DEMO_OVERRIDES, show_demo
from mas.config.load import load_config
from mas.core.records import Line, Scene
from mas.observe.report_records import Conversation, ConversationPair


def conversation(text: str, *, is_success: bool) -> Conversation:
    return Conversation(
        label="",
        lines=(Line(turn=0, agent="seller", prompt="The price is", text=text),),
        scenes=(Scene(turn=-1, event="", world="It barks. On offer: dog 4."),),
        outcome="",
        is_success=is_success,
    )


def test_what_is_trained_is_a_team_of_the_real_model() -> None:
    config = load_config([*DEMO_OVERRIDES, "run_dir=runs/demo"])
    assert (config.model.path, config.scenario.name, config.algorithm.team) == ("smollm2", "shop", "team")


@pytest.mark.nightly(of=16)
def test_the_demo_trains_and_shows_what_was_said_before_and_after(
    mas: Callable[..., Any], small_overrides: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    short = ("scenario=relay", *small_overrides, "train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=4")
    monkeypatch.setattr("mas.commands.demo.DEMO_OVERRIDES", short)
    ran = mas("demo", "--out", str(tmp_path / "demo"))
    assert ran.code == 0, ran.err
    assert ran.out.count("before planner says '") == 3
    assert ran.out.count("after  planner says '") == 3
    assert "Success on 4 held-out tasks went from" in ran.out
    assert (tmp_path / "demo" / "report.html").is_file()
    trained = (tmp_path / "demo" / "metrics.jsonl").read_bytes()
    again = mas("demo", "--out", str(tmp_path / "demo"))
    assert again.code == 0, again.err
    assert (tmp_path / "demo" / "metrics.jsonl").read_bytes() == trained
    assert again.out.count("after  planner says '") == 3


def test_what_a_model_said_is_printed_as_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    comparison = ConversationPair(
        title="task 1",
        before=conversation(" [red]9\x1b[0m", is_success=False),
        after=conversation(" 4", is_success=True),
    )
    show_demo(Console(width=100, no_color=True), [comparison])
    printed = capsys.readouterr().out
    assert "It barks. On offer: dog 4." in printed
    assert "before seller says '[red]9" in printed
    assert "\x1b" not in printed
    assert "after  seller says '4': right" in printed
