"""The engine that plays what an OpenAI-compatible server serves, token ids in and out. It publishes nothing."""

from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from types import MappingProxyType

import msgspec

from mas.config.servers import ServerOptions
from mas.core.engine import AdapterRef, Generation, Request
from mas.core.errors import UnknownAdapter
from mas.core.naming import did_you_mean
from mas.serving.check import ModelLimits
from mas.serving.in_flight import InFlight
from mas.serving.model import ModelText
from mas.serving.remote_completions import Completions
from mas.serving.remote_models import adapters_of, choose_model, context_of, list_models
from mas.serving.remote_server import RemoteServer


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
        if generation.adapter is not None:
            self._adapters[generation.adapter.name] = generation.adapter
            return generation
        return msgspec.structs.replace(generation, adapter=self._adapters.get(model))
