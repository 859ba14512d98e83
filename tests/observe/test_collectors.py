"""What mas traces, as others read it: OpenTelemetry's own protobuf classes, and Phoenix, a viewer of traces."""

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event, Thread
from time import monotonic
from typing import Any
from urllib.request import urlopen

import pytest
from conftest import Ran
from foreign import foreign_python, why_none

pytest.importorskip("opentelemetry.exporter.otlp.proto.http")
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

PHOENIX = foreign_python("phoenix")


@contextmanager
def receiver() -> Iterator[tuple[str, list[ExportTraceServiceRequest]]]:
    """The address of an OTLP receiver, and the messages that it was sent, decoded."""
    received: list[ExportTraceServiceRequest] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            assert (self.path, self.headers["Content-Type"]) == ("/v1/traces", "application/x-protobuf")
            received.append(ExportTraceServiceRequest.FromString(body))
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            """Nothing is logged."""

    with HTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever, name="receiver")
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", received
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture(autouse=True)
def _no_other_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


def traced_run(
    mas: Callable[..., Ran], small_overrides: tuple[str, ...], address: str, folder: Path, patch: pytest.MonkeyPatch
) -> None:
    patch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", address)
    patch.setenv("OTEL_SERVICE_NAME", "lab")
    ran = mas("run", "scenario=relay", *small_overrides, "--trace", str(folder))
    assert ran.code == 0, ran.err


def test_opentelemetrys_own_classes_read_what_a_collector_is_sent(
    mas: Callable[..., Ran], small_overrides: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with receiver() as (address, received):
        traced_run(mas, small_overrides, address, tmp_path, monkeypatch)
    resources = [resource for message in received for resource in message.resource_spans]
    spans = [span for resource in resources for scope in resource.scope_spans for span in scope.spans]
    names = {value.key: value.value.string_value for value in resources[0].resource.attributes}
    assert names["service.name"] == "lab"
    by_id = {span.span_id: span for span in spans}
    asked = [span for span in spans if span.name.startswith(("chat ", "text_completion "))]
    assert len(asked) == 2
    for span in asked:
        attributes = {value.key: value.value for value in span.attributes}
        assert attributes["gen_ai.usage.output_tokens"].int_value > 0
        above = []
        while span.parent_span_id:
            span = by_id[span.parent_span_id]
            above.append(span.name.split()[0])
        assert "invoke_agent" in above
        assert above[-2:] == ["invoke_workflow", "run"]
    assert len({span.trace_id for span in spans}) == 1
    assert all(span.start_time_unix_nano <= span.end_time_unix_nano for span in spans)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def phoenix(folder: Path) -> Iterator[str]:
    """The address of Phoenix, with a database of its own."""
    port = free_port()
    environment = {
        **os.environ,
        "PYTHONPATH": "",
        "PHOENIX_PORT": str(port),
        "PHOENIX_HOST": "127.0.0.1",
        "PHOENIX_GRPC_PORT": str(free_port()),
        "PHOENIX_WORKING_DIR": str(folder),
        "PHOENIX_TELEMETRY_ENABLED": "false",
    }
    words = [PHOENIX, "-m", "phoenix.server.main", "serve"]
    with (
        (folder / "log").open("wb") as log,
        subprocess.Popen(words, env=environment, stdout=log, stderr=log) as process,
    ):
        try:
            limit = monotonic() + 1200  # half a minute, unless the machine is busy
            while True:
                try:
                    with urlopen(f"http://127.0.0.1:{port}/healthz", timeout=2):
                        break
                except OSError:
                    assert process.poll() is None, (folder / "log").read_text()[-3000:]
                    assert monotonic() < limit, "Phoenix did not start"
                    Event().wait(0.5)
            yield f"http://127.0.0.1:{port}"
        finally:
            process.kill()


def spans_at(address: str, least: int) -> list[dict[str, Any]]:
    """The spans that Phoenix shows, when there are so many."""
    limit = monotonic() + 60
    while True:
        with urlopen(f"{address}/v1/projects/default/spans?limit=1000", timeout=10) as answer:
            found = list(json.load(answer)["data"])
        if len(found) >= least or monotonic() > limit:
            return found
        Event().wait(0.5)


@pytest.mark.nightly(shard=False)
@pytest.mark.timeout(1500)
@pytest.mark.skipif(not PHOENIX, reason=why_none("phoenix"))
def test_phoenix_shows_the_trace_of_a_run(
    mas: Callable[..., Ran], small_overrides: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "phoenix").mkdir()
    with phoenix(tmp_path / "phoenix") as address:
        traced_run(mas, small_overrides, address, tmp_path / "spans", monkeypatch)
        written = [json.loads(line) for line in (tmp_path / "spans" / "spans.jsonl").read_text().splitlines()]
        ids = {
            span["spanId"]: span["name"]
            for message in written
            for resource in message["resourceSpans"]
            for scope in resource["scopeSpans"]
            for span in scope["spans"]
        }
        found = spans_at(address, len(ids))
    assert {span["context"]["span_id"]: span["name"] for span in found} == ids
    (asked, *_) = [span for span in found if span["name"].startswith(("chat ", "text_completion "))]
    assert asked["attributes"]["gen_ai.usage.output_tokens"] > 0
    assert asked["parent_id"] in ids
