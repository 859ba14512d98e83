"""vLLM in this process's service: every role's adapter resident and mixed in one batch, versions never overwritten.

What training relies on is fixed here and refused in `engine.vllm`: token ids in and out, log-probabilities of the
distribution that was sampled from, no sampling that a loss cannot account for, and a unique name, number and path per
adapter version, so that the prefix cache never mixes two of them.

Needs `mas[vllm]`; nothing here is imported without it. No usage statistics are sent.
"""

import asyncio
import logging
import math
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from typing import Any, TypeVar

from mas.config.options import EngineOptions
from mas.core.concurrency import together
from mas.core.engine import AdapterRef, Generation, Request, Sampling, TokenScores
from mas.core.errors import EngineError, EngineLost, ModelError
from mas.serving.adapter_files import VersionFiles
from mas.serving.grammar import Grammars
from mas.serving.in_flight import InFlight
from mas.serving.model import BaseModel
from mas.serving.publication import AdapterVersion, bare_version, check_version
from mas.serving.store import AdapterStore
from mas.serving.vllm_cpu_lora import CpuLora
from mas.serving.vllm_options import CPU_LORA, Supports, check_known, needs_bare, restricted_options, vllm_arguments

T = TypeVar("T")
_log = logging.getLogger(__name__)


class VllmEngine:
    """Satisfies `mas.core.engine.Engine`. Made by `start`; one per process and model.

    If vLLM's engine dies it is started again, every loaded version is loaded again, and requests in flight (but not
    streams) are sent again, `EngineOptions.restarts` times in all; after that every request fails with the cause.

    Attributes:
        restarts: how often it was started again.
        is_lost: it died once more, and stays dead.
    """

    reads_files = True
    restricts = True

    def __init__(self, base: BaseModel, options: EngineOptions, arguments: Any, llm: Any) -> None:
        self.base = base
        self.options = options
        self.tokenizer = base.tokenizer
        self.stop_ids = base.stop_ids
        self.origin = base.origin
        self.dtype: str = base.options.dtype
        self.store = AdapterStore(self)
        self._loaded: dict[int, AdapterVersion] = {}
        self._files = VersionFiles()
        self._bare = bare_version(base, self._files) if needs_bare(base, arguments.worker_extension_cls) else None
        self.restarts = 0
        self.is_lost = False
        self._arguments = arguments
        self._llm = llm
        self._requests = 0
        self._restarting = asyncio.Lock()
        self._flights = InFlight()
        self._grammars = Grammars(base.text)

    @classmethod
    async def start(cls, base: BaseModel, options: EngineOptions, *, rank: int) -> "VllmEngine":
        """Start vLLM for the base's directory or hub id; takes half a minute or more.

        Args:
            rank: the largest rank of the adapters to come.

        Raises:
            ModelError: vLLM is not installed, or cannot serve the model. ConfigError: an impossible option.
        """
        arguments = vllm_arguments(base, options, rank)
        return cls(base, options, arguments, await _start(base, arguments))

    def adapters(self) -> Mapping[str, AdapterRef]:
        return self.store.current()

    async def load(self, version: AdapterVersion) -> None:
        """Make vLLM read the version's files; a version that is loaded stays as it is."""
        check_version(self.base.bank, version)
        if version.weights.options.rank > self._arguments.max_lora_rank:
            raise EngineError(
                f"adapter {version.ref} has rank {version.weights.options.rank}; the engine was started for "
                f"at most {self._arguments.max_lora_rank}"
            )
        try:
            done = await self._guarded(lambda llm: llm.add_lora(_lora(version)))
        except EngineError:
            raise
        except Exception as error:
            raise EngineError(f"vLLM cannot load adapter {version.ref}: {error}") from error
        if not done:
            raise EngineError(f"vLLM did not load adapter {version.ref}")
        self._loaded[version.number] = version

    async def unload(self, version: AdapterVersion) -> None:
        self._loaded.pop(version.number, None)
        if not self._flights.is_closed:
            await self._guarded(lambda llm: llm.remove_lora(version.number))

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        with self._flights.accepted():
            self.base.limits.check_request(request)
            async with self.store.lease(request.adapter) as version:
                return await self.generate_version(version, request)

    async def generate_version(self, version: AdapterVersion | None, request: Request) -> tuple[Generation, ...]:
        await self._check_restricted(request.sampling)
        calls = [self._complete(request, seed, version) for seed in request.seeds]
        return tuple(await together(calls, "vllm-completion"))

    async def stream(self, request: Request) -> AsyncGenerator[Generation]:
        """As in the contract. A stream that vLLM does not survive ends with an EngineError, since its reader has tokens
        already; what comes after it meets a vLLM that was started again."""
        with self._flights.accepted():
            self.base.limits.check_stream(request)
            await self._check_restricted(request.sampling)
            async with (
                self.store.lease(request.adapter) as version,
                aclosing(self._pieces(request, version)) as pieces,
            ):
                async for piece in pieces:
                    yield piece

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        with self._flights.accepted():
            async with self.store.lease(adapter) as version:
                return await self.score_version(version, prompt_ids, completion_ids)

    async def score_alternatives(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None, *, count: int
    ) -> TokenScores:
        with self._flights.accepted():
            async with self.store.lease(adapter) as version:
                return await self._scores(version, prompt_ids, completion_ids, count)

    async def score_version(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int]
    ) -> tuple[float, ...]:
        return (await self._scores(version, prompt_ids, completion_ids, 0)).logprobs

    async def _scores(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int], count: int
    ) -> TokenScores:
        self.base.limits.check_score(prompt_ids, completion_ids, count)
        ids = [*prompt_ids, *completion_ids]
        if len(ids) == self.base.limits.context:
            raise EngineError(
                f"{len(ids)} tokens fill the context, and vLLM draws one behind what it scores: score fewer"
            )
        options = {"max_tokens": 1, "prompt_logprobs": count, "temperature": 1.0}
        output = await self._guarded(lambda llm: self._last(llm, ids, options, version))
        found = output.prompt_logprobs[len(prompt_ids) :]
        return TokenScores(
            logprobs=tuple(entry[token].logprob for entry, token in zip(found, completion_ids, strict=True)),
            alternatives=_likeliest(found, count),
        )

    async def close(self) -> None:
        try:
            if left := await self._flights.close():
                _log.warning("closing vLLM with %d requests in flight", left)
        finally:
            llm, self._llm = self._llm, None
            if llm is not None:
                llm.shutdown()
                self.store.close()
                self._files.close()

    async def _check_restricted(self, sampling: Sampling) -> None:
        check_known(sampling)
        if sampling.grammar is not None:
            self._grammars.check_vllm()
            if not self._grammars.knows(sampling.grammar):
                await asyncio.to_thread(self._grammars.matcher, sampling.grammar)

    def _supports(self, request: Request) -> Supports:
        return Supports(request.sampling, self._grammars, self.base.limits.vocabulary)

    async def _complete(self, request: Request, seed: int, version: AdapterVersion | None) -> Generation:
        options = _sampling(request, seed)
        output = await self._guarded(lambda llm: self._last(llm, request.prompt_ids, options, version))
        return _generation(request, output.outputs[0], version, self._supports(request))

    async def _pieces(self, request: Request, version: AdapterVersion | None) -> AsyncGenerator[Generation]:
        from vllm.sampling_params import RequestOutputKind
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        options = _sampling(request, request.seeds[0]) | {"output_kind": RequestOutputKind.DELTA}
        supports = self._supports(request)
        try:
            async with aclosing(self._outputs(self._llm, request.prompt_ids, options, version)) as outputs:
                async for output in outputs:
                    yield _generation(request, output.outputs[0], version, supports)
        except (EngineDeadError, EngineGenerateError, ValueError) as error:
            raise EngineError(f"vLLM could not serve the stream to its end: {error}") from error

    async def _last(self, llm: Any, ids: Sequence[int], options: Mapping[str, Any], version: Any) -> Any:
        last = None
        async for output in self._outputs(llm, ids, options, version):
            last = output
        return last

    def _outputs(
        self, llm: Any, ids: Sequence[int], options: Mapping[str, Any], version: AdapterVersion | None
    ) -> AsyncGenerator[Any]:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self._requests += 1
        version = version or self._bare  # where vLLM needs it, the bare base is an adapter, too (`bare_version`)
        usual = {"detokenize": False, "top_p": 1.0, "top_k": 0, "output_kind": RequestOutputKind.FINAL_ONLY}
        outputs: AsyncGenerator[Any] = llm.generate(
            {"prompt_token_ids": list(ids)},
            SamplingParams(**(usual | dict(options))),
            request_id=f"mas-{self._requests}",
            lora_request=None if version is None else _lora(version),
        )
        return outputs

    async def _guarded(self, call: Callable[[Any], Awaitable[T]]) -> T:
        """The result of a call on a living vLLM: one that died is started again, and the call made again."""
        from vllm.v1.engine.exceptions import EngineDeadError, EngineGenerateError

        try:
            while True:
                llm = self._llm
                try:
                    return await call(llm)
                except EngineDeadError as error:
                    await self._restart(llm, error)
        except EngineGenerateError as error:
            raise EngineError(f"vLLM could not serve the request: {error.__cause__ or error}") from error
        except ValueError as error:
            raise EngineError(f"vLLM refuses the request: {error}") from error

    async def _restart(self, dead: Any, cause: Exception) -> None:
        """Start vLLM again with all versions that were loaded. This blocks the event loop."""
        from vllm.v1.engine.exceptions import EngineDeadError

        async with self._restarting:
            while self._llm is dead:
                if self.restarts >= self.options.restarts or self._llm is None:
                    self.is_lost = True
                    raise EngineLost(f"vLLM died, and was restarted {self.restarts} times before: {cause}") from cause
                self.restarts += 1
                dead.shutdown()
                try:
                    fresh = await _start(self.base, self._arguments)
                except ModelError as error:  # such as memory that the dead one has not freed yet
                    cause = error
                    continue
                try:
                    for version in [*self._loaded.values()]:
                        await fresh.add_lora(_lora(version))
                    self._llm = fresh
                except EngineDeadError as error:
                    self._llm = dead = fresh
                    cause = error


