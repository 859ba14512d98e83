"""The file of spans: bounded, whole after a kill, and read back with others."""

import errno
import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from spans import spans_in

from mas.core.errors import RunDirectoryError
from mas.core.tracing import Tracer
from mas.observe.span_records import read_spans
from mas.observe.tracing import open_tracing


def leaves(tracer: Tracer, number: int) -> None:
    """So many spans in three others."""
    with tracer.span("run"), tracer.span("episode"), tracer.span("turn"):
        for at in range(number):
            tracer.begin(f"leaf {at}").end()


def test_a_full_file_counts_what_it_drops_and_keeps_room_for_what_is_near_the_top(tmp_path: Path) -> None:
    with open_tracing(tmp_path, process="p", most=20) as tracer:
        leaves(tracer, 100)
    log = read_spans([tmp_path])
    # 18 leaves fill nine tenths; the turn, in two others, finds no room, its episode and run do
    assert [span.name for span in log.spans if "leaf" not in span.name] == ["run", "episode"]
    assert (len(log.spans), log.dropped) == (20, 83)
    lines = (tmp_path / "spans.jsonl").read_text().splitlines()
    # told at 1, 2, 4, ..., 64 and at the end
    assert len(lines) == 20 + 8


def test_the_next_process_writes_behind_the_first_within_the_same_bound(tmp_path: Path) -> None:
    for number in (5, 30):
        with open_tracing(tmp_path, process=f"p{number}", most=20) as tracer:
            leaves(tracer, number)
    log = read_spans([tmp_path])
    assert len(log.spans) == 20
    assert len(log.spans) + log.dropped == 5 + 3 + 30 + 3
    with open_tracing(tmp_path, process="again", most=20) as tracer:
        leaves(tracer, 1)
    assert read_spans([tmp_path]).dropped == log.dropped + 4


def test_a_torn_last_line_is_ignored_and_cut_off_by_the_next_process(tmp_path: Path) -> None:
    with open_tracing(tmp_path, process="p", most=20) as tracer:
        leaves(tracer, 1)
    path = tmp_path / "spans.jsonl"
    with path.open("ab") as file:
        file.write(b'{"resourceSpans":[{"resou')
    assert len(spans_in(tmp_path)) == 4
    with open_tracing(tmp_path, process="p", most=20) as tracer:
        leaves(tracer, 0)
    assert len(spans_in(tmp_path)) == 7
    assert all(json.loads(line) for line in path.read_text().splitlines())


KILLED = """
import os, signal, sys
from pathlib import Path
from mas.observe.tracing import open_tracing
with open_tracing(Path(sys.argv[1]), process="p", most=9) as tracer, tracer.span("run"):
    tracer.begin("done").end()
    tracer.begin("at work")
    os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_that_is_killed_leaves_what_ended_before(tmp_path: Path) -> None:
    killed = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert [span.name for span in spans_in(tmp_path)] == ["done"]


def test_damage_and_absence_are_errors_that_say_where(tmp_path: Path) -> None:
    with pytest.raises(RunDirectoryError, match=r"spans\.jsonl cannot be read.*--trace DIR"):
        read_spans([tmp_path])
    path = tmp_path / "spans.jsonl"
    path.write_text('{"resourceSpans": [}\n{"resourceSpans": []}\n')
    with pytest.raises(RunDirectoryError, match=r"Line 1 of .* is damaged"):
        read_spans([tmp_path])
    path.write_text('{"resourceSpans": []}\n{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "x"}]}]}]}\n')
    with pytest.raises(RunDirectoryError, match=r"Line 2 of .* is damaged"):
        read_spans([tmp_path])


def test_a_directory_that_cannot_be_written_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with (
        pytest.raises(RunDirectoryError, match="cannot be written"),
        open_tracing(tmp_path / "file", process="p", most=9),
    ):
        pass


def test_a_full_disk_ends_the_file_and_nothing_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with open_tracing(tmp_path, process="p", most=9) as tracer:
        tracer.begin("written").end()

        def full(file: int, line: bytes) -> int:
            raise OSError(errno.ENOSPC, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("os.write", full)
            tracer.begin("lost").end()
        tracer.begin("behind it").end()
    assert [span.name for span in spans_in(tmp_path)] == ["written"]
    assert [record.getMessage() for record in caplog.records] == [
        f"{tmp_path / 'spans.jsonl'} ends here, further spans are not written: No space left on device"
    ]


def test_the_file_is_one_that_collectors_read(tmp_path: Path) -> None:
    with open_tracing(tmp_path, process="p", most=9) as tracer, tracer.span("run", {"n": 3}, kind="client"):
        pass
    (line,) = (tmp_path / "spans.jsonl").read_text().splitlines()
    (resource,) = json.loads(line)["resourceSpans"]
    named = {one["key"]: one["value"]["stringValue"] for one in resource["resource"]["attributes"]}
    assert named["service.name"] == "mas"
    assert named["service.instance.id"].endswith(f"-{os.getpid()}")
    (scope,) = resource["scopeSpans"]
    (span,) = scope["spans"]
    # OTLP in JSON: ids as hex, 64-bit numbers as texts, kinds counted from 1
    assert (len(span["traceId"]), len(span["spanId"]), span["parentSpanId"]) == (32, 16, "")
    assert span["kind"] == 3
    assert span["attributes"] == [{"key": "n", "value": {"intValue": "3"}}]
    assert int(span["startTimeUnixNano"]) <= int(span["endTimeUnixNano"])
