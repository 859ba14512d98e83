"""Counters and gauges of one server in Prometheus' form, in a registry of its own."""

import time
from collections.abc import Iterator, Sequence

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from mas.core.engine import Engine
from mas.endpoint.gate import ConnectionGate
from mas.endpoint.teams import TeamModel

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """What a server did since it was made, and what it does now."""

    def __init__(self, engine: Engine, gate: ConnectionGate, teams: Sequence[TeamModel] = ()) -> None:
        registry = self.registry = CollectorRegistry(auto_describe=True)
        began = time.monotonic()
        self._requests = Counter(
            "mas_requests", "Requests answered, 499 where the client left first", ("model", "status"), registry=registry
        )
        self._prompt = Counter("mas_prompt_tokens", "Tokens of prompts", ("model",), registry=registry)
        self._generated = Counter("mas_generated_tokens", "Tokens generated", ("model",), registry=registry)
        self._seconds = Histogram(
            "mas_request_seconds",
            "From a request to the end of its answer",
            ("model",),
            buckets=_SECONDS,
            registry=registry,
        )
        self._first = Histogram(
            "mas_first_token_seconds",
            "From a request to the first token of a streamed answer",
            ("model",),
            buckets=_SECONDS,
            registry=registry,
        )
        now = (
            ("mas_requests_running", "Requests that run now", lambda: gate.running),
            ("mas_requests_waiting", "Requests that wait to run", lambda: gate.waiting),
            ("mas_uptime_seconds", "Time since the server was made", lambda: time.monotonic() - began),
        )
        for name, text, value in now:
            Gauge(name, text, registry=registry).set_function(value)
        registry.register(_Versions(engine))
        registry.register(_Teams(teams))

    def request(self, model: str, status: int, seconds: float) -> None:
        """A request has ended. `model`: empty where it named none that is served."""
        self._requests.labels(model, str(status)).inc()
        self._seconds.labels(model).observe(seconds)

    def first_token(self, model: str, seconds: float) -> None:
        """The first token of a stream left."""
        self._first.labels(model).observe(seconds)

    def tokens(self, model: str, prompt: int, generated: int) -> None:
        """What an answer cost."""
        self._prompt.labels(model).inc(prompt)
        self._generated.labels(model).inc(generated)

    def text(self) -> bytes:
        """All of it, as it is scraped."""
        return generate_latest(self.registry)


class _Versions(Collector):
    """The current version of every adapter, read when somebody looks."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def collect(self) -> Iterator[Metric]:
        versions = GaugeMetricFamily("mas_adapter_version", "The version that each adapter serves", labels=("adapter",))
        for name, ref in self._engine.adapters().items():
            versions.add_metric((name,), ref.version)
        yield versions


class _Teams(Collector):
    """Team turns and how often their loops were taken: the share of replies that a feedback agent sent back, say."""

    def __init__(self, teams: Sequence[TeamModel]) -> None:
        self._teams = teams

    def collect(self) -> Iterator[Metric]:
        turns = CounterMetricFamily("mas_team_turns", "Team turns played", labels=("model",))
        loops = CounterMetricFamily("mas_team_loops", "How often a team's loop was taken", labels=("model", "loop"))
        for team in self._teams:
            model = f"team:{team.name}"
            turns.add_metric((model,), team.turns_played)
            for name, taken in team.loops_taken.items():
                loops.add_metric((model, name), taken)
        yield turns
        yield loops
