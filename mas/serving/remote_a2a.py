"""The engine of an agent elsewhere that plays a role, over the Agent2Agent protocol (A2A 1.0 and 0.3).

A prompt is one message of a task of its own, a completion is the text of the agent's answer, one token per character.
The agent is not trusted: an answer has a time limit and a limit of characters, a response one of bytes, the key goes to
the origin of the card alone, and its value is passed on in no answer and no error. Leaves out on purpose: contexts. The
agent is told all in its message, so that candidates of one prompt do not depend on each other.
"""

import asyncio
import json
import logging
import os
import sys
from collections.abc import AsyncGenerator, Iterable, Mapping, Sequence
from contextlib import aclosing, suppress
from typing import Any
from urllib.parse import urlsplit
from uuid import uuid4

from mas.core.concurrency import together
from mas.core.engine import AdapterRef, Generation, Request
from mas.core.errors import ConfigError, EngineError, RemoteError
from mas.core.http_bounds import bounded_response
from mas.core.remote_agent import RemoteAgent, check_a2a
from mas.serving.in_flight import InFlight
from mas.serving.model_text import END, MessageTokenizer, ModelLimits

_BINDINGS = ("JSONRPC", "HTTP+JSON")
_VERSIONS = ("1.0", "0.3")
_AT_ONCE = 16
"""Messages that one agent has at the same time."""
_POLL_S = (0.05, 1.0)
"""The first pause before it is asked whether a task is done, and the longest: each is twice the one before."""
_CANCEL_S = 5.0
"""How long the request that cancels a task may take."""
_WHY = 300
"""Characters of the agent's error that are repeated."""


