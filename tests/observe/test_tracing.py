"""The tracer: parents, errors, what is left out, and where spans go."""

import asyncio
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

import pytest
from spans import one, spans_in, tree_of

from mas.core.errors import ConfigError, Expired
from mas.core.tracing import current_tracer, phase
from mas.observe.tracing import open_tracing


@pytest.fixture(autouse=True)
def _no_collector(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "OTEL_SDK_DISABLED"):
        monkeypatch.delenv(name, raising=False)


def test_nothing_is_on_unless_somebody_traces(tmp_path: Path) -> None:
    assert current_tracer() is None
    with phase("work") as span:
        assert span is None
    with open_tracing(tmp_path, process="p", most=9) as tracer:
        assert current_tracer() is tracer
    assert current_tracer() is None


def test_a_span_is_in_the_one_around_it_or_where_it_is_told_to_be(tmp_path: Path) -> None:
    with open_tracing(tmp_path, process="p", most=99) as tracer:
        with tracer.span("a") as a, tracer.span("b") as b:
            tracer.begin("in a", within=a).end()
            with tracer.span("alone", is_root=True):
                with phase("in alone"):
                    pass
                tracer.begin("elsewhere in b", within=b.traceparent).end()
            tracer.begin("also in b").end()
        tracer.begin("of no trace", within="nonsense").end()
    assert tree_of(tmp_path) == [
        "a", "  b", "    elsewhere in b", "    also in b", "  in a", "alone", "  in alone", "of no trace",
    ]  # fmt: skip


def test_an_error_is_its_type_and_its_message_only_where_content_is_shown(tmp_path: Path) -> None:
    for folder, shows_content in (("plain", False), ("content", True)):
        with (
            open_tracing(tmp_path / folder, process="p", most=9, shows_content=shows_content) as tracer,
            pytest.raises(Expired),
            tracer.span("work"),
        ):
            raise Expired("the secret is 7")
    assert one(spans_in(tmp_path / "plain"), "work").error == "Expired"
    assert "secret" not in (tmp_path / "plain" / "spans.jsonl").read_text()
    assert one(spans_in(tmp_path / "content"), "work").error == "Expired: the secret is 7"


def test_a_cancellation_is_an_event_and_no_failure(tmp_path: Path) -> None:
    with (
        open_tracing(tmp_path, process="p", most=9) as tracer,
        pytest.raises(asyncio.CancelledError),
        tracer.span("work"),
    ):
        raise asyncio.CancelledError
    span = one(spans_in(tmp_path), "work")
    assert (span.error, [event.name for event in span.events]) == (None, ["cancelled"])


def test_attributes_that_are_none_are_left_out_and_others_come_back_as_they_were(tmp_path: Path) -> None:
    given = {"text": "x", "yes": True, "number": 2**62, "share": 0.5, "seeds": (1, 2), "names": ("a",), "none": None}
    with open_tracing(tmp_path, process="p", most=9) as tracer, tracer.span("work", given) as span:
        span.event("happened", {"at": 1, "none": None})
    span = one(spans_in(tmp_path), "work")
    assert span.attributes == {name: value for name, value in given.items() if value is not None}
    assert span.events[0].attributes == {"at": 1}
    assert span.process.startswith("p-")


@pytest.mark.parametrize(
    ("variables", "name"),
    [
        ({}, "mas"),
        ({"OTEL_SERVICE_NAME": "lab"}, "lab"),
        ({"OTEL_RESOURCE_ATTRIBUTES": "service.name=lab,team=a"}, "lab"),
    ],
)
def test_the_service_is_called_as_the_environment_says(
    variables: dict[str, str], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("OTEL_SERVICE_NAME", "OTEL_RESOURCE_ATTRIBUTES"):
        monkeypatch.delenv(variable, raising=False)
    for variable, value in variables.items():
        monkeypatch.setenv(variable, value)
    with open_tracing(tmp_path, process="p", most=9) as tracer:
        tracer.begin("work").end()
    line = (tmp_path / "spans.jsonl").read_text()
    assert f'{{"key":"service.name","value":{{"stringValue":"{name}"}}}}' in line


def test_in_silence_only_traces_of_their_own_are_recorded(tmp_path: Path) -> None:
    with open_tracing(tmp_path, process="p", most=99) as tracer, tracer.silent():
        with tracer.span("quiet") as quiet:
            tracer.begin("in quiet elsewhere", within=quiet.traceparent).end()
            with tracer.episodes(5), tracer.span("quiet episode", is_episode=True):
                pass
        with tracer.span("step", is_root=True), phase("update"):
            pass
    assert tree_of(tmp_path) == ["step", "  update"]


def test_so_many_episodes_are_traces_of_their_own_linked_both_ways(tmp_path: Path) -> None:
    with open_tracing(tmp_path, process="p", most=99) as tracer, tracer.span("rollout"), tracer.episodes(2):
        for number in range(4):
            with tracer.span(f"episode {number}", is_episode=True), phase(f"turn {number}"):
                pass
    spans = spans_in(tmp_path)
    assert tree_of(tmp_path) == ["rollout", "episode 0", "  turn 0", "episode 1", "  turn 1"]
    rollout, episodes = one(spans, "rollout"), [one(spans, f"episode {number}") for number in (0, 1)]
    assert rollout.links == tuple((episode.trace, episode.id) for episode in episodes)
    assert [episode.links for episode in episodes] == [((rollout.trace, rollout.id),)] * 2
    assert len({span.trace for span in spans}) == 3


@pytest.mark.parametrize(
    ("variables", "problem"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, "OTEL_SDK_DISABLED"),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:1", "OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"},
            "'grpc'; mas speaks http/protobuf",
        ),
    ],
)
def test_what_the_environment_asks_and_cannot_have_is_refused(
    variables: dict[str, str], problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=problem), open_tracing(tmp_path, process="p", most=9):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_collector_without_its_exporter_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:1")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"pip install 'mas\[otel\]'"), open_tracing(tmp_path, process="p", most=9):
        pass


class Collector:
    """An OTLP collector that keeps what it is sent."""

    def __init__(self) -> None:
        received: list[tuple[str, bytes]] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                received.append((self.path, self.rfile.read(int(self.headers["Content-Length"]))))
                self.send_response(200)
                self.end_headers()

            def log_message(self, format: str, *args: object) -> None:
                pass

        self.received = received
        self.server = HTTPServer(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def collector() -> Iterator[Collector]:
    collector = Collector()
    thread = Thread(target=collector.server.serve_forever, name="collector")
    thread.start()
    yield collector
    collector.server.shutdown()
    thread.join()
    collector.server.server_close()


def has_exporter() -> bool:
    try:
        return find_spec("opentelemetry.exporter.otlp.proto.http") is not None
    except ModuleNotFoundError:
        return False


@pytest.mark.skipif(not has_exporter(), reason="mas[otel] is not installed")
def test_a_collector_that_the_environment_names_gets_what_the_file_gets(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
    with open_tracing(tmp_path, process="p", most=9) as tracer, tracer.span("work"):
        pass
    (path, body), span = collector.received[0], one(spans_in(tmp_path), "work")
    assert path == "/v1/traces"
    assert bytes.fromhex(span.trace) in body


def test_without_an_endpoint_nothing_is_sent(
    collector: Collector, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.address)
    monkeypatch.setenv("OTEL_TRACES_EXPORTER", "none")
    with open_tracing(tmp_path, process="p", most=9) as tracer, tracer.span("work"):
        pass
    assert len(spans_in(tmp_path)) == 1
    assert collector.received == []
