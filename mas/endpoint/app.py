"""The endpoint as an application: routes, the key, what is asked about the server itself, and questions to people."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated

import msgspec
from pydantic import Field, ValidationError
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route

from mas.core.engine import Request as EngineRequest
from mas.core.engine import Sampling
from mas.core.errors import MasError, RefusedRequest
from mas.core.remote_agent import WELL_KNOWN
from mas.endpoint.client_keys import ANYBODY, ClientKeys, Door, Entrance
from mas.endpoint.durable_requests import KeptRequests
from mas.endpoint.errors import Refused
from mas.endpoint.limits import ConnectionGate, PromptReader
from mas.endpoint.models import Served
from mas.endpoint.openapi import description, page
from mas.endpoint.request_lifecycle import Metrics, Recorder, RequestExchange, read_body, unrecorded
from mas.endpoint.responses import ResponsesRequest
from mas.endpoint.wire import ChatRequest, CompletionRequest
from mas.endpoint.wire_base import Wire
from mas.runtime.human import HumanDesk

MAX_RUNNING = 256
MAX_WAITING = 1024
_OPEN = frozenset({"/health", WELL_KNOWN})
"""Paths that need no key: a client learns from the card that it needs one elsewhere."""
_PROBE_S = 10.0
_PROBE = EngineRequest(prompt_ids=(0,), sampling=Sampling(temperature=0.0, max_tokens=1), seeds=(0,))
"""The cheapest question that shows whether an engine works: every vocabulary has an id 0."""


def build_app(
    served: Served,
    *,
    entrance: Entrance = ANYBODY,
    max_running: int = MAX_RUNNING,
    max_waiting: int = MAX_WAITING,
    max_body: int | None = None,
    max_seconds: float | None = None,
    desk: HumanDesk | None = None,
    kept: KeptRequests | None = None,
    recording: Recorder = unrecorded,
) -> Starlette:
    """The endpoint for an engine that runs already; closing it and the teams' runtimes is the caller's.

    Args:
        entrance: who may ask; `/health` needs no key.
        max_running: completions that run at the same time; there may be as many requests and `max_waiting` more, and
            others get status 429.
        max_body: of a request, in bytes; None: what a text as long as the context may need, 8 MiB at most.
        max_seconds: that a request may take; None: no limit.
        desk: of the teams' runtimes, where questions to people lie; None: there are none.
        kept: keeps the requests to the teams, entered by the caller; None: they end with their client.
        recording: notes what models said.
    """
    gate, prompts = ConnectionGate(running=max_running, waiting=max_waiting), PromptReader(served)
    metrics = Metrics(served.engine, gate, served.teams)
    max_body = prompts.max_body if max_body is None else max_body

    exchange = partial(
        RequestExchange,
        served=served,
        prompts=prompts,
        gate=gate,
        metrics=metrics,
        max_body=max_body,
        max_seconds=max_seconds,
        kept=kept,
        recording=recording,
    )
    keys, origins = ClientKeys(entrance.key, entrance.clients), entrance.origins

    def turn_away(error: Refused) -> Response:
        metrics.request("", error.status, 0.0)
        return _answer(error)

    door = Middleware(Door, hosts=entrance.hosts | origins, is_open=_OPEN, client=keys.of, refuse=turn_away)
    app = Starlette(
        routes=[
            Route("/v1/completions", exchange(kind=CompletionRequest), methods=["POST"]),
            Route("/v1/chat/completions", exchange(kind=ChatRequest), methods=["POST"]),
            Route("/v1/responses", exchange(kind=ResponsesRequest), methods=["POST"]),
            *_Pages(served, gate, metrics).routes(),
            *PeoplePages(desk or HumanDesk(), max_body).routes(),
        ],
        middleware=[*cors(origins), door],
        exception_handlers={Refused: _refused, HTTPException: _http_error},
    )
    app.state.gate = gate
    return app


@dataclass(frozen=True, slots=True)
class _Pages:
    """What is asked about the server."""

    served: Served
    gate: ConnectionGate
    metrics: Metrics

    def routes(self) -> Sequence[Route]:
        return (
            Route("/v1/models", self.models),
            Route("/v1/models/{name:path}", self.model),
            Route("/openapi.json", self.openapi),
            Route("/docs", self.docs),
            Route("/health", self.state),
            Route("/metrics", self.scrape),
        )

    async def models(self, request: Request) -> Response:
        return JSONResponse({"object": "list", "data": list(self.served.cards())})

    async def model(self, request: Request) -> Response:
        name = request.path_params["name"]
        self.served.find(name)
        return JSONResponse(next(card for card in self.served.cards() if card["id"] == name))

    async def openapi(self, request: Request) -> Response:
        return JSONResponse(description())

    async def docs(self, request: Request) -> Response:
        return HTMLResponse(
            page(), headers={"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        )

    async def state(self, request: Request) -> Response:
        """200 while requests are served. After a failure of the engine, a question of one token shows how it is."""
        if self.gate.is_closing:
            raise Refused(503, "the server is closing", code="closing")
        if not self.metrics.is_good:
            try:
                async with asyncio.timeout(_PROBE_S):
                    await self.served.engine.generate(_PROBE)
            except (MasError, TimeoutError) as error:
                raise Refused(503, f"the engine does not answer: {error}", code="engine_error") from error
            self.metrics.is_good = True
        return JSONResponse({"status": "ok"})

    async def scrape(self, request: Request) -> Response:
        return Response(self.metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")


class AnswerRequest(Wire):
    """What a person says."""

    text: Annotated[str, Field(max_length=65_536)]


@dataclass(frozen=True, slots=True)
class PeoplePages:
    """The pages of one desk. `max_body`: bytes."""

    desk: HumanDesk
    max_body: int

    def routes(self) -> Sequence[Route]:
        return (Route("/v1/questions", self.questions), Route("/v1/questions/{name}", self.answer, methods=["POST"]))

    async def questions(self, request: Request) -> Response:
        """All open questions, the oldest first."""
        return JSONResponse({"object": "list", "data": msgspec.to_builtins(self.desk.questions())})

    async def answer(self, request: Request) -> Response:
        """Answer one.

        Raises:
            Refused: the body is not `{"text": ...}`, no such question is open, or its role cannot read the text.
        """
        name, body = request.path_params["name"], await read_body(request, self.max_body)
        try:
            answer = AnswerRequest.model_validate_json(body)
        except ValidationError as error:
            said = error.errors()[0]["msg"]
            raise Refused(400, f'an answer is {{"text": "..."}}: {said[:1].lower()}{said[1:]}', param="text") from None
        if all(name != question.id for question in self.desk.questions()):
            raise Refused(
                404, f"no question {name!r} is open; GET /v1/questions lists those that are", code="no_question"
            )
        try:
            self.desk.answer(name, answer.text)
        except RefusedRequest as error:
            raise Refused(400, str(error), param="text") from error
        await self.desk.kept()
        return JSONResponse({"id": name, "object": "answer"})


def cors(origins: frozenset[str]) -> Sequence[Middleware]:
    """Lets web pages of these origins ask, if there are any."""
    if not origins:
        return ()
    allowed = Middleware(
        CORSMiddleware,
        allow_origins=sorted(origins),
        allow_methods=("GET", "POST"),
        allow_headers=("*",),
        expose_headers=("Retry-After",),
    )
    return (allowed,)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, Refused)
    return _answer(error)


def _answer(error: Refused) -> Response:
    return JSONResponse(error.body(), error.status, dict(error.headers))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    possible = (
        "POST /v1/chat/completions, POST /v1/completions, POST /v1/responses, GET /v1/models, GET /v1/questions, "
        "GET /health, GET /metrics, GET /docs, GET /openapi.json"
    )
    refused = Refused(error.status_code, f"{request.method} {request.url.path}: {error.detail}. Possible: {possible}")
    return JSONResponse(refused.body(), refused.status, dict(error.headers or {}))
