"""The engine of an OpenAI-compatible server, token ids in and out over `/completions`. It publishes nothing.

The dialect is the one that `vllm serve` and `mas serve` share. One HTTP request per seed. Log-probabilities are the
server's: a `vllm serve` must run with `--logprobs-mode processed_logprobs`, as docs/serving.md has it, and reports
greedy draws at temperature 1.
"""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

import msgspec

from mas.config.servers import ServerOptions
from mas.core.concurrency import together
from mas.core.engine import AdapterRef, Generation, Request
from mas.core.errors import EngineError, UnknownAdapter
from mas.core.naming import did_you_mean
from mas.serving.in_flight import InFlight
from mas.serving.model_text import ModelLimits, ModelText, check_unrestricted
from mas.serving.remote_answers import check_adapter, check_generation, read_logprobs
from mas.serving.remote_server import RemoteServer, adapters_of, choose_model, context_of, list_models, read

_PATH = "/completions"
SEEDS = 2**63
"""Servers read seeds as signed 64-bit numbers."""


class _Logprobs(msgspec.Struct):
    token_logprobs: tuple[float | None, ...]


class _Scored(msgspec.Struct):
    logprob: float


class _CompletionChoice(msgspec.Struct):
    token_ids: tuple[int, ...] | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    prompt_logprobs: tuple[dict[int, _Scored] | None, ...] | None = None


class CompletionAnswer(msgspec.Struct):
    """What is read of an answer. `adapter`: the version that made it; servers other than `mas serve` do not say."""

    choices: tuple[_CompletionChoice, ...]
    adapter: AdapterRef | None = None


@dataclass(frozen=True, slots=True)
class Completions:
    """Generates and scores under a model that the server lists.

    Attributes:
        limits: what the server's model takes; checked by the callers.
        always: further fields of every request.
    """

    server: RemoteServer
    limits: ModelLimits
    always: Mapping[str, Any]

    async def generate(self, model: str, request: Request) -> tuple[Generation, ...]:
        """One completion per seed, all asked for at once; the first failure cancels the others.

        Raises:
            UnknownAdapter: the server has no such model. EngineError: it gave no completion.
        """
        calls = [self._complete(model, request, seed) for seed in request.seeds]
        return tuple(await together(calls, "remote-completion"))

    async def _complete(self, model: str, request: Request, seed: int) -> Generation:
        answer = read(await self.server.post(_PATH, self._body(model, request, seed)), CompletionAnswer, self.server)
        return self._generation(request, answer, is_last=True)

    async def stream(self, model: str, request: Request) -> AsyncGenerator[Generation]:
        """The completion of the one seed in pieces.

        Raises:
            UnknownAdapter: the server has no such model. EngineError: it did not finish the completion.
        """
        body = self._body(model, request, request.seeds[0]) | {"stream": True}
        is_last, count = False, 0
        async with aclosing(self.server.stream(_PATH, body)) as events:
            async for event in events:
                answer = read(event, CompletionAnswer, self.server)
                if answer.choices and not is_last:
                    is_last = answer.choices[0].finish_reason is not None
                    piece = self._generation(request, answer, is_last=is_last, before=count)
                    count += len(piece.token_ids)
                    yield piece
        if not is_last:
            raise EngineError(f"{self.server.options.url}{_PATH}: the stream ended before the completion did")

    async def score(self, model: str, prompt_ids: Sequence[int], completion_ids: Sequence[int]) -> tuple[float, ...]:
        """Log-probabilities at temperature 1 of the completion's tokens.

        Raises:
            EngineError: they fill the context, or the server did not score them.
        """
        ids = [*prompt_ids, *completion_ids]
        if len(ids) == self.limits.context:
            raise EngineError(
                f"{len(ids)} tokens fill the context, and the server draws one behind what it scores: score fewer"
            )
        body = {"model": model, "prompt": ids, "max_tokens": 1, "temperature": 1.0, "prompt_logprobs": 0}
        answer = read(await self.server.post(_PATH, {**self.always, **body}), CompletionAnswer, self.server)
        found = (answer.choices[0].prompt_logprobs or ()) if answer.choices else ()
        entries = found[len(prompt_ids) :]
        if len(found) != len(ids) or not all(
            entry is not None and token in entry for entry, token in zip(entries, completion_ids, strict=True)
        ):
            raise EngineError(f"{self.server.options.url}{_PATH} returned no prompt_logprobs of these tokens")
        scores = tuple(entry[token].logprob for entry, token in zip(entries, completion_ids, strict=True) if entry)
        return read_logprobs(scores, f"{self.server.options.url}{_PATH}")

    def _body(self, model: str, request: Request, seed: int) -> dict[str, Any]:
        sampling = request.sampling
        check_unrestricted(sampling)
        return {
            **self.always,
            "model": model,
            "prompt": list(request.prompt_ids),
            "max_tokens": sampling.max_tokens,
            "temperature": sampling.temperature,
            "top_p": 1.0,
            "seed": seed % SEEDS,
            "stop_token_ids": list(sampling.stop),
            "ignore_eos": True,
            "logprobs": 0,
            "return_token_ids": True,
        }

    def _generation(self, request: Request, answer: CompletionAnswer, *, is_last: bool, before: int = 0) -> Generation:
        url = f"{self.server.options.url}{_PATH}"
        choice = answer.choices[0] if answer.choices else _CompletionChoice()
        ids, logprobs = choice.token_ids, choice.logprobs.token_logprobs if choice.logprobs is not None else ()
        if ids is None:
            raise EngineError(
                f"{url} returned no token ids: only vllm serve and mas serve have them; other servers are spoken to "
                f"with {self.server.place}.api=chat"
            )
        values = read_logprobs([value for value in logprobs if value is not None], url)
        if len(values) != len(ids):
            raise EngineError(f"{url} returned {len(values)} log-probabilities for {len(ids)} tokens")
        is_stopped = bool(ids) and ids[-1] in request.sampling.stop
        finish = "" if not is_last else "stop" if is_stopped else "length"
        made = Generation(token_ids=ids, logprobs=values, finish=finish, adapter=answer.adapter)
        return check_generation(made, request, self.limits, url, before)


