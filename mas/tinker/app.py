"""The Tinker API as an application: its routes, the key, and errors as the SDK shows them.

Telemetry is answered and dropped: nothing that clients send leaves this process but as saved weights.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from typing import Any

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tinker import types

from mas.endpoint.client_keys import ApiClient, ClientKeys, Door, Entrance
from mas.endpoint.errors import Refused, refusal
from mas.endpoint.limits import ConnectionGate
from mas.endpoint.request_lifecycle import BODY_S, GONE
from mas.tinker.checkpoints import CheckpointPath
from mas.tinker.service import TinkerService
from mas.tinker.wire import PROTOBUF, ForwardBackward, RequestT, read_json
from mas.training.client_adapter import ClientAdapter

MAX_BODY = 32 * 2**20
"""Bytes of a request."""
_HEAD = 4096
"""Bytes that are kept of a larger one: they say whose request it is."""
POLL_S = 20.0
"""How long an answer is waited for before the client is told to ask again; the SDK gives up a request after 45 s."""
_MAX_CHUNK = 4 * 2**20
"""Bytes of data that the SDK puts into one `forward_backward`."""
_NOTE = "LoRA on attention and MLP layers; train_unembed has no effect on this server"
Page = Callable[[Request], Awaitable[Response]]


def tinker_app(service: TinkerService, entrance: Entrance, *, poll_s: float = POLL_S) -> Starlette:
    """The application; closing the service is the caller's."""
    gate = ConnectionGate(running=1024, waiting=4096)
    pages = TinkerPages(service, poll_s)
    sender = partial(_sender, ClientKeys(entrance.key, entrance.clients))
    door = Middleware(Door, hosts=entrance.hosts, is_open={"/api/v1/healthz"}, client=sender, refuse=_refused)
    app = Starlette(
        routes=[
            Route(f"/api/v1{path}", _bounded(page, gate), methods=[method]) for method, path, page in pages.table()
        ],
        middleware=[door],
        exception_handlers={HTTPException: _http_error},
    )
    app.state.gate = gate
    return app


def _bounded(page: Page, gate: ConnectionGate) -> Page:
    """Counts requests, and answers every error."""

    async def bounded(request: Request) -> Response:
        try:
            with gate.entered(), gate.holding() as take:
                request.state.take = take
                return await page(request)
        except ClientDisconnect:
            return Response(status_code=GONE)
        except Exception as error:  # noqa: BLE001 - the boundary: the client is told, the server goes on
            return _refused(refusal(error))

    return bounded


async def _read(request: Request, kind: str) -> tuple[bytes, Refused | None]:
    """The whole body; or its beginning, and why it is not read.

    Raises:
        Refused: it takes too long, or all bodies here are too large.
    """
    error: Refused | None = None
    length, body = request.headers.get("content-length", ""), bytearray()
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != kind:
        error = Refused(415, f"the header Content-Type must be {kind}")
    if request.headers.get("content-encoding", "identity") != "identity":
        why = "a compressed body is not read here: client/config says proto_compress_fwdbwd false"
        return b"", Refused(415, why)
    too_large = Refused(413, f"the body has more than {MAX_BODY} bytes: send fewer data at once", code="too_large")
    if length.isdecimal() and int(length) > MAX_BODY:
        error = too_large
    try:
        async with asyncio.timeout(BODY_S):
            async for chunk in request.stream():  # all of it: a client that is not heard to its end sends it again
                if error is too_large:
                    body += chunk[: _HEAD - len(body)] if len(body) < _HEAD else b""
                    continue
                request.state.take(len(chunk))
                body += chunk
                if len(body) > MAX_BODY:
                    error = too_large
                    del body[_HEAD:]
    except TimeoutError:
        raise Refused(408, f"the body did not come within {BODY_S:.0f} s", code="timeout") from None
    return bytes(body), error


async def _json(request: Request) -> bytes:
    """The whole body.

    Raises:
        Refused: it is no JSON, compressed, too large, or takes too long; or all bodies here are too large.
    """
    body, error = await _read(request, "application/json")
    if error is not None:
        raise error
    return body


def _future(key: str, **more: Any) -> Response:
    return JSONResponse({"request_id": key, **more})