def _lora(version: AdapterVersion) -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest(f"{version.ref}-{version.number}", version.number, str(version.path))


def _generation(request: Request, completion: Any, version: AdapterVersion | None, supports: Supports) -> Generation:
    ids = tuple(completion.token_ids)
    is_stopped = bool(ids) and ids[-1] in request.sampling.stop
    return Generation(
        token_ids=ids,
        logprobs=tuple(min(entry[token].logprob, 0.0) for entry, token in zip(completion.logprobs, ids, strict=True)),
        finish="" if completion.finish_reason is None else "stop" if is_stopped else "length",
        adapter=None if version is None else version.ref,
        supports=_followed(supports, ids, completion.logprobs),
        alternatives=_likeliest(completion.logprobs, request.sampling.alternatives),
    )


def _likeliest(logprobs: Any, count: int) -> tuple[tuple[tuple[int, float], ...], ...]:
    """The most likely tokens of each place."""
    if not count:
        return ()
    places = [[(token, min(said.logprob, 0.0)) for token, said in entry.items()] for entry in logprobs]
    ranked = [sorted((one for one in place if math.isfinite(one[1])), key=lambda one: -one[1]) for place in places]
    return tuple(tuple(place[:count]) for place in ranked)


def _followed(supports: Supports, ids: Sequence[int], logprobs: Any) -> tuple[bytes, ...]:
    try:
        return supports.of(ids, logprobs)
    except ValueError as error:
        raise EngineError(f"vLLM drew what its grammar does not allow here: {error}") from error


def _sampling(request: Request, seed: int) -> dict[str, Any]:
    sampling = request.sampling
    return {
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "stop_token_ids": list(sampling.stop),
        "ignore_eos": True,
        "seed": seed % 2**63,
        "logprobs": sampling.alternatives,
    } | restricted_options(sampling)


async def _start(base: BaseModel, arguments: Any) -> Any:
    from vllm.v1.engine.async_llm import AsyncLLM

    try:
        llm = AsyncLLM.from_engine_args(arguments)
        if arguments.worker_extension_cls == CPU_LORA:
            await llm.collective_rpc(CpuLora.use_grouped_lora.__name__)
        return llm
    except Exception as error:
        raise ModelError(f"vLLM cannot serve {base.name!r}: {type(error).__name__}: {error}") from error
