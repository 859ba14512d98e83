"""The life of one request: let in, read, answered or refused, counted. No error of a request gets past it.

The counters and gauges are in Prometheus' form, in a registry of its own for each server.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from mas.core.engine import Engine
from mas.endpoint.answering import Answering
from mas.endpoint.client_keys import client_of
from mas.endpoint.completions import Made
from mas.endpoint.durable_requests import KEY_HEADER, KeptRequests, check_key_header
from mas.endpoint.errors import Refused, refusal
from mas.endpoint.limits import ConnectionGate, Disconnected, PromptReader, within
from mas.endpoint.models import Served
from mas.endpoint.response_format import EndpointReply, Shape
from mas.endpoint.responses import ResponsesReply, ResponsesRequest
from mas.endpoint.teams import TeamModel
from mas.endpoint.wire import ChatRequest, CompletionRequest, read_request
from mas.endpoint.wire_base import Wire

GONE = 499
"""The status under which a request is counted whose client left; nobody reads it."""
BODY_S = 60.0
"""How long a client may take to send a request's body."""
_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300)


class Metrics:
    """What a server did since it was made, and what it does now.

    Attributes:
        is_good: whether the last request that reached the engine found it well.
    """

    def __init__(self, engine: Engine, gate: ConnectionGate, teams: Sequence[TeamModel] = ()) -> None:
        self.is_good = True
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
        registry.register(_Current(engine, teams))

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
        return generate_latest(self.registry)


@dataclass(frozen=True, slots=True, eq=False)
class _Current(Collector):
    """Computed at each scrape: the current version of every adapter, team turns, and how often their loops were taken
    (the share of replies that a feedback agent sent back, say)."""

    engine: Engine
    teams: Sequence[TeamModel]

    def collect(self) -> Iterator[Metric]:
        versions = GaugeMetricFamily("mas_adapter_version", "The version that each adapter serves", labels=("adapter",))
        turns = CounterMetricFamily("mas_team_turns", "Team turns played", labels=("model",))
        loops = CounterMetricFamily("mas_team_loops", "How often a team's loop was taken", labels=("model", "loop"))
        for name, ref in self.engine.adapters().items():
            versions.add_metric((name,), ref.version)
        for team in self.teams:
            model = f"team:{team.name}"
            turns.add_metric((model,), team.turns_played)
            for name, taken in team.loops_taken.items():
                loops.add_metric((model, name), taken)
        yield from (versions, turns, loops)


@dataclass(frozen=True, slots=True)
class Recording:
    """One request.

    Attributes:
        request: as it is answered. on_made: told what the model said.
    """

    request: CompletionRequest | ChatRequest
    on_made: Made = lambda wanted, made: None


Recorder = Callable[[Request, CompletionRequest | ChatRequest], AbstractAsyncContextManager[Recording]]
"""Notes what models said, as `mas.gateway` does: the request is answered within the block, and an error leaves it where
the client did not get the whole answer. Raises Refused: it is not answered."""


@asynccontextmanager
async def unrecorded(http: Request, request: CompletionRequest | ChatRequest) -> AsyncIterator[Recording]:
    """Nobody notes anything."""
    yield Recording(request)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestExchange:
    """An ASGI application for one kind of request.

    Attributes:
        max_body: bytes.
        max_seconds: from the request to the end of its answer; None: no limit.
        kept: None: requests end with their client.
        recording: notes what models said.
    """

    kind: type[CompletionRequest] | type[ChatRequest] | type[ResponsesRequest]
    served: Served
    prompts: PromptReader
    gate: ConnectionGate
    metrics: Metrics
    max_body: int
    max_seconds: float | None = None
    kept: KeptRequests | None = None
    recording: Recorder = unrecorded

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply = ResponsesReply(send) if self.kind is ResponsesRequest else EndpointReply(send)
        began = time.perf_counter()
        try:
            with self.gate.entered(), self.gate.holding() as take:
                async with within(self.max_seconds):
                    await self._answer(Request(scope, receive), reply, began, take)
        except (Disconnected, ClientDisconnect):
            reply.status = GONE
        except asyncio.CancelledError:
            reply.status = GONE
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: what goes wrong is the answer to this request alone
            refused = refusal(error)
            self.metrics.is_good = self.metrics.is_good and refused.status != 500
            await reply.fail(refused)
        finally:
            self.metrics.request(reply.model, reply.status, time.perf_counter() - began)

    async def _answer(self, http: Request, reply: EndpointReply, began: float, take: Callable[[int], None]) -> None:
        """Read it, wait for a place, and answer it while the client is there. `take` is told of every byte of it."""
        asking = client_of(http.scope)
        asking.enter()
        key = None if self.kept is None else check_key_header(http.headers.getlist(KEY_HEADER))
        if key is not None and asking.name:
            key = f"{asking.name}/{key}"  # nobody gets the answers of another client
        read: Wire = read_request(await read_body(http, self.max_body, take), self.kind)
        request = reply.begin(read)
        assert isinstance(request, CompletionRequest | ChatRequest)
        async with self.gate.connected(http.receive), self.recording(http, request) as recording:
            request = recording.request
            self.served.find(request.model)
            model = reply.model = request.model

            def on_cost(prompt: int, generated: int) -> None:
                self.metrics.tokens(model, prompt, generated)
                asking.spend(prompt + generated)

            answering = Answering(
                served=self.served,
                prompts=self.prompts,
                request=request,
                reply=reply,
                shape=Shape(request, self.served.engine.tokenizer),
                on_cost=on_cost,
                on_joined=lambda prompt, generated: asking.spend(prompt + generated),
                on_first_token=lambda moment: self.metrics.first_token(model, moment - began),
                on_made=recording.on_made,
                key=key,
                kept=self.kept,
            )
            async with self.gate.places(request.completions):
                await answering.run()
        self.metrics.is_good = True


async def read_body(request: Request, limit: int, take: Callable[[int], None] = lambda count: None) -> bytes:
    """The whole body; `take` is told how many bytes of it have come, piece by piece.

    Raises:
        Refused: it is not JSON, compressed, has more than `limit` bytes, or takes too long. ClientDisconnect: the
            client left.
    """
    if (coding := request.headers.get("content-encoding", "identity")) != "identity":
        why = f"a body with Content-Encoding {coding[:40]!r} is not read here: send it without, as it is"
        raise Refused(415, why, code="content_encoding")
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(400, "the header Content-Type must be application/json", code="content_type")
    too_large = Refused(413, f"the body has more than {limit} bytes", code="too_large")
    length = request.headers.get("content-length", "")
    if length.isdecimal() and int(length) > limit:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():
                take(len(chunk))
                body += chunk
                if len(body) > limit:
                    raise too_large
    except TimeoutError:
        raise Refused(408, f"the body did not come within {BODY_S:.0f} s", code="timeout") from None
    return bytes(body)
