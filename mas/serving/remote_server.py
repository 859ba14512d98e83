"""One server that speaks OpenAI's HTTP dialect: requests with retries, time limits and rate limits, clear errors, and
what it lists under `/models`.

Leaves out on purpose: what the fields of a request mean, which is the engines' part. Nothing is logged or reported. The
key is read from the environment once; no error, no representation and no configuration shows it.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from types import MappingProxyType
from typing import Any, TypeVar

import msgspec
from aiolimiter import AsyncLimiter
from openai import (
    APIConnectionError,
    APIError,
    APIStatusError,
    APITimeoutError,
    AsyncOpenAI,
    AsyncStream,
    Omit,
    RequestOptions,
    Timeout,
)

from mas.config.servers import ServerOptions
from mas.core.engine import AdapterRef
from mas.core.errors import ConfigError, EngineError, EngineLost, UnknownAdapter
from mas.core.http_bounds import UnusableResponse
from mas.core.naming import did_you_mean
from mas.serving.remote_answers import IDENTITY, bounded_client

T = TypeVar("T")
_CONNECT_S = 10.0
_MOVED, _WRONG = 300, 400
"""The lowest HTTP status of redirects, and the one behind them."""
_SERVERS_FAULT = 500
"""The lowest HTTP status of errors that are the server's."""
_LONGEST = 500
"""Characters of a server's message that an error repeats."""


class NoSuchPath(EngineError):
    """The server does not offer this part of the interface."""