class A2aEngine:
    """Satisfies `mas.core.engine.Engine` but for `score`. Made by `start`.

    `generate` and `stream` raise RemoteError where the agent fails. Sampling options are not sent: the protocol has
    none. A completion that the limit of characters cut off has the finish `length`; every other one has the end token.
    No log-probabilities are known.
    """

    def __init__(self, options: RemoteAgent, role: str) -> None:
        check_a2a(f"role {role!r}, which an agent elsewhere plays (a2a), needs")
        key = options.key_env
        if key is not None and not os.environ.get(key):
            raise ConfigError(f"the A2A agent that plays {role!r} is to be sent {key}: set this environment variable")
        self.tokenizer = MessageTokenizer()
        self.stop_ids: tuple[int, ...] = (END,)
        self._options, self._role = options, role
        self._secret = os.environ[key] if key is not None else ""
        self._limits = ModelLimits(MessageTokenizer.size, sys.maxsize)
        self._flights, self._places = InFlight(), asyncio.Semaphore(_AT_ONCE)
        self._cancelling = set[asyncio.Task[None]]()
        self._http, self._client = _http_client(options, self._secret), None  # type: tuple[Any, Any]
        logging.getLogger("a2a").setLevel(logging.CRITICAL)  # it would log whatever an agent sends wrongly

    @classmethod
    async def start(cls, options: RemoteAgent, role: str) -> "A2aEngine":
        """Fetch and check the agent's card.

        Args:
            role: that the agent plays; errors name it.

        Raises:
            MissingPackage: the extra `a2a` is not installed. ConfigError: the key is not set, there is no card in time,
                or the agent that it describes cannot play a role.
        """
        engine = cls(options, role)
        try:
            async with asyncio.timeout(options.timeout_s):
                engine._client = await engine._connected()
        except BaseException as error:  # a cancelled start, too: no one else holds its connections
            await engine.close()
            if not isinstance(error, Exception):
                raise
            why = f"no answer within {options.timeout_s:g} s" if isinstance(error, TimeoutError) else engine._why(error)
            raise ConfigError(
                f"the A2A agent that plays {role!r} cannot be used: {options.card_url}: {why}. Start it, or correct "
                f"roles.{role}.a2a"
            ) from None
        return engine

    async def _connected(self) -> Any:
        from a2a.client import A2ACardResolver, ClientConfig, ClientFactory

        parts = urlsplit(self._options.card_url)
        resolver = A2ACardResolver(self._http, f"{parts.scheme}://{parts.netloc}")
        card = _usable(await resolver.get_agent_card(relative_card_path=parts.path), self._options.card_url)
        config = ClientConfig(
            httpx_client=self._http,
            supported_protocol_bindings=[*_BINDINGS],
            use_client_preference=True,
            polling=not card.capabilities.streaming,
        )
        return ClientFactory(config).create(card)

    def adapters(self) -> Mapping[str, AdapterRef]:
        return {}

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        with self._flights.accepted():
            self._limits.check_request(request)
            text = _message(self.tokenizer.messages(request.prompt_ids))
            return tuple(await together([self._answer(text) for _ in request.seeds], "remote-agent"))

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        with self._flights.accepted():
            self._limits.check_stream(request)
            yield await self._answer(_message(self.tokenizer.messages(request.prompt_ids)))

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        raise EngineError(f"an agent elsewhere plays {self._role!r} (a2a): it exchanges text and cannot score tokens")

    async def close(self) -> None:
        await self._flights.close()
        if self._cancelling:
            await asyncio.wait(self._cancelling)
        await self._http.aclose()

    async def _answer(self, text: str) -> Generation:
        async with self._places:
            said = self._clean(await self._asked(text))
        is_cut = len(said) > self._options.max_chars
        ids = self.tokenizer.encode(said[: self._options.max_chars])
        return Generation(
            token_ids=ids if is_cut else (*ids, END), logprobs=(), finish="length" if is_cut else "stop", adapter=None
        )

    async def _asked(self, text: str) -> str:
        """The text of the agent's answer to a message.

        Raises:
            RemoteError: there is none in time, or the agent says that there will be none. A policy may ask again.
        """
        progress = TaskProgress()
        try:
            async with asyncio.timeout(self._options.timeout_s):
                await self._follow(text, progress)
            return progress.text()
        except TimeoutError:
            self._cancel(progress)
            raise self._error(f"no answer within {self._options.timeout_s:g} s") from None
        except asyncio.CancelledError:
            self._cancel(progress)
            raise
        except Exception as error:  # noqa: BLE001 - of an agent and of whatever the SDK raises
            self._cancel(progress)
            raise self._error(self._why(error)) from None

    async def _follow(self, text: str, progress: "TaskProgress") -> None:
        """Send a message, and take what comes until its task is over."""
        from a2a.types import GetTaskRequest, Message, Part, Role, SendMessageRequest

        message = Message(message_id=uuid4().hex, role=Role.ROLE_USER, parts=[Part(text=text)])
        request = SendMessageRequest(message=message)
        request.configuration.accepted_output_modes.extend(["text/plain", "application/json"])
        async with aclosing(self._client.send_message(request)) as events:
            async for event in events:
                progress.take(event)
                if progress.is_over:
                    return
        pause_s, longest_s = _POLL_S
        while not progress.is_over:
            if not progress.task:
                raise EngineError("it answers with neither a message nor a task")
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, longest_s)
            progress.take_task(await self._client.get_task(GetTaskRequest(id=progress.task)))

    def _cancel(self, progress: "TaskProgress") -> None:
        """Tell the agent that nobody waits for a task any more; whether it listens is its own."""
        if not progress.task or progress.is_over:
            return

        async def cancel(name: str) -> None:
            from a2a.types import CancelTaskRequest

            with suppress(Exception):
                async with asyncio.timeout(_CANCEL_S):
                    await self._client.cancel_task(CancelTaskRequest(id=name))

        task = asyncio.create_task(cancel(progress.task), name=f"cancel task of {self._role}")
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    def _error(self, why: str) -> RemoteError:
        return RemoteError(f"the A2A agent that plays {self._role!r} ({self._options.url}): {why}")

    def _why(self, error: BaseException) -> str:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        said = " ".join(self._clean(str(error)).split())[:_WHY]
        return said if isinstance(error, ConfigError | EngineError) else f"{type(error).__name__}: {said}"

    def _clean(self, text: str) -> str:
        """Without the value of the key."""
        return text.replace(self._secret, f"[{self._options.key_env}]") if self._secret else text