class OpenAIEngine:
    """Satisfies `mas.core.engine.Engine`. Made by `start`.

    An adapter is asked for by its name on the server; no adapter means the model of the options. Which versions are
    current is known from the server's list, from `refresh`, and from the answers themselves.
    """

    def __init__(self, server: RemoteServer, text: ModelText, limits: ModelLimits, model: str) -> None:
        self.tokenizer = text.tokenizer
        self.stop_ids = text.stop_ids
        self.model = model
        self._server = server
        self._completions = Completions(server, limits, {})
        self._adapters: dict[str, AdapterRef] = {}
        self._flights = InFlight()

    @classmethod
    async def start(cls, options: ServerOptions, text: ModelText, place: str = "engine.remote") -> "OpenAIEngine":
        """Speak to a server, whose list of models is read first.

        Args:
            text: how the server's base reads text: the tokenizer is ours, the context is the shorter of both.
            place: where the options stand in the configuration; errors name it.

        Raises:
            ConfigError: the key is not set, or the server does not have the model. EngineError: no such server.
        """
        server = RemoteServer(options, place)
        try:
            models = await list_models(server)
            model = choose_model(models, server)
        except BaseException:  # a cancelled start, too: no one else holds its connections
            await server.close()
            raise
        limits = text.limits.within(context_of(model, models))
        engine = cls(server, text, limits, model.id)
        engine._adapters.update(adapters_of(models))
        return engine

    def adapters(self) -> Mapping[str, AdapterRef]:
        return MappingProxyType(self._adapters)

    async def refresh(self) -> Mapping[str, AdapterRef]:
        """The adapters that the server has now.

        Raises:
            EngineError: the list cannot be had.
        """
        with self._flights.accepted():
            return await self._refreshed()

    async def _refreshed(self) -> Mapping[str, AdapterRef]:
        self._adapters = dict(adapters_of(await list_models(self._server)))
        return self.adapters()

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        with self._flights.accepted():
            self._completions.limits.check_request(request)
            model = await self._known(request.adapter)
            try:
                made = await self._completions.generate(model, request)
            except UnknownAdapter as error:
                raise await self._gone(model, error) from None
            return tuple(self._signed(generation, model) for generation in made)

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        with self._flights.accepted():
            self._completions.limits.check_stream(request)
            model = await self._known(request.adapter)
            try:
                async with aclosing(self._completions.stream(model, request)) as pieces:
                    async for piece in pieces:
                        yield self._signed(piece, model)
            except UnknownAdapter as error:
                raise await self._gone(model, error) from None

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        with self._flights.accepted():
            self._completions.limits.check_score(prompt_ids, completion_ids)
            model = await self._known(adapter)
            try:
                return await self._completions.score(model, prompt_ids, completion_ids)
            except UnknownAdapter as error:
                raise await self._gone(model, error) from None

    async def close(self) -> None:
        await self._flights.close()
        await self._server.close()

    async def _known(self, adapter: str | None) -> str:
        """What to ask the server for; an adapter that came after the list was read is found by reading it again."""
        if adapter is None:
            return self.model
        if adapter not in self._adapters and adapter not in await self._refreshed():
            raise UnknownAdapter(
                f"{self._server.options.url} has no adapter {adapter!r}. {did_you_mean(adapter, self._adapters)}"
            )
        return adapter

    async def _gone(self, model: str, error: UnknownAdapter) -> UnknownAdapter:
        """The server has dropped a model that it listed: say what it has now."""
        names = [served.id for served in await list_models(self._server)]
        self._adapters.pop(model, None)
        return UnknownAdapter(f"{error}. {did_you_mean(model, names)}")

    def _signed(self, generation: Generation, model: str) -> Generation:
        """With the version that made it: the one that the server says, else the one that it listed."""
        check_adapter(generation.adapter, model, self._server.options.url)
        if generation.adapter is not None:
            self._adapters[generation.adapter.name] = generation.adapter
            return generation
        return msgspec.structs.replace(generation, adapter=self._adapters.get(model))
