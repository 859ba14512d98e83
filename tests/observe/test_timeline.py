"""Traces as rows, in the terminal and on a page, also as a real browser shows it (where one is installed)."""

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from spans import one, spans_in

from mas.core.errors import Expired
from mas.observe.timeline import render_page, traces_of
from mas.observe.tracing import open_tracing

Mas = Callable[..., Any]
ATTACK = "<script>document.title='owned'</script>[bold]"
needs_browser = pytest.mark.skipif(shutil.which("chromium") is None, reason="no chromium on this machine")


def write_two_processes(folder: Path) -> None:
    """A run that asks another process, and one that failed."""
    with open_tracing(folder / "here", process="here", most=99) as tracer:
        with tracer.span("run"), tracer.span("send there", kind="producer") as sent:
            sent.event("join.waiting", {"mas.join": ATTACK})
            with open_tracing(folder / "there", process="there", most=99) as other:
                other.begin("process it", {"gen_ai.usage.input_tokens": 3}, within=sent.traceparent).end()
        with pytest.raises(Expired), tracer.span(f"late {ATTACK}", {"said": ATTACK}):
            raise Expired("x")


def test_files_of_several_processes_make_one_trace(tmp_path: Path) -> None:
    write_two_processes(tmp_path)
    first, last = traces_of(spans_in(tmp_path / "here", tmp_path / "there"))
    assert [(row.depth, row.name) for row in first.rows] == [(0, "run"), (1, "send there"), (2, "process it")]
    assert [process.partition("-")[0] for process in first.processes] == ["here", "there"]
    assert first.rows[2].note == "3+? tokens"
    assert (first.errors, last.errors) == (0, 1)
    run, within = first.rows[0], first.rows[2]
    assert run.begin_s == 0 < within.begin_s
    assert within.begin_s + within.seconds <= run.seconds == first.seconds


def test_a_span_that_is_missing_is_shown_by_those_in_it(tmp_path: Path) -> None:
    write_two_processes(tmp_path)
    (alone,) = traces_of(spans_in(tmp_path / "there"))
    assert [(row.depth, row.name, row.process[:5]) for row in alone.rows] == [
        (0, "(missing)", ""),
        (1, "process it", "there"),
    ]


def test_the_command_lists_traces_and_draws_the_last(tmp_path: Path, mas: Mas) -> None:
    write_two_processes(tmp_path)
    places = (str(tmp_path / "here"), str(tmp_path / "there" / "spans.jsonl"))
    shown = mas("timeline", *places)
    assert shown.code == 0, shown.err
    assert "2 traces" in shown.out
    assert f"late {ATTACK}  Expired" in shown.out
    assert "█" in shown.out
    run = one(spans_in(tmp_path / "here"), "run")
    first = mas("timeline", *places, "--trace", run.trace[:10]).out
    assert "process it" in first
    assert f"join.waiting join {ATTACK}" in first
    assert "1 more spans: --rows 0 shows all" in mas("timeline", *places, "--trace", run.trace, "--rows", "2").out


def test_a_trace_that_is_not_there_is_an_error_with_those_that_are(tmp_path: Path, mas: Mas) -> None:
    write_two_processes(tmp_path)
    shown = mas("timeline", str(tmp_path / "here"), "--trace", "zz")
    assert shown.code == 2
    assert one(spans_in(tmp_path / "here"), "run").trace[:12] in shown.err
    assert "no trace 'zz' there; the latest are '" in shown.err


def test_the_command_says_how_many_spans_were_dropped(tmp_path: Path, mas: Mas) -> None:
    with open_tracing(tmp_path, process="p", most=2) as tracer:
        for name in "abcde":
            tracer.begin(name).end()
    assert "3 spans found no room" in mas("timeline", str(tmp_path)).out
    page = tmp_path / "page.html"
    assert mas("timeline", str(tmp_path), "--html", str(page)).out == f"{page}\n"
    assert "3 spans found no room" in page.read_text()


def test_the_page_has_every_span_with_what_it_says_and_escapes_it(tmp_path: Path) -> None:
    write_two_processes(tmp_path)
    page = render_page(traces_of(spans_in(tmp_path / "here", tmp_path / "there")))
    assert "<script" not in page
    assert page.count("&lt;script&gt;") >= 3
    assert page.count("<details>") == 4
    for part in ("process it", "gen_ai.usage.input_tokens", "join.waiting", "Expired", "here-", "there-"):
        assert part in page
    assert page.count("<details>") == render_page(traces_of(spans_in(tmp_path / "here"))).count("<details>") + 1
    assert "3 more spans are not on this page" in render_page(
        traces_of(spans_in(tmp_path / "here", tmp_path / "there")), most=1
    )


@needs_browser
def test_a_browser_draws_the_bars_and_runs_nothing(tmp_path: Path, mas: Mas) -> None:
    write_two_processes(tmp_path)
    page = tmp_path / "page.html"
    assert mas("timeline", str(tmp_path / "here"), str(tmp_path / "there"), "--html", str(page)).code == 0
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}",
               "--dump-dom", page.as_uri()]  # fmt: skip
    seen = subprocess.run(command, capture_output=True, text=True, check=True, timeout=100).stdout
    assert "<title>Timeline</title>" in seen
    assert "<script" not in seen
    assert seen.count('class="lane"') == 4