class TaskProgress:
    """What an agent has said of one message.

    Attributes:
        task: the id of its task, empty before there is one, and where it answers with a message.
        is_over: whether nothing more is waited for; what comes later is not read.
    """

    def __init__(self) -> None:
        self.task, self.is_over = "", False
        self._artifacts: dict[str, list[Any]] = {}
        self._status: Any = None
        self._message: Any = None

    def take(self, event: Any) -> None:
        """One event of a stream."""
        kind = event.WhichOneof("payload")
        if kind == "message":
            self._message, self.is_over = event.message, True
        elif kind == "task":
            self.take_task(event.task)
        elif kind == "status_update":
            self.task = event.status_update.task_id or self.task
            self._take_status(event.status_update.status)
        elif kind == "artifact_update":
            update = event.artifact_update
            self.task = update.task_id or self.task
            parts = self._artifacts.setdefault(update.artifact.artifact_id, [])
            if not update.append:
                parts.clear()
            parts.extend(update.artifact.parts)

    def take_task(self, task: Any) -> None:
        """The whole task as it is now."""
        self.task = task.id or self.task
        if task.artifacts:
            self._artifacts = {artifact.artifact_id: [*artifact.parts] for artifact in task.artifacts}
        self._take_status(task.status)

    def _take_status(self, status: Any) -> None:
        from a2a.types import TaskState

        self._status = status
        under_way = (TaskState.TASK_STATE_SUBMITTED, TaskState.TASK_STATE_WORKING, TaskState.TASK_STATE_UNSPECIFIED)
        self.is_over = status.state not in under_way

    def text(self) -> str:
        """Of the artifacts, else of the message that came with the end.

        Raises:
            EngineError: the task did not come to a good end; says what the agent says of it.
        """
        from a2a.types import TaskState

        if self._message is not None:
            return _text(self._message.parts)
        said = _text(self._status.message.parts)
        if self._status.state != TaskState.TASK_STATE_COMPLETED:
            state = TaskState.Name(self._status.state).removeprefix("TASK_STATE_").lower().replace("_", " ")
            raise EngineError(f"its task ended as {state!r}" + (f": {said}" if said else ", and it does not say why"))
        return _text(part for parts in self._artifacts.values() for part in parts) if self._artifacts else said


def _text(parts: Iterable[Any]) -> str:
    """Parts as text: data as JSON; what is neither reads `[file]`."""
    from google.protobuf.json_format import MessageToDict

    said = []
    for part in parts:
        kind = part.WhichOneof("content")
        if kind == "text":
            said.append(part.text)
        elif kind == "data":
            said.append(json.dumps(MessageToDict(part.data), ensure_ascii=False))
        elif kind is not None:
            said.append("[file]")
    return "\n".join(said)


def _message(conversation: Sequence[Mapping[str, str]]) -> str:
    """A conversation as one text; where it has answers, each part says whose it is."""
    has_answers = any(one["role"] == "assistant" for one in conversation)
    return "\n\n".join(f"{one['role']}: {one['content']}" if has_answers else one["content"] for one in conversation)


def _http_client(options: RemoteAgent, secret: str) -> Any:
    import httpx

    headers = {"Accept-Encoding": "identity"}
    if secret:
        headers[options.header] = f"Bearer {secret}" if options.header == "Authorization" else secret
    return httpx.AsyncClient(
        headers=headers, timeout=None, follow_redirects=False, event_hooks={"response": [bounded_response]}
    )


def _usable(card: Any, url: str) -> Any:
    """The card with the interfaces alone that can be spoken to.

    Raises:
        ConfigError: there is none, or the agent needs more, or gives no text.
    """
    required = [extension.uri for extension in card.capabilities.extensions if extension.required]
    if required:
        raise ConfigError(f"it needs the extension {required[0]!r}, which mas does not have")
    modes = [*card.default_output_modes]
    if modes and not any(mode.startswith("text/") or mode == "application/json" or "*" in mode for mode in modes):
        raise ConfigError(f"it answers with {', '.join(modes)}, and a role needs text/plain or application/json")
    spoken = [one for one in card.supported_interfaces if _is_spoken(one.protocol_binding, one.protocol_version)]
    if not spoken:
        offered = ", ".join(f"{one.protocol_binding} {one.protocol_version}" for one in card.supported_interfaces)
        wanted = f"{' or '.join(_BINDINGS)} of version {' or '.join(_VERSIONS)}"
        raise ConfigError(f"its card offers {offered or 'no interface'}, and mas speaks {wanted}")
    here = [one for one in spoken if _origin(one.url) == _origin(url)]
    if not here:
        raise ConfigError(
            f"its card leads to another server, {spoken[0].url!r}: name the card at that server, written as it is there"
        )
    del card.supported_interfaces[:]
    card.supported_interfaces.extend(here)
    return card


def _is_spoken(binding: str, version: str) -> bool:
    return binding in _BINDINGS and (not version or ".".join(version.split(".")[:2]) in _VERSIONS)


def _origin(url: str) -> tuple[str, str | None, int | None]:
    """Scheme, host and port."""
    try:
        parts = urlsplit(url)
        return parts.scheme, parts.hostname, parts.port or {"http": 80, "https": 443}.get(parts.scheme)
    except ValueError:  # a port that is no number
        return "", None, None