class RemoteServer:
    """Sends JSON and receives JSON.

    Args:
        place: where the options stand in the configuration, such as `engine.remote`; errors name it.

    Raises:
        ConfigError: the environment variable that should hold the key is not set.
    """

    def __init__(self, options: ServerOptions, place: str) -> None:
        self.options = options
        self.place = place
        self._key = key_of(options, place)
        self._client = AsyncOpenAI(
            base_url=options.url,
            api_key=self._key or "none",
            admin_api_key="",
            timeout=Timeout(options.timeout_s, connect=min(options.timeout_s, _CONNECT_S)),
            max_retries=options.retries,
            http_client=bounded_client(),
        )
        authorization = f"Bearer {self._key}" if self._key else Omit()
        # the client would fill each of these from variables that were set for another server
        self._send: RequestOptions = {
            "headers": {
                **IDENTITY,
                "Authorization": authorization,
                "OpenAI-Organization": Omit(),
                "OpenAI-Project": Omit(),
            }
        }
        self._places = asyncio.Semaphore(options.concurrency)
        per_minute = options.requests_per_minute
        self._pace = AsyncLimiter(1, 60 / per_minute) if per_minute is not None else None

    async def get(self, path: str) -> dict[str, Any]:
        """The answer to GET, a JSON object.

        Raises:
            EngineError: there is none; says the address, the status, the server's message and the number of tries.
        """
        async with self._turn():
            return self._object(
                path, await self._within(path, self._client.get(path, cast_to=object, options=self._send))
            )

    async def post(self, path: str, body: Mapping[str, Any], *, is_json: bool = True) -> dict[str, Any]:
        """The answer to POST, a JSON object (empty where the answer need not be JSON).

        Raises:
            EngineError: there is none; says the address, the status, the server's message and the number of tries.
            UnknownAdapter: the server does not have the model that the body names.
        """
        async with self._turn():
            answer = await self._within(path, self._client.post(path, cast_to=object, body=body, options=self._send))
        return self._object(path, answer) if is_json else {}

    async def stream(self, path: str, body: Mapping[str, Any]) -> AsyncGenerator[dict[str, Any]]:
        """The events of a streamed answer; closing the generator closes the connection, which frees the server.

        Raises:
            EngineError: as `post`, or the connection broke.
        """
        async with self._turn():
            opening = self._client.post(
                path, cast_to=object, body=body, options=self._send, stream=True, stream_cls=AsyncStream[object]
            )
            async with aclosing(await self._within(path, opening)) as events:
                while (event := await self._within(path, anext(events, None))) is not None:
                    yield self._object(path, event)

    async def is_dead(self) -> bool:
        """Whether the server says at `/health`, which vLLM has beside `/v1`, that it cannot serve, or does not answer.

        A vLLM whose engine process has died still answers for some seconds: its list of models as before, all else with
        errors of any kind. A server without `/health` counts as alive.
        """
        url = f"{self.options.url.rstrip('/').removesuffix('/v1')}/health"
        once: RequestOptions = {**self._send, "max_retries": 0}
        try:
            async with asyncio.timeout(self.options.timeout_s):
                await self._client.get(url, cast_to=object, options=once)
        except APIStatusError as error:
            return error.status_code >= _SERVERS_FAULT
        except (APIError, TimeoutError):
            return True
        except (ValueError, RecursionError):  # it answers, in whatever form
            return False
        return False

    async def close(self) -> None:
        """Close all connections; safe to call twice."""
        await self._client.close()

    @asynccontextmanager
    async def _turn(self) -> AsyncIterator[None]:
        """One of the `concurrency` places, when the pace allows another request to begin."""
        async with self._places:
            if self._pace is not None:
                await self._pace.acquire()
            yield

    async def _within(self, path: str, answer: Awaitable[T]) -> T:
        """The answer, or an EngineError that says what was wrong and what to do."""
        url, limit = f"{self.options.url}{path}", self.options.timeout_s
        try:
            async with asyncio.timeout(limit):
                return await answer
        except (TimeoutError, APITimeoutError):
            raise EngineLost(
                f"{url}: no answer within {limit:g} s, retries included. See what the server is busy with, or raise "
                f"{self.place}.timeout_s"
            ) from None
        except APIConnectionError as error:
            raise self._unreached(url, error) from None
        except APIStatusError as error:
            raise self._refused(path, error) from None
        except APIError as error:  # an error event in a stream
            raise EngineError(f"{url}: the server broke off: {self._clean(error.body or error.message)}") from None
        except (UnusableResponse, RecursionError) as error:
            raise EngineError(f"{url} answers with something that is not read: {self._clean(error)}") from None
        except ValueError as error:
            raise EngineError(f"{url} answers with something that is not JSON: {self._clean(error)}") from None

    def _unreached(self, url: str, error: APIConnectionError) -> EngineError:
        cause = error.__cause__
        if isinstance(cause, UnusableResponse):
            return EngineError(f"{url} answers with something that is not read: {cause}")
        why = self._clean(f"{type(cause).__name__}: {cause}" if cause is not None else error.message)
        return EngineLost(
            f"no connection to {url}, or it broke ({why}; {_tries(error)}). Is a server running there? Start it, or "
            f"set {self.place}.url"
        )

    def _refused(self, path: str, error: APIStatusError) -> EngineError:
        url, status = f"{self.options.url}{path}", error.status_code
        body = error.body if isinstance(error.body, dict) else {}
        said = self._clean(body.get("message") or body.get("detail") or error.body or "no message")
        if _MOVED <= status < _WRONG:
            place = self._clean(error.response.headers.get("location", ""))
            return EngineError(
                f"{url} leads to another address ({status}), {place!r}, where nothing is sent: set {self.place}.url to "
                "the address that answers by itself"
            )
        if status in (401, 403):
            return EngineError(f"{url} refuses access ({status}): {said}. {self._whose_key()}")
        if status == 404 and (path == "/models" or said in ("Not Found", "no message")):
            return NoSuchPath(
                f"{url} does not exist (404). Does {self.place}.url end where the interface begins (/v1)?"
            )
        kind = UnknownAdapter if status == 404 else EngineError
        return kind(f"{url} answers {status}: {said} ({_tries(error)})")

    def _whose_key(self) -> str:
        name = self.options.key_env
        if name is None:
            return f"No key was sent: name the environment variable that holds one in {self.place}.key_env"
        return f"The key came from the environment variable {name}, which is set ({self.place}.key_env)"

    def _object(self, path: str, answer: object) -> dict[str, Any]:
        if not isinstance(answer, dict):
            raise EngineError(
                f"{self.options.url}{path} answers with something that is no JSON object: {self._clean(answer)!r}. "
                f"Is {self.place}.url the address of an OpenAI-compatible server?"
            )
        return answer

    def _clean(self, said: object) -> str:
        """A server's words in an error: without the key, and not too long."""
        text = " ".join(str(said).split())
        text = text.replace(self._key, "***") if self._key else text
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def key_of(options: ServerOptions, place: str) -> str:
    """The key, empty where none is wanted.

    Args:
        place: where the options stand in the configuration; errors name it.

    Raises:
        ConfigError: the environment variable that should hold it is not set, or holds no key.
    """
    if options.key_env is None:
        return ""
    key = os.environ.get(options.key_env, "").strip()
    if not key:
        raise ConfigError(
            f"{place}.key_env names the environment variable {options.key_env}, which is not set: put the key there, "
            f"or set {place}.key_env=null for a server without keys"
        )
    if not (key.isascii() and key.isprintable()):
        raise ConfigError(f"the environment variable {options.key_env} holds no key: there are characters not in ASCII")
    return key


