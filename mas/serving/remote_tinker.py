"""The engine of a Tinker service: it samples through the SDK `tinker`, with weights that the service has.

Weights come as sampling clients of the SDK, one for each version, and never leave the service. What is not there on
purpose: limits on tokens, whose supports a service does not tell, and completions in pieces, which it does not send.
The SDK sends requests again and bounds how many are under way; the key is read from the environment once and shown by
nothing here.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from types import MappingProxyType
from typing import TypeVar

import httpx
import tinker
from tinker import types

from mas.config.servers import RemoteOptions
from mas.core.concurrency import together
from mas.core.engine import AdapterRef, Generation, Request
from mas.core.errors import ConfigError, EngineError, UnknownAdapter
from mas.core.naming import did_you_mean
from mas.serving.in_flight import InFlight
from mas.serving.model_text import ModelText, check_unrestricted
from mas.serving.remote_answers import check_generation, read_logprobs
from mas.serving.remote_server import key_of

T = TypeVar("T")
_log = logging.getLogger(__name__)
_PLACE = "engine.remote"
_NO_KEY = "tml-none"
"""Sent where no key is wanted: without one the SDK would look for keys that are meant for another server."""
_SEEDS = 2**31
_CONNECT_S = 10.0
_LONGEST = 500
"""Characters of a service's message that an error repeats."""


@contextmanager
def service_errors(url: str) -> Iterator[None]:
    """Within the block errors of the SDK are engine errors.

    Raises:
        EngineError: says the address and what the service or the SDK said.
    """
    try:
        yield
    except TimeoutError as error:
        raise EngineError(f"{url} did not answer in time ({_PLACE}.timeout_s)") from error
    except (tinker.TinkerError, ValueError, RuntimeError) as error:
        said = " ".join(str(error).split())[:_LONGEST] or type(error).__name__
        raise EngineError(f"{url}: {said}") from error


