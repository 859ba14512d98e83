"""vLLM in this process's service: every role's adapter resident and mixed in one batch, versions never overwritten.

What training relies on is fixed here and refused in `engine.vllm`: token ids in and out, log-probabilities of the
distribution that was sampled from, no sampling that a loss cannot account for, and a unique name, number and path per
adapter version, so that the prefix cache never mixes two of them.

Needs `mas[vllm]`; nothing here is imported without it. Nothing is reported to anybody.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from typing import Any, TypeVar

from mas.config.options import EngineOptions
from mas.core.engine import AdapterRef, Generation, Request
from mas.core.errors import ConfigError, EngineError, ModelError
from mas.core.naming import did_you_mean
from mas.serving.model import BaseModel
from mas.serving.store import AdapterStore, AdapterVersion

T = TypeVar("T")

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM's LoRA kernels can be built for; the next one above the adapters' rank is taken."""
_CPU_HEADS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Head sizes of vLLM's CPU attention."""
_FIXED = ("model", "tokenizer", "dtype", "max_model_len", "enable_lora", "max_loras", "max_lora_rank", "max_cpu_loras")
_TRUE = ("logprobs_mode", "generation_config", "return_sampling_mask", "skip_tokenizer_init", "speculative_config")
_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
}
"""Set unless the user has: no telemetry, no flood of messages, a small cache on CPUs."""


