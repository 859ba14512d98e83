"""The life of one request: let in, read, answered or refused, counted. No error of a request gets past it."""

import asyncio
import hmac
import time
from collections.abc import Callable
from dataclasses import dataclass

from starlette.requests import ClientDisconnect, Request
from starlette.types import Receive, Scope, Send

from mas.endpoint.answer import Answering
from mas.endpoint.errors import Refused, refusal
from mas.endpoint.gate import ConnectionGate, Disconnected
from mas.endpoint.kept import KEY_HEADER, KeptRequests, check_key_header
from mas.endpoint.metrics import Metrics
from mas.endpoint.models import Served
from mas.endpoint.prompts import PromptReader
from mas.endpoint.reply import EndpointReply
from mas.endpoint.shapes import Shape
from mas.endpoint.wire import ChatRequest, CompletionRequest, read_request

GONE = 499
"""The status under which a request is counted whose client left; nobody reads it."""
BODY_S = 60.0
"""How long a client may take to send a request's body."""


@dataclass(slots=True)
class Health:
    """Whether the last request that reached the engine found it well."""

    is_good: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestExchange:
    """An ASGI application for one kind of request. `max_body`: bytes; `kept` None: requests end with their client."""

    kind: type[CompletionRequest] | type[ChatRequest]
    served: Served
    prompts: PromptReader
    gate: ConnectionGate
    metrics: Metrics
    health: Health
    max_body: int
    kept: KeptRequests | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        reply, began = EndpointReply(send), time.perf_counter()
        call = _Call(self, reply, began)
        try:
            with self.gate.entered(), self.gate.holding() as take:
                await call.answer(scope, receive, take)
        except (Disconnected, ClientDisconnect):
            reply.status = GONE
        except asyncio.CancelledError:
            reply.status = GONE
            raise
        except Exception as error:  # noqa: BLE001 - the boundary: what goes wrong is the answer to this request alone
            refused = refusal(error)
            self.health.is_good = self.health.is_good and refused.status != 500
            await reply.fail(refused)
        finally:
            self.metrics.request(call.model, reply.status, time.perf_counter() - began)


@dataclass(slots=True)
class _Call:
    """One request. `model`: empty until it is known to be served."""

    exchange: RequestExchange
    reply: EndpointReply
    began: float
    model: str = ""

    async def answer(self, scope: Scope, receive: Receive, take: Callable[[int], None]) -> None:
        """Read it, wait for a place, and answer it while the client is there. `take` is told of every byte of it."""
        served, metrics, gate = self.exchange.served, self.exchange.metrics, self.exchange.gate
        http, kept = Request(scope, receive), self.exchange.kept
        key = None if kept is None else check_key_header(http.headers.getlist(KEY_HEADER))
        request = read_request(await read_body(http, self.exchange.max_body, take), self.exchange.kind)
        served.find(request.model)
        self.model = request.model
        answering = Answering(
            served=served,
            prompts=self.exchange.prompts,
            request=request,
            reply=self.reply,
            shape=Shape(request, served.engine.tokenizer),
            on_cost=lambda prompt, generated: metrics.tokens(self.model, prompt, generated),
            on_first_token=lambda moment: metrics.first_token(self.model, moment - self.began),
            key=key,
            kept=kept,
        )
        async with gate.connected(receive), gate.places(request.n):
            await answering.run()
        self.exchange.health.is_good = True


async def read_body(request: Request, limit: int, take: Callable[[int], None] = lambda count: None) -> bytes:
    """The whole body; `take` is told how many bytes of it have come, piece by piece.

    Raises:
        Refused: it is not JSON, has more than `limit` bytes, or takes too long. ClientDisconnect: the client left.
    """
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


def check_key(request: Request, key: str | None) -> None:
    """Compare the request's key with the server's, in a time that does not depend on how far they agree.

    Raises:
        Refused: the key is missing or wrong.
    """
    if key is None:
        return
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    is_right = hmac.compare_digest(given.encode("latin-1"), key.encode())
    if not is_right or scheme.lower() != "bearer":
        raise Refused(
            401, "this server needs its key: send the header Authorization: Bearer KEY", code="invalid_api_key"
        )