class TinkerEngine:
    """Satisfies `mas.core.engine.Engine`. Made by `start`.

    Attributes:
        service: of the SDK; training clients are made of it.
        base: samples with the bare base.
        model: the base, as the service calls it.
        url, timeout_s: of the options.
    """

    def __init__(
        self,
        service: tinker.ServiceClient,
        base: tinker.SamplingClient,
        text: ModelText,
        options: RemoteOptions,
        model: types.SupportedModel,
    ) -> None:
        self.service, self.base = service, base
        self.model = str(model.model_name)
        self.url, self.timeout_s = options.url, options.timeout_s
        self.tokenizer, self.stop_ids = text.tokenizer, text.stop_ids
        self._limits = text.limits.within(model.max_context_length)
        self._versions: dict[str, tuple[AdapterRef, tinker.SamplingClient]] = {}
        self._flights = InFlight()

    @classmethod
    async def start(
        cls, options: RemoteOptions, text: ModelText, path: str, saved: Mapping[str, str] = MappingProxyType({})
    ) -> "TinkerEngine":
        """Open a session of a service.

        Args:
            text: how the service's base reads text: the tokenizer is ours, the context is the shorter of both.
            path: `model.path`, the base's name where the options have none.
            saved: adapter -> the path of its saved weights, which are served from the beginning.

        Raises:
            ConfigError: the key is not set, or the service does not have the base.
            EngineError: there is no such service, or it does not have the saved weights.
        """
        key = key_of(options, _PLACE) or _NO_KEY
        await _check_reached(options.url)
        service = tinker.ServiceClient(base_url=options.url, api_key=key)
        try:
            with service_errors(options.url):
                async with asyncio.timeout(options.timeout_s):
                    rest = await asyncio.to_thread(lambda: tinker.RestClient(base_url=options.url, api_key=key))
                    model = _choose((await rest.get_server_capabilities()).supported_models, options, path)
                    name = str(model.model_name)
                    base = await (await asyncio.to_thread(lambda: service.create_sampling_client(base_model=name)))
                    engine = cls(service, base, text, options, model)
                    for adapter, place in saved.items():
                        engine.publish(adapter, await service.create_sampling_client(model_path=place))
        except BaseException:  # a cancelled start, too: no one else ends its session
            with suppress(tinker.TinkerError, RuntimeError):
                await service.close("errored")
            raise
        return engine

    def publish(self, name: str, client: tinker.SamplingClient, version: int | None = None) -> AdapterRef:
        """Sample with this client for a name from now on, as its next version or the given one."""
        before = self._versions.get(name)
        number = (-1 if before is None else before[0].version) + 1 if version is None else version
        ref = AdapterRef(name, number)
        self._versions[name] = (ref, client)
        return ref

    def adapters(self) -> Mapping[str, AdapterRef]:
        return MappingProxyType({name: ref for name, (ref, _) in self._versions.items()})

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        with self._flights.accepted():
            self._limits.check_request(request)
            check_unrestricted(request.sampling)
            ref, client = self._client(request.adapter)
            calls = [self._draw(ref, client, request, seed) for seed in request.seeds]
            return tuple(await together(calls, "tinker-sample"))

    async def _draw(
        self, ref: AdapterRef | None, client: tinker.SamplingClient, request: Request, seed: int
    ) -> Generation:
        sampling = request.sampling
        params = types.SamplingParams(
            max_tokens=sampling.max_tokens,
            temperature=sampling.temperature,
            seed=seed % _SEEDS,
            stop=list(sampling.stop),
        )
        prompt = types.ModelInput.from_ints(list(request.prompt_ids))
        (drawn,) = (await self.answered(lambda: client.sample(prompt, 1, params))).sequences
        logprobs = drawn.logprobs or ()
        if len(logprobs) != len(drawn.tokens):
            raise EngineError(f"{self.url}: {len(logprobs)} log-probabilities for {len(drawn.tokens)} tokens")
        made = Generation(
            token_ids=tuple(drawn.tokens),
            logprobs=read_logprobs(logprobs, self.url),
            finish="stop" if drawn.stop_reason == "stop" else "length",
            adapter=ref,
        )
        return check_generation(made, request, self._limits, self.url)

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        """As in the contract, in one piece."""
        self._limits.check_stream(request)
        (whole,) = await self.generate(request)
        yield whole

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        with self._flights.accepted():
            self._limits.check_score(prompt_ids, completion_ids)
            _, client = self._client(adapter)
            ids = types.ModelInput.from_ints([*prompt_ids, *completion_ids])
            found = await self.answered(lambda: client.compute_logprobs(ids))
            scores = [value for value in found[len(prompt_ids) :] if value is not None]
            if len(scores) != len(completion_ids):
                raise EngineError(f"{self.url} scored {len(scores)} of {len(completion_ids)} tokens")
            return read_logprobs(scores, self.url)

    async def close(self) -> None:
        if self._flights.is_closed:
            return
        await self._flights.close()
        try:
            await self.answered(lambda: self.service.close("success"))
        except EngineError as error:
            _log.warning("the session stays open until the service ends it: %s", error)

    async def answered(self, ask: Callable[[], Awaitable[T]]) -> T:
        """What the service answers.

        Raises:
            EngineError: an error, or nothing in time.
        """
        with service_errors(self.url):
            async with asyncio.timeout(self.timeout_s):
                return await ask()

    def _client(self, adapter: str | None) -> tuple[AdapterRef | None, tinker.SamplingClient]:
        if adapter is None:
            return None, self.base
        name, at, number = adapter.partition("@")
        ref, client = self._versions.get(name, (None, self.base))
        if ref is None or (at and number != str(ref.version)):
            raise UnknownAdapter(f"no adapter {adapter!r} is published. {did_you_mean(adapter, self._versions)}")
        return ref, client


async def _check_reached(url: str) -> None:
    """Refuse an address where nothing answers, which the SDK would ask for minutes.

    Raises:
        EngineError: nothing answers, or no Tinker service does.
    """
    try:
        async with httpx.AsyncClient(timeout=_CONNECT_S) as http:
            answer = await http.get(f"{url.rstrip('/')}/api/v1/healthz")
    except httpx.HTTPError as error:
        raise EngineError(f"{url} cannot be reached ({_PLACE}.url): {error or type(error).__name__}") from error
    if answer.status_code != httpx.codes.OK:
        raise EngineError(f"{url} is no Tinker service: /api/v1/healthz answers {answer.status_code} ({_PLACE}.url)")


def _choose(models: Sequence[types.SupportedModel], options: RemoteOptions, path: str) -> types.SupportedModel:
    """The base that the options name, else that of `model.path`, else the only one.

    Raises:
        ConfigError: the service does not list it.
    """
    listed = {str(one.model_name): one for one in models if one.model_name is not None}
    name = options.model or path
    if options.model is None and name not in listed and len(listed) == 1:
        name = next(iter(listed))
    if name not in listed:
        raise ConfigError(
            f"{options.url} has no base {name!r}: set {_PLACE}.model to its name there. {did_you_mean(name, listed)}"
        )
    return listed[name]