def _tries(error: APIError) -> str:
    count = int(error.request.headers.get("x-stainless-retry-count", 0)) + 1
    return "tried once" if count == 1 else f"tried {count} times"


def read(answer: Mapping[str, Any], kind: type[T], server: RemoteServer) -> T:
    """An answer with the fields that are needed.

    Raises:
        EngineError: one is missing or of another type.
    """
    try:
        return msgspec.convert(answer, kind, str_keys=True)
    except msgspec.ValidationError as error:
        raise EngineError(f"{server.options.url} answers in another form than expected: {error}") from None


class ServedModel(msgspec.Struct, frozen=True):
    """One entry. `parent`: the base of an adapter; `version` and `kind` are given by `mas serve` only."""

    id: str
    parent: str | None = None
    max_model_len: int | None = None
    version: int | None = None
    kind: str | None = None


class _List(msgspec.Struct):
    data: tuple[ServedModel, ...]


async def list_models(server: RemoteServer) -> tuple[ServedModel, ...]:
    """The server's list, in its order.

    Raises:
        EngineError: it cannot be had. NoSuchPath: the server has none.
    """
    return read(await server.get("/models"), _List, server).data


def choose_model(models: Sequence[ServedModel], server: RemoteServer) -> ServedModel:
    """The model that the options name, else the first base.

    Raises:
        ConfigError: the server does not list it.
    """
    wanted, names = server.options.model, [model.id for model in models]
    if wanted is not None:
        found = next((model for model in models if model.id == wanted), None)
        if found is None:
            raise ConfigError(
                f"{server.place}.model={wanted}: {server.options.url} does not serve it. {did_you_mean(wanted, names)}"
            )
        return found
    first = next((model for model in models if model.parent is None and model.kind != "team"), None)
    if first is None:
        raise ConfigError(f"{server.options.url} lists no base model; set {server.place}.model to one of: {names}")
    return first


def context_of(model: ServedModel, models: Sequence[ServedModel]) -> int | None:
    """Longest context in tokens, an adapter's being its base's; None where the server does not say."""
    parent = next((other for other in models if other.id == model.parent), model)
    return model.max_model_len or parent.max_model_len


def adapters_of(models: Sequence[ServedModel]) -> Mapping[str, AdapterRef]:
    """Every adapter by name; a server without version numbers has version 0 of each."""
    adapters = [model for model in models if model.parent is not None and model.kind != "team"]
    return MappingProxyType({model.id: AdapterRef(model.id, model.version or 0) for model in adapters})
