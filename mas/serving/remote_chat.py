"""The engine of models that exchange text: any OpenAI-compatible server with `/chat/completions`.

A prompt is a conversation, a completion is text with one token per character. The server says nothing of token ids, and
nothing is asked of log-probabilities: it cannot be trained on, and does not score.
"""

import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType
from typing import Any

import msgspec

from mas.config.servers import ServerOptions
from mas.core.concurrency import together
from mas.core.engine import AdapterRef, Generation, Request
from mas.core.errors import EngineError, UnknownAdapter
from mas.core.naming import did_you_mean
from mas.serving.in_flight import InFlight
from mas.serving.model_text import END, MessageTokenizer, ModelLimits, check_unrestricted
from mas.serving.remote_answers import check_adapter
from mas.serving.remote_completions import SEEDS
from mas.serving.remote_server import (
    NoSuchPath,
    RemoteServer,
    ServedModel,
    adapters_of,
    choose_model,
    list_models,
    read,
)

_PATH = "/chat/completions"


class _Message(msgspec.Struct):
    content: str | None = None


class _ChatChoice(msgspec.Struct):
    message: _Message | None = None
    delta: _Message | None = None
    finish_reason: str | None = None


class _Answer(msgspec.Struct):
    choices: tuple[_ChatChoice, ...]
    adapter: AdapterRef | None = None


class ChatEngine:
    """Satisfies `mas.core.engine.Engine` but for `score`. Made by `start`.

    `max_tokens` counts the server's own tokens, so that a completion may have more characters than that. Every
    completion that the model ended itself has the end token; no log-probabilities are known.
    """

    def __init__(self, server: RemoteServer, model: str, adapters: Mapping[str, AdapterRef]) -> None:
        self.tokenizer = MessageTokenizer()
        self.stop_ids: tuple[int, ...] = (END,)
        self.model = model
        self._server = server
        self._limits = ModelLimits(MessageTokenizer.size, sys.maxsize)
        self._adapters = dict(adapters)
        self._flights = InFlight()

    @classmethod
    async def start(cls, options: ServerOptions, place: str) -> "ChatEngine":
        """Speak to a server; the model is looked up in its list, if it has one.

        Args:
            place: where the options stand in the configuration; errors name it.

        Raises:
            ConfigError: the key is not set, or the server does not have the model. EngineError: no such server.
        """
        server = RemoteServer(options, place)
        try:
            models = await _listed(server)
            model = choose_model(models, server).id
        except BaseException:  # a cancelled start, too: no one else holds its connections
            await server.close()
            raise
        return cls(server, model, adapters_of(models))

    def adapters(self) -> Mapping[str, AdapterRef]:
        return MappingProxyType(self._adapters)

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        with self._flights.accepted():
            self._limits.check_request(request)
            model = self._known(request.adapter)
            calls = [self._complete(model, request, seed) for seed in request.seeds]
            return tuple(await together(calls, "remote-chat"))

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        with self._flights.accepted():
            self._limits.check_stream(request)
            model = self._known(request.adapter)
            body = self._body(model, request, request.seeds[0]) | {"stream": True}
            is_last = False
            async with aclosing(self._server.stream(_PATH, body)) as events:
                async for event in events:
                    answer = read(event, _Answer, self._server)
                    if answer.choices and not is_last:
                        choice = answer.choices[0]
                        is_last = choice.finish_reason is not None
                        yield self._generation(model, choice.delta, choice.finish_reason, answer.adapter)
            if not is_last:
                raise EngineError(f"{self._server.options.url}{_PATH}: the stream ended before the completion did")

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        raise EngineError(
            f"{self._server.options.url} exchanges text ({self._server.place}.api=chat) and cannot score tokens; "
            "vllm serve and mas serve can, with api=completions"
        )

    async def close(self) -> None:
        await self._flights.close()
        await self._server.close()

    async def _complete(self, model: str, request: Request, seed: int) -> Generation:
        answer = read(await self._server.post(_PATH, self._body(model, request, seed)), _Answer, self._server)
        if not answer.choices:
            raise EngineError(f"{self._server.options.url}{_PATH} answers without a choice")
        choice = answer.choices[0]
        return self._generation(model, choice.message, choice.finish_reason or "stop", answer.adapter)

    def _body(self, model: str, request: Request, seed: int) -> dict[str, Any]:
        sampling = request.sampling
        check_unrestricted(sampling)
        stop = [self.tokenizer.decode((token,)) for token in sampling.stop if token != END]
        body = {
            "model": model,
            "messages": self.tokenizer.messages(request.prompt_ids),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "seed": seed % SEEDS,
            "stop": stop or None,
        }
        return {name: value for name, value in (body | self._server.options.extra).items() if value is not None}

    def _generation(
        self, model: str, said: _Message | None, reason: str | None, adapter: AdapterRef | None
    ) -> Generation:
        """A text, or a piece of one (`reason` None: not the last)."""
        text = (said.content if said is not None else None) or ""
        ids = self.tokenizer.encode(text.encode(errors="replace").decode())  # JSON can hold halves of characters
        is_cut = reason == "length"
        check_adapter(adapter, model, self._server.options.url)
        if adapter is not None:
            self._adapters[adapter.name] = adapter
        return Generation(
            token_ids=ids if reason is None or is_cut else (*ids, END),
            logprobs=(),
            finish="" if reason is None else "length" if is_cut else "stop",
            adapter=adapter or self._adapters.get(model),
        )

    def _known(self, adapter: str | None) -> str:
        if adapter is not None and adapter not in self._adapters:
            raise UnknownAdapter(
                f"{self._server.options.url} has no adapter {adapter!r}. {did_you_mean(adapter, self._adapters)}"
            )
        return adapter or self.model


async def _listed(server: RemoteServer) -> tuple[ServedModel, ...]:
    """The server's models; for one without a list, the model of the options."""
    try:
        return await list_models(server)
    except NoSuchPath:
        if server.options.model is None:
            raise
        return (ServedModel(server.options.model),)
