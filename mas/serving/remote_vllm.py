"""A `vllm serve` in another process or on another machine, to which a run publishes its adapters.

Versions are loaded and unloaded while the server runs, each under a name that is never used again, by any run, so that
no cache of the server mixes two of them. Their files lie where the server can read them. The bare base is asked for as
an adapter of zeros (`mas.serving.publication`): a server on a CPU mixes it wrongly with adapters otherwise.
"""

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import msgspec

from mas.config.servers import RemoteOptions
from mas.core.engine import AdapterRef, Generation, Request
from mas.core.errors import ConfigError, EngineError, EngineLost, NotServed, UnknownAdapter
from mas.serving.adapter_files import VersionFiles
from mas.serving.in_flight import InFlight
from mas.serving.model import BaseModel
from mas.serving.publication import AdapterVersion, bare_version, check_version
from mas.serving.remote_completions import Completions
from mas.serving.remote_server import NoSuchPath, RemoteServer, choose_model, context_of, list_models
from mas.serving.store import AdapterStore

T = TypeVar("T")
_log = logging.getLogger(__name__)
_PLACE = "engine.remote"
_PAUSE_S = 1.0
"""Between looks at a server that is gone."""
_ALWAYS = {"top_k": 0, "min_p": 0.0, "repetition_penalty": 1.0}
"""Said in every request: what a server would do by default may be something that a loss cannot account for."""


class RemoteVllmEngine:
    """Satisfies `mas.core.engine.Engine`. Made by `start`.

    A server that was started anew and has forgotten a version is given it again, and passes its canary again; then the
    request is sent once more. As
    one of several replicas it counts as lost instead: it is to get all versions and to pass the canary first.
    """

    reads_files = True

    def __init__(
        self, server: RemoteServer, base: BaseModel, completions: Completions, *, is_replica: bool = False
    ) -> None:
        shared = server.options.shared_dir if isinstance(server.options, RemoteOptions) else None
        self.shared_dir = None if shared is None else Path(shared)
        self.base = base
        self.limits = completions.limits
        self.tokenizer = base.tokenizer
        self.stop_ids = base.stop_ids
        self.origin = base.origin
        self.dtype: str = base.options.dtype
        self.store = AdapterStore(self, files=self.shared_dir)
        self._files = VersionFiles(self.shared_dir)
        self._bare = bare_version(base, self._files)
        self._server = server
        self._is_replica = is_replica
        self._completions = completions
        self._run = secrets.token_hex(6)
        self._reloading = asyncio.Lock()
        self._scoring = asyncio.Lock()
        self._flights = InFlight()

    @classmethod
    async def start(cls, base: BaseModel, options: RemoteOptions, *, is_replica: bool = False) -> "RemoteVllmEngine":
        """Speak to a server that serves the same base.

        Args:
            is_replica: it is one of several that hold the same versions.

        Raises:
            ConfigError: the key is not set, the server does not have the model, or `shared_dir` is no directory.
            EngineError: there is no such server, or adapters cannot be loaded into it.
        """
        _check_shared(options)
        server = RemoteServer(options, _PLACE)
        engine: RemoteVllmEngine | None = None
        try:
            models = await list_models(server)
            limits = base.limits.within(context_of(choose_model(models, server), models))
            await _check_loads(server)
            engine = cls(server, base, Completions(server, limits, _ALWAYS), is_replica=is_replica)
            await engine.load(engine._bare)
        except BaseException:  # a cancelled start, too: no one else holds its connections
            await (engine or server).close()
            raise
        return engine

    def adapters(self) -> Mapping[str, AdapterRef]:
        return self.store.current()

    async def load(self, version: AdapterVersion) -> None:
        """Make the server read the version's files."""
        check_version(self.base.bank, version)
        body = {"lora_name": self._name(version), "lora_path": str(version.path)}
        try:
            await self._alive(self._server.post("/load_lora_adapter", body, is_json=False))
        except (NoSuchPath, EngineLost):
            raise
        except UnknownAdapter as error:
            raise EngineError(
                f"the server cannot read adapter {version.ref} ({error}). Its files must lie where the server sees "
                f"them under the same path: set {_PLACE}.shared_dir to a directory that both machines share"
            ) from None
        except EngineError as error:
            if "already been loaded" not in str(error):  # by an attempt whose answer was lost: the name is unique
                raise EngineError(f"the server cannot load adapter {version.ref}: {error}") from None

    async def unload(self, version: AdapterVersion) -> None:
        if not self._flights.is_closed:
            await self._forget(version)

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        with self._flights.accepted():
            self._completions.limits.check_request(request)
            async with self.store.lease(request.adapter) as version:
                return await self.generate_version(version, request)

    async def generate_version(self, version: AdapterVersion | None, request: Request) -> tuple[Generation, ...]:
        made = await self._kept(version, lambda model: self._completions.generate(model, request))
        return tuple(_signed(generation, version) for generation in made)

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        """As in the contract. A stream does not survive its server, since its reader has tokens already."""
        with self._flights.accepted():
            self._completions.limits.check_stream(request)
            async with (
                self.store.lease(request.adapter) as version,
                aclosing(self._completions.stream(self._name(version), request)) as pieces,
            ):
                async for piece in pieces:
                    yield _signed(piece, version)

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        with self._flights.accepted():
            async with self.store.lease(adapter) as version:
                return await self.score_version(version, prompt_ids, completion_ids)

    async def score_version(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int]
    ) -> tuple[float, ...]:
        self._completions.limits.check_score(prompt_ids, completion_ids)
        return await self._kept(version, lambda model: self._score(model, prompt_ids, completion_ids))

    async def _score(self, model: str, prompt_ids: Sequence[int], completion_ids: Sequence[int]) -> tuple[float, ...]:
        # vLLM's CPU build (0.32) ends where it scores several prompts under adapters in one pass.
        async with self._scoring:
            return await self._completions.score(model, prompt_ids, completion_ids)

    async def restart(self) -> None:
        """Wait until the server answers again, for `timeout_s` at most.

        Raises:
            EngineError: it does not, or loads no adapters.
        """
        limit, url = self._server.options.timeout_s, self._server.options.url
        try:
            async with asyncio.timeout(limit):
                while not await self._answers():  # noqa: ASYNC110 - what it waits for is a server elsewhere
                    await asyncio.sleep(_PAUSE_S)
        except TimeoutError:
            raise EngineError(f"{url} does not answer again within {limit:g} s ({_PLACE}.timeout_s)") from None
        await self.load(self._bare)

    async def _answers(self) -> bool:
        try:
            await list_models(self._server)
        except EngineError:  # also a proxy's, as long as its server starts
            return False
        return not await self._server.is_dead()

    async def close(self) -> None:
        """Wait for what is in flight, and take this run's adapters out of the server."""
        if self._flights.is_closed:
            return
        await self._flights.close()
        try:
            for version in (self._bare, *self.store.loaded()):
                await self._forget(version)
        except EngineError as error:
            _log.warning("adapters stay in the server until it ends: %s", error)
        finally:
            self.store.close()
            self._files.close()
            await self._server.close()

    async def _forget(self, version: AdapterVersion) -> None:
        with suppress(UnknownAdapter):  # of a server that was started anew since
            body = {"lora_name": self._name(version)}
            await self._alive(self._server.post("/unload_lora_adapter", body, is_json=False))

    async def _kept(self, version: AdapterVersion | None, call: Callable[[str], Awaitable[T]]) -> T:
        """The result of a call under a version; a server that has forgotten it is given it again, once, and passes the
        canary once more: it may have come back with another base.

        Raises:
            EngineLost: the server is gone, or, of a replica, has forgotten it. NotServed: it computes something else.
        """
        model = self._name(version)
        with suppress(UnknownAdapter):
            return await self._alive(call(model))
        if self._is_replica:
            raise EngineLost(f"{self._server.options.url} was started again: it has forgotten {model}")
        async with self._reloading:
            if model not in [served.id for served in await list_models(self._server)]:
                await self.load(version or self._bare)
                if version is not None:
                    await self._prove(version)
        return await self._alive(call(model))

    async def _prove(self, version: AdapterVersion) -> None:
        try:
            await self.store.prove(self._server.options.url, _Reloaded(self), version)
        except NotServed:
            await self._forget(version)  # whoever asks next must find this out, too
            raise

    async def _alive(self, answer: Awaitable[T]) -> T:
        """The answer of a server that is alive.

        Raises:
            EngineLost: the server is gone, or its engine process is. EngineError: it answers with an error.
        """
        try:
            return await answer
        except (EngineLost, NoSuchPath, UnknownAdapter):
            raise
        except EngineError as error:
            if await self._server.is_dead():
                raise EngineLost(f"vLLM's engine process has died there ({error})") from error
            raise

    def _name(self, version: AdapterVersion | None) -> str:
        """What the server knows a version by: unique among this run and all others."""
        version = version or self._bare
        return f"{version.ref}-{self._run}-{version.number}"


