"""The page on tracing: its example runs, and its tables name every option, span and event."""

import re
from pathlib import Path

import pytest
from pages import ROOT, blocks, read
from spans import tree_of

from mas.config.options import TraceOptions


def test_the_example_makes_one_trace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT", raising=False)
    (block,) = blocks("docs/tracing.md", "python")
    exec(compile(block.text, "docs/tracing.md", "exec"), {})  # noqa: S102 - our own page
    assert tree_of(tmp_path / "runs" / "mine") == ["experiment", "  send solver", "    process solver"]


def test_every_option_and_event_is_in_a_table() -> None:
    rows = "\n".join(line for line in read("docs/tracing.md").splitlines() if line.startswith("|"))
    for name, field in TraceOptions.model_fields.items():
        shown = f"{field.default:,}".lower() if isinstance(field.default, int) else field.default
        if isinstance(field.default, bool):
            shown = str(field.default).lower()
        assert f"| `trace.{name}` | {shown} |" in rows
    sources = "".join((ROOT / "mas" / name).read_text() for name in ("runtime/spans.py", "observe/tracing.py"))
    events = set(re.findall(r'"((?:join|attempt)\.[a-z]+|cancelled)"', sources))
    assert len(events) == 6
    for event in events:
        assert f"`{event}`" in rows