class VllmEngine:
    """Satisfies `mas.core.engine.Engine`. Made by `start`; one per process and model.

    If vLLM's engine dies it is started again, every loaded version is loaded again, and requests in flight are sent
    again, `EngineOptions.restarts` times in all; after that every request fails with the cause.
    """

    reads_files = True

    def __init__(self, base: BaseModel, options: EngineOptions, arguments: Any, llm: Any) -> None:
        self.base = base
        self.options = options
        self.tokenizer = base.tokenizer
        self.stop_ids = base.stop_ids
        self.base_name = base.name
        self.dtype: str = base.options.dtype
        self.store = AdapterStore(self)
        self.restarts = 0
        self._arguments = arguments
        self._llm = llm
        self._requests = 0
        self._restarting = asyncio.Lock()
        self._closed = False
        self._flying = 0
        self._landed = asyncio.Event()

    @classmethod
    async def start(cls, base: BaseModel, options: EngineOptions, *, rank: int) -> "VllmEngine":
        """Start vLLM for the base's directory or hub id; takes half a minute or more.

        Args:
            rank: the largest rank of the adapters to come.

        Raises:
            ModelError: vLLM is not installed, or cannot serve the model. ConfigError: an impossible option.
        """
        arguments = vllm_arguments(base, options, rank)
        return cls(base, options, arguments, _start(base, arguments))

    def adapters(self) -> Mapping[str, AdapterRef]:
        return self.store.current()

    async def load(self, version: AdapterVersion) -> None:
        """Make vLLM read the version's files; a version that is loaded stays as it is."""
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

    async def unload(self, version: AdapterVersion) -> None:
        """Free the version's place."""
        if not self._closed:
            await self._guarded(lambda llm: llm.remove_lora(version.number))

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        with self._accepted():
            self.base.limits.check_request(request)
            if request.adapter is None:
                return await self._generate(request, None)
            async with self.store.lease(request.adapter) as version:
                return await self._generate(request, version)

    async def stream(self, request: Request) -> AsyncIterator[int]:
        """The tokens of one completion (the request's first seed) as they are drawn."""
        with self._accepted():
            self.base.limits.check_request(request)
            if request.adapter is None:
                async for token in self._tokens(request, None):
                    yield token
                return
            async with self.store.lease(request.adapter) as version:
                async for token in self._tokens(request, version):
                    yield token

    async def score(
        self, prompt_ids: Sequence[int], completion_ids: Sequence[int], adapter: str | None = None
    ) -> tuple[float, ...]:
        with self._accepted():
            if adapter is None:
                return await self.score_version(None, prompt_ids, completion_ids)
            async with self.store.lease(adapter) as version:
                return await self.score_version(version, prompt_ids, completion_ids)

    async def score_version(
        self, version: AdapterVersion | None, prompt_ids: Sequence[int], completion_ids: Sequence[int]
    ) -> tuple[float, ...]:
        self.base.limits.check_score(prompt_ids, completion_ids)
        # vLLM draws one token behind what it scores, so the last one of a full context is scored as that draw
        ids = [*prompt_ids, *completion_ids]
        options = {"max_tokens": 1, "prompt_logprobs": 0, "temperature": 1.0}
        output = await self._guarded(lambda llm: self._last(llm, ids, options, version))
        found = output.prompt_logprobs[len(prompt_ids) :]
        return tuple(entry[token].logprob for entry, token in zip(found, completion_ids, strict=True))

    async def close(self) -> None:
        if not self._closed:
            self._closed = True
            while self._flying:
                self._landed.clear()
                await self._landed.wait()
            self._llm.shutdown()
            self._llm = None
            self.store.close()

    async def _generate(self, request: Request, version: AdapterVersion | None) -> tuple[Generation, ...]:
        calls = [self._complete(request, seed, version) for seed in request.seeds]
        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(call, name="vllm-completion") for call in calls]
        except BaseExceptionGroup as failed:
            raise failed.exceptions[0] from None
        return tuple(task.result() for task in tasks)

    async def _complete(self, request: Request, seed: int, version: AdapterVersion | None) -> Generation:
        options = _sampling(request, seed)
        output = await self._guarded(lambda llm: self._last(llm, request.prompt_ids, options, version))
        (completion,) = output.outputs
        ids = tuple(completion.token_ids)
        return Generation(
            token_ids=ids,
            logprobs=tuple(
                min(entry[token].logprob, 0.0) for entry, token in zip(completion.logprobs, ids, strict=True)
            ),
            finish="stop" if ids[-1] in request.sampling.stop else "length",
            adapter=None if version is None else version.ref,
        )

    async def _tokens(self, request: Request, version: AdapterVersion | None) -> AsyncIterator[int]:
        from vllm.sampling_params import RequestOutputKind

        options = _sampling(request, request.seeds[0]) | {"output_kind": RequestOutputKind.DELTA}
        async for output in self._outputs(self._llm, request.prompt_ids, options, version):
            for token in output.outputs[0].token_ids:
                yield token

    async def _last(self, llm: Any, ids: Sequence[int], options: Mapping[str, Any], version: Any) -> Any:
        last = None
        async for output in self._outputs(llm, ids, options, version):
            last = output
        return last

    def _outputs(
        self, llm: Any, ids: Sequence[int], options: Mapping[str, Any], version: AdapterVersion | None
    ) -> AsyncIterator[Any]:
        from vllm import SamplingParams
        from vllm.sampling_params import RequestOutputKind

        self._requests += 1
        usual = {"detokenize": False, "top_p": 1.0, "top_k": 0, "output_kind": RequestOutputKind.FINAL_ONLY}
        outputs: AsyncIterator[Any] = llm.generate(
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
        async with self._restarting:
            if self._llm is not dead:
                return
            if self.restarts >= self.options.restarts:
                raise EngineError(f"vLLM died, and was restarted {self.restarts} times before: {cause}") from cause
            self.restarts += 1
            dead.shutdown()
            self._llm = _start(self.base, self._arguments)
            for version in self.store.loaded():
                await self._llm.add_lora(_lora(version))

    @contextmanager
    def _accepted(self) -> Iterator[None]:
        """A request from here to its end: `close` waits for it."""
        if self._closed:
            raise EngineError("the engine is closed")
        self._flying += 1
        try:
            yield
        finally:
            self._flying -= 1
            self._landed.set()


def _lora(version: AdapterVersion) -> Any:
    from vllm.lora.request import LoRARequest

    return LoRARequest(f"{version.ref}-{version.number}", version.number, str(version.path))


def _sampling(request: Request, seed: int) -> dict[str, Any]:
    sampling = request.sampling
    return {
        "temperature": sampling.temperature,
        "max_tokens": sampling.max_tokens,
        "stop_token_ids": list(sampling.stop),
        "ignore_eos": True,
        "seed": seed % 2**63,
        "logprobs": 0,
    }


def vllm_arguments(base: BaseModel, options: EngineOptions, rank: int) -> Any:
    """vLLM's `AsyncEngineArgs` for this base and adapters of up to this rank.

    Raises:
        ModelError: vLLM is not installed, or cannot serve the model. ConfigError: an impossible option.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        from vllm import AsyncEngineArgs
    except ImportError as error:
        raise ModelError(
            f"engine=vllm needs vLLM, which cannot be imported ({error}): pip install 'mas[vllm]'"
        ) from error
    known = {field.name for field in fields(AsyncEngineArgs)}
    for name in options.vllm:
        if name in (*_FIXED, *_TRUE):
            raise ConfigError(f"engine.vllm.{name} cannot be set: training relies on what mas sets it to")
        if name not in known:
            raise ConfigError(f"engine.vllm.{name}: vLLM has no such option. {did_you_mean(name, known)}")
    room = next((possible for possible in _RANKS if possible >= rank), None)
    if room is None:
        raise ConfigError(f"rank {rank} is above {_RANKS[-1]}, the most that vLLM serves")
    is_cpu = base.bank.device.type == "cpu"
    if is_cpu and (size := _head_size(base)) not in _CPU_HEADS:
        raise ModelError(
            f"vLLM on CPUs serves head sizes {_CPU_HEADS}, the model has {size}; "
            "for the tiny base set model.tiny.head_size=32"
        )
    usual = {"enforce_eager": is_cpu, "enable_prefix_caching": True, "max_num_seqs": 256, "disable_log_stats": True}
    return AsyncEngineArgs(
        model=base.name,
        dtype=base.options.dtype,
        max_model_len=base.limits.context,
        enable_lora=True,
        max_loras=options.adapters,
        max_cpu_loras=4 * options.adapters,
        max_lora_rank=room,
        logprobs_mode="processed_logprobs",
        generation_config="vllm",
        **(usual | options.vllm),
    )


def _head_size(base: BaseModel) -> int:
    config = base.model.config.get_text_config()
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def _start(base: BaseModel, arguments: Any) -> Any:
    from vllm.v1.engine.async_llm import AsyncLLM

    try:
        return AsyncLLM.from_engine_args(arguments)
    except Exception as error:
        raise ModelError(f"vLLM cannot serve {base.name!r}: {type(error).__name__}: {error}") from error
