"""A traced training is bounded, linked to its episodes, and learns what an untraced one does; a play is one trace."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spans import one, spans_in, tree_of

Mas = Callable[..., Any]
SHORT = ("scenario=relay", "train.tasks_per_step=2", "train.eval_tasks=2", "train.steps=2",
         "algorithm.sampler.candidates=2")  # fmt: skip


def learned(run: Path) -> list[dict[str, Any]]:
    """All metrics but times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if name not in ("seconds", "time")} for line in lines]


def test_every_second_step_is_traced_with_one_episode_and_nothing_else_changes(
    mas: Mas, small_overrides: tuple[str, ...], tmp_path: Path
) -> None:
    plain, traced = tmp_path / "plain", tmp_path / "traced"
    words = (*SHORT, *small_overrides)
    assert mas("train", *words, f"run_dir={plain}").code == 0
    assert mas("train", *words, "trace.every=2", "trace.episodes=1", f"run_dir={traced}").code == 0
    assert not (plain / "spans.jsonl").exists()
    assert learned(plain) == learned(traced)
    spans = spans_in(traced)
    steps = [span for span in spans if span.name == "step"]
    assert [span.attributes["mas.step"] for span in steps] == [2]
    for step in steps:
        parts = {span.name: span for span in spans if span.parent == step.id}
        assert list(parts) == ["rollout", "update", "publish"]
        ((trace, episode),) = parts["rollout"].links
        (played,) = (span for span in spans if (span.trace, span.id) == (trace, episode))
        assert played.name == "invoke_workflow relay"
        assert played.links == ((step.trace, parts["rollout"].id),)
    assert len({span.trace for span in spans}) == 2
    adapters = {span.attributes.get("mas.adapter.version") for span in spans if "text_completion" in span.name}
    assert adapters == {1}  # as published after step 1
    again = mas("train", *words, "train.steps=3", "trace.every=1", f"run_dir={traced}")
    assert again.code == 0, again.err
    assert [span.attributes["mas.step"] for span in spans_in(traced) if span.name == "step"] == [2, 3]


def test_a_play_is_one_trace_from_run_to_completion(mas: Mas, small_overrides: tuple[str, ...], tmp_path: Path) -> None:
    ran = mas("run", "scenario=relay", *small_overrides, "--trace", str(tmp_path / "spans"))
    assert ran.code == 0, ran.err
    tree = tree_of(tmp_path / "spans")
    assert tree[:3] == ["run", "  invoke_workflow relay", "    turn 0"]
    assert [name.strip() for name in tree if "invoke_agent" in name] == [
        "invoke_agent planner",
        "invoke_agent executor",
    ]
    assert sum("text_completion relay-" in name for name in tree) == 2
    assert one(spans_in(tmp_path / "spans"), "run").process.startswith("run-")
    assert "gen_ai.input.messages" not in (tmp_path / "spans" / "spans.jsonl").read_text()
    more = mas("run", "scenario=relay", *small_overrides, "--trace", str(tmp_path / "content"), "--trace-content")
    assert more.code == 0, more.err
    assert "gen_ai.input.messages" in (tmp_path / "content" / "spans.jsonl").read_text()


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("run", "scenario=relay", "--trace-content"), "--trace-content says what is written to --trace DIR"),
        (("config", "trace.content=true"), "trace.every=0 traces no step"),
        (("run", "scenario=relay", "trace.every=2"), "'trace.every=2' has no effect on `mas run`"),
    ],
)
def test_what_would_trace_nothing_is_refused(words: tuple[str, ...], problem: str, mas: Mas) -> None:
    ran = mas(*words)
    assert ran.code == 2
    assert problem in ran.err
