"""Sinks: every line arrives once, also over a resume, and a sink that fails costs nothing but its own lines."""

import json
import sys
from collections.abc import Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pages import blocks

from mas.config.access import KINDS, PLAYS
from mas.config.load import load_config
from mas.config.trust import check_stored
from mas.core.errors import ConfigError, MissingPackage, TrustError
from mas.observe.metrics import MetricsLog, read_metrics
from mas.observe.sinks import feed
from mas.observe.sinks.base import SinkState
from mas.observe.sinks.feed import Sinks
from mas.observe.sinks.find import SHIPPED, find_sinks

LINES = [
    (0, {"eval": {"greedy": {"success": 0.25}}}),
    (1, {"reward": 0.5, "roles": {"planner": {"entropy": 1.5, "kl": None}}}),
    (2, {"reward": 0.75, "roles": {"planner": {"entropy": 1.25, "kl": 0.5}}}),
    (2, {"eval": {"greedy": {"success": 0.5}}}),
]
FLAT = [
    (0, {"eval/greedy/success": 0.25}),
    (1, {"reward": 0.5, "roles/planner/entropy": 1.5}),
    (2, {"reward": 0.75, "roles/planner/entropy": 1.25, "roles/planner/kl": 0.5}),
    (2, {"eval/greedy/success": 0.5}),
]


class Recorder:
    """A sink that remembers its calls; an error is raised at step 1, or when it is opened."""

    def __init__(self, error: Exception | None = None, at: str = "log") -> None:
        self.opened: list[SinkState | None] = []
        self.lines: list[tuple[int, dict[str, float]]] = []
        self.ends: list[str | None] = []
        self.config: Mapping[str, Any] = {}
        self._error, self._at = error, at

    def __call__(self) -> "Recorder":
        return self

    def open(self, run: Path, config: Mapping[str, Any], earlier: SinkState | None) -> str:
        if self._error is not None and self._at == "open":
            raise self._error
        self.opened.append(earlier)
        self.config = config
        return "some-id"

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        if self._error is not None and step == 1:
            raise self._error
        self.lines.append((step, dict(metrics)))

    def close(self, error: str | None) -> None:
        self.ends.append(error)


def send(run: Path, lines: list[Any], *recorders: Recorder, is_resumed: bool = False, kept: int = -1) -> list[str]:
    """What training does with its metrics. Returns the warnings."""
    warnings = list[str]()
    sinks = Sinks(run, {f"mine.py:S{number}": one for number, one in enumerate(recorders)}, warnings.append)
    with MetricsLog(run / "metrics.jsonl", listener=sinks.log) as metrics, sinks:
        sinks.open({"train": {"steps": 2}}, is_resumed=is_resumed)
        metrics.truncate_after(kept)
        for step, values in lines:
            metrics.append(step, values)
    return warnings


def test_a_sink_gets_every_line_flat_and_without_none_then_the_last_success(tmp_path: Path) -> None:
    sink = Recorder()
    assert send(tmp_path, LINES, sink) == []
    assert sink.lines == [*FLAT, (2, {"final/greedy/success": 0.5})]
    assert (sink.opened, sink.ends, sink.config) == ([None], [None], {"train": {"steps": 2}})


def test_a_run_that_resumes_from_an_older_checkpoint_sends_no_step_twice(tmp_path: Path) -> None:
    first, second = Recorder(), Recorder()
    interrupted = Sinks(tmp_path, {"a.py:S": first}, print)
    interrupted.open({}, is_resumed=False)
    for step, flat in FLAT[:3]:
        interrupted.log(step, flat)
    interrupted.__exit__(KeyboardInterrupt, KeyboardInterrupt(), None)
    assert (first.lines, first.ends) == (FLAT[:3], ["KeyboardInterrupt"])
    with Sinks(tmp_path, {"a.py:S": second}, print) as sinks:
        sinks.open({}, is_resumed=True)
        for step, flat in [*FLAT, (3, {"reward": 1.0})]:  # all over again: there was no checkpoint
            sinks.log(step, flat)
    assert second.opened == [
        SinkState(id="some-id", lines=3, step=2, names=("reward", "roles/planner/entropy", "roles/planner/kl"))
    ]
    # the evaluation of step 2 is new, its other metrics are not
    assert second.lines == [FLAT[3], (3, {"reward": 1.0}), (3, {"final/greedy/success": 0.5})]


def test_a_sink_that_fails_is_left_out_with_a_warning_and_costs_no_metrics(tmp_path: Path) -> None:
    broken, whole = Recorder(ConnectionError("no route to host")), Recorder()
    failed, at_the_end = send(tmp_path, LINES, broken, whole)
    assert failed == (
        "the sink mine.py:S0 failed at step 1 (ConnectionError: no route to host): it is left out from here on, "
        "training continues"
    )
    assert at_the_end.startswith("the sink mine.py:S0 lacks metrics: it failed at step 1")
    assert broken.lines == FLAT[:1]
    assert whole.lines[:-1] == FLAT
    assert [line["step"] for line in read_metrics(tmp_path / "metrics.jsonl")] == [0, 1, 2, 2]