@dataclass(frozen=True, slots=True)
class _Reloaded:
    """A server as the canary sees it while a version is loaded into it again: whatever it forgets now is an error."""

    engine: RemoteVllmEngine

    @property
    def dtype(self) -> str:
        return self.engine.dtype

    async def score_version(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int]
    ) -> tuple[float, ...]:
        return await self.engine._score(self.engine._name(version), prompt_ids, completion_ids)


def _signed(generation: Generation, version: AdapterVersion | None) -> Generation:
    return msgspec.structs.replace(generation, adapter=None if version is None else version.ref)


def _check_shared(options: RemoteOptions) -> None:
    if options.shared_dir is not None and not Path(options.shared_dir).is_dir():
        raise ConfigError(
            f"{_PLACE}.shared_dir={options.shared_dir} is no directory here: make one that the server sees under the "
            "same path"
        )


async def _check_loads(server: RemoteServer) -> None:
    """Find out whether adapters can be loaded, by unloading one that was never there.

    Raises:
        EngineError: they cannot.
    """
    try:
        with suppress(UnknownAdapter):
            await server.post("/unload_lora_adapter", {"lora_name": f"none-{secrets.token_hex(6)}"}, is_json=False)
    except NoSuchPath:
        raise EngineError(
            f"{server.options.url} does not load adapters while it runs: start it with the environment variable "
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING=True and with --enable-lora (docs/serving.md has the whole command)"
        ) from None