class TinkerPages:
    """The routes below `/api/v1`. `poll_s`: see `POLL_S`."""

    def __init__(self, service: TinkerService, poll_s: float) -> None:
        self._service, self._poll_s = service, poll_s

    def table(self) -> Sequence[tuple[str, str, Page]]:
        """Method, path and page."""
        training, saving = self._service.training, types.SaveWeightsForSamplerRequest
        return (
            ("GET", "/healthz", self.health),
            ("GET", "/get_server_capabilities", self.capabilities),
            ("POST", "/client/config", self.config),
            ("POST", "/client/dynamic_config", self.dynamic_config),
            ("POST", "/telemetry", self.telemetry),
            ("POST", "/create_session", self.create_session),
            ("POST", "/session_heartbeat", self.heartbeat),
            ("POST", "/sessions/{name}/finish", self.finish_session),
            ("POST", "/create_model", self.create_model),
            ("POST", "/get_info", self.info),
            ("POST", "/unload_model", self.unload),
            ("POST", "/forward_backward", self.forward_backward),
            ("POST", "/optim_step", self._in_turn(types.OptimStepRequest, training.optim_step, ClientAdapter.drop)),
            ("POST", "/save_weights", self._in_turn(types.SaveWeightsRequest, training.save_weights)),
            ("POST", "/load_weights", self._in_turn(types.LoadWeightsRequest, training.load_weights)),
            ("POST", "/save_weights_for_sampler", self._in_turn(saving, training.save_for_sampler)),
            ("POST", "/save_weights_external", self.save_external),
            ("POST", "/create_sampling_session", self.create_sampling),
            ("POST", "/join_sampling_session", self.join_sampling),
            ("GET", "/samplers/{name}", self.sampler),
            ("POST", "/asample", self.sample),
            ("POST", "/retrieve_future", self.retrieve),
            ("POST", "/cancel_future", self.cancel),
            ("GET", "/training_runs/{model}/checkpoints", self.checkpoints),
            ("DELETE", "/training_runs/{model}/checkpoints/{kind}/{name}", self.delete_checkpoint),
        )

    async def health(self, request: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def capabilities(self, request: Request) -> Response:
        context = self._service.base.model.limits.context
        models = [
            {"model_name": name, "max_context_length": context, "trainable": True, "sampleable": True}
            for name in self._service.base.names
        ]
        return JSONResponse({"supported_models": models})

    async def config(self, request: Request) -> Response:
        read_json(types.ClientConfigRequest, await _json(request))
        return JSONResponse(
            {
                "parallel_fwdbwd_chunks": False,
                "proto_compress_fwdbwd": False,
                "fwdbwd_max_chunk_bytes_count": _MAX_CHUNK,
                "sample_max_concurrent_requests": 512,
            }
        )

    async def dynamic_config(self, request: Request) -> Response:
        read_json(types.ClientConfigRequest, await _json(request))
        return JSONResponse({"refresh_interval_sec": 3600, "sample_cancel_enabled": True})

    async def telemetry(self, request: Request) -> Response:
        await _json(request)
        return JSONResponse({"status": "accepted"})

    async def create_session(self, request: Request) -> Response:
        asked = read_json(types.CreateSessionRequest, await _json(request))
        session = self._service.sessions.begin(asked)
        return JSONResponse({"type": "create_session", "session_id": session, "info_message": _NOTE})

    async def heartbeat(self, request: Request) -> Response:
        asked = read_json(types.SessionHeartbeatRequest, await _json(request))
        self._service.sessions.open(asked.session_id)
        return JSONResponse({"type": "session_heartbeat"})

    async def finish_session(self, request: Request) -> Response:
        await _json(request)
        self._service.sessions.end(request.path_params["name"])
        return JSONResponse({})

    async def create_model(self, request: Request) -> Response:
        body = await _json(request)
        asked = read_json(types.CreateModelRequest, body)
        return _future(
            self._service.training.create(asked, body), model_id=f"{asked.session_id}:train:{asked.model_seq_id}"
        )

    async def info(self, request: Request) -> Response:
        asked = read_json(types.GetInfoRequest, await _json(request))
        model, base = self._service.training.model(asked.model_id), self._service.base.model
        name = self._service.base.names[0]
        return JSONResponse(
            {
                "type": "get_info",
                "model_id": model.id,
                "model_name": name,
                "model_data": {
                    "arch": base.model.config.get_text_config().model_type,
                    "model_name": name,
                    "tokenizer_id": base.name,
                },
                "is_lora": True,
                "lora_rank": model.adapter.weights.options.rank,
                "optimizer_config": {"type": "adamw"},
            }
        )

    async def unload(self, request: Request) -> Response:
        body = await _json(request)
        asked = read_json(types.UnloadModelRequest, body)
        return _future(self._service.training.unload(asked.model_id, body), model_id=asked.model_id)

    async def forward_backward(self, request: Request) -> Response:
        body, error = await _read(request, PROTOBUF)
        training = self._service.training
        try:
            if error is not None:
                raise error
            asked = ForwardBackward.read(body)
        except Refused as refused:
            why = str(refused)
            return _future(training.refuse(body, refused, lambda adapter: adapter.fail(why)))
        return _future(training.forward_backward(asked, body), model_id=asked.message.model_id)

    async def save_external(self, request: Request) -> Response:
        why = "save_weights_external is not offered here: save_weights_for_sampler writes a PEFT directory in run_dir"
        return _future(self._service.training.refuse(await _json(request), Refused(400, why)))

    def _in_turn(
        self,
        kind: type[RequestT],
        begin: Callable[[RequestT, bytes], str],
        drop: Callable[[ClientAdapter], None] | None = None,
    ) -> Page:
        """`drop`: what becomes of the gradient if a request cannot be read."""

        async def page(request: Request) -> Response:
            body, error = await _read(request, "application/json")
            try:
                if error is not None:
                    raise error
                asked = read_json(kind, body)
            except Refused as refused:
                return _future(self._service.training.refuse(body, refused, drop))
            return _future(begin(asked, body))

        return page

    async def create_sampling(self, request: Request) -> Response:
        asked = read_json(types.CreateSamplingSessionRequest, await _json(request))
        name = await self._service.sampling.create(asked)
        return JSONResponse({"type": "create_sampling_session", "sampling_session_id": name})

    async def join_sampling(self, request: Request) -> Response:
        asked = read_json(types.JoinSamplingSessionRequest, await _json(request))
        number = self._service.sampling.join(asked.sampling_session_id)
        return JSONResponse({"type": "join_sampling_session", "client_counter": number})

    async def sampler(self, request: Request) -> Response:
        found = self._service.sampling.get(request.path_params["name"])
        return JSONResponse(
            {"sampler_id": found.id, "base_model": self._service.base.names[0], "model_path": found.path}
        )

    async def sample(self, request: Request) -> Response:
        body = await _json(request)
        key, names = self._service.sampling.sample(read_json(types.SampleRequest, body), body)
        return _future(key, sample_sequence_ids=names)

    async def retrieve(self, request: Request) -> Response:
        asked = read_json(types.FutureRetrieveRequest, await _json(request))
        answer = await self._service.futures.fetch(asked.request_id, self._poll_s)
        if answer is None:
            return JSONResponse({"type": "try_again", "request_id": asked.request_id, "queue_state": "active"})
        return Response(answer, media_type=PROTOBUF) if isinstance(answer, bytes) else JSONResponse(answer)

    async def cancel(self, request: Request) -> Response:
        asked = read_json(types.FutureRetrieveRequest, await _json(request))
        if ":sample:" in asked.request_id:  # a model's requests are numbered: none of them may be left out
            self._service.futures.cancel(asked.request_id)
        return JSONResponse({})

    async def checkpoints(self, request: Request) -> Response:
        model = request.path_params["model"]
        return JSONResponse({"checkpoints": await asyncio.to_thread(self._service.folder.listed, model)})

    async def delete_checkpoint(self, request: Request) -> Response:
        given = request.path_params
        path = CheckpointPath.read(f"tinker://{given['model']}/{given['kind']}/{given['name']}")
        await asyncio.to_thread(self._service.folder.delete, path)
        return Response(status_code=204)


def _sender(keys: ClientKeys, request: Request) -> ApiClient:
    """Who sends a request, which counts for them."""
    given = request.headers.get("x-api-key")
    header = request.headers.get("authorization", "") if given is None else f"Bearer {given}"
    try:
        client = keys.client(header)
    except Refused:
        raise Refused(401, "this server needs its key: send it as X-API-Key (api_key of ServiceClient)") from None
    client.enter()
    return client


def _refused(error: Refused) -> Response:
    return JSONResponse({"detail": str(error), **error.body()}, error.status, dict(error.headers))


async def _http_error(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _refused(
        Refused(error.status_code, f"{request.method} {request.url.path}: {error.detail}; not offered here")
    )