def test_a_warning_shows_neither_keys_nor_passwords(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "abc123secret")
    error = OSError("POST https://me:word@host/api refused abc123secret\nand more")
    warnings = send(tmp_path, LINES, Recorder(error))
    assert all("(OSError: POST https://***@host/api refused ***)" in text for text in warnings)
    assert len(warnings) == 2


def test_a_sink_that_cannot_be_opened_refuses_a_new_run_and_is_left_out_of_a_resumed_one(tmp_path: Path) -> None:
    closed, whole = Recorder(OSError("no such store"), at="open"), Recorder()
    refused = (
        r"the sink mine.py:S0 cannot be opened \(OSError: no such store\): correct it, or take it out of train.sinks"
    )
    with pytest.raises(ConfigError, match=refused):
        send(tmp_path, LINES, closed)
    warnings = send(tmp_path, LINES, closed, whole, is_resumed=True)
    assert [text.split(" (")[0] for text in warnings] == [
        "the sink mine.py:S0 cannot be opened",
        "the sink mine.py:S0 lacks metrics: it cannot be opened",
    ]
    assert whole.lines[:-1] == FLAT


def test_a_sink_that_hangs_does_not_hold_up_the_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "_CLOSE_S", 0.05)
    monkeypatch.setattr(feed, "_MOST_WAITING", 5)
    forever = Event()

    class Stuck(Recorder):
        def log(self, step: int, metrics: Mapping[str, float]) -> None:
            forever.wait()

    warnings = send(tmp_path, LINES[:2], Stuck())
    assert "has not ended within 0 seconds" in warnings[0]
    behind = send(tmp_path, [(step, {"reward": 1.0}) for step in range(9)], Stuck(), is_resumed=True)
    assert "is 5 lines behind at step" in behind[0]
    assert len(behind) == 2
    forever.set()


@pytest.mark.parametrize("name", SHIPPED)
def test_a_library_that_is_missing_is_refused_with_its_extra(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"mas.observe.sinks.{name}", raising=False)
    with pytest.raises(MissingPackage, match=rf"the sink {name} .* extra '{name}'.*: pip install 'mas\[{name}\]'"):
        find_sinks([name])


def test_a_start_with_a_missing_library_leaves_no_directory(mas: Any, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "trackio", None)
    monkeypatch.delitem(sys.modules, "mas.observe.sinks.trackio", raising=False)
    ran = mas("train", "scenario=relay", "train.sinks=[trackio]", f"run_dir='{tmp_path}/run'")
    assert ran.code != 0
    assert "pip install 'mas[trackio]'" in ran.err
    assert not (tmp_path / "run").exists()


OWN = "class Mine:\n    def open(self, *_): return ''\n    def log(self, *_): ...\n    def close(self, *_): ...\n"


def test_a_sink_of_ones_own_is_a_class_in_a_file_or_a_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_sink.py").write_text(f"{OWN}class Half:\n    def open(self, *_): ...\n")
    monkeypatch.syspath_prepend(tmp_path)
    file = f"{tmp_path}/my_sink.py"
    found = find_sinks([f"{file}:Mine", "my_sink:Mine"])
    assert [made.__name__ for made in found.values()] == ["Mine", "Mine"]  # type: ignore[attr-defined]
    for names, sentence in {
        ("wandb_",): "'wandb_' is no sink. Did you mean 'wandb'",
        (file,): "write path/file.py:NAME or package.module:NAME",
        (f"{file}:Mime",): "has no 'Mime'. Did you mean 'Mine'",
        (f"{file}:Half",): "it lacks log, close",
        (f"{file}:Mine", f"{file}:Mine"): "name each sink once",
    }.items():
        with pytest.raises(ConfigError) as refused:
            find_sinks(names)
        assert sentence in str(refused.value)


def test_sinks_of_a_stored_run_are_asked_for_where_it_is_trained(tmp_path: Path) -> None:
    config = load_config(["scenario=relay", "train.sinks=[wandb,'mine.py:Mine']"])
    with pytest.raises(TrustError, match="send metrics to wandb") as refused:
        check_stored(config, tmp_path, {}, KINDS)
    assert f"import {Path.cwd()}/mine.py:Mine" in str(refused.value)
    check_stored(config, tmp_path, {"train.sinks": ["wandb", "mine.py:Mine"]}, KINDS)
    check_stored(config, tmp_path, {}, PLAYS)


def test_the_sink_of_the_page_on_training_gets_all_lines(tmp_path: Path) -> None:
    (example,) = blocks("docs/training.md", "python")
    (tmp_path / "my_sinks.py").write_text(example.text)
    sinks = Sinks(tmp_path, find_sinks([f"{tmp_path}/my_sinks.py:Lines"]), print)
    with sinks:
        sinks.open({}, is_resumed=False)
        for step, flat in FLAT:
            sinks.log(step, flat)
    lines = [line.split(" ", 1) for line in (tmp_path / "lines.txt").read_text().splitlines()]
    assert [(int(step), json.loads(values)) for step, values in lines[:-1]] == FLAT
