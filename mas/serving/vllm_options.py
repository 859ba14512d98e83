"""The options that vLLM is started with and asked with: ours are fixed, the user's are checked before anything starts.

Restricted sampling needs the support of every token that vLLM draws. A grammar's support is computed here by the
library that vLLM computes it with. What top-p and min-p leave is known where top-k bounds it: vLLM then says the
log-probabilities of the most likely tokens, and those it left out have none.
"""

import logging
import math
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

import numpy as np

from mas.config.options import EngineOptions
from mas.core.engine import Sampling
from mas.core.errors import ConfigError, ModelError, RefusedRequest
from mas.core.naming import did_you_mean
from mas.core.support import pack_support
from mas.core.team import TeamSpec
from mas.serving.grammar import Grammars, Matcher
from mas.serving.model import BaseModel
from mas.serving.vllm_cpu_lora import VERSIONS, CpuLora

_RANKS = (1, 8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM's LoRA kernels can be built for; the next one above the adapters' rank is taken."""
_CPU_HEADS = (32, 64, 80, 96, 112, 128, 160, 192, 224, 256, 512)
"""Head sizes of vLLM's CPU attention."""
_OURS = (
    *("model", "tokenizer", "skip_tokenizer_init", "dtype", "max_model_len"),
    *("enable_lora", "max_loras", "max_lora_rank", "max_cpu_loras", "lora_dtype", "lora_target_modules"),
    *("logprobs_mode", "max_logprobs", "generation_config", "return_sampling_mask", "speculative_config"),
    "structured_outputs_config",
)
"""What the store and the learner rely on."""
_ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",
    "GLOO_SOCKET_IFNAME": "lo0" if sys.platform == "darwin" else "lo",
}
"""Set unless the user has: no telemetry, no flood of messages, a small cache on CPUs, and groups of processes (of one,
too) that listen at the loopback interface: gloo otherwise takes the address that the machine's name leads to."""
CPU_LORA = f"{CpuLora.__module__}.{CpuLora.__name__}"
"""vLLM's `worker_extension_cls` where mas adds the adapters."""
_log = logging.getLogger(__name__)
MOST_K = 100
"""The largest `top_k` that supports are known for."""
_TIES = 20
"""Tokens as likely as the last of the top k that vLLM may leave, too."""
MOST_LOGPROBS = MOST_K + _TIES


def lora_room(rank: int) -> int:
    """The rank that vLLM's LoRA kernels are built for, so that adapters of up to this rank have room.

    Raises:
        ConfigError: vLLM serves none of this rank.
    """
    room = next((possible for possible in _RANKS if possible >= rank), None)
    if room is None:
        raise ConfigError(f"rank {rank} is above {_RANKS[-1]}, the most that vLLM serves")
    return room


def vllm_arguments(base: BaseModel, options: EngineOptions, rank: int) -> Any:
    """vLLM's `AsyncEngineArgs` for this base and adapters of up to this rank.

    Raises:
        ModelError: vLLM is not installed, or cannot serve the model. ConfigError: an impossible option.
    """
    for name, value in _ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    try:
        from vllm import AsyncEngineArgs
    except Exception as error:  # also what its packages raise where another one brought older ones of them
        raise ModelError(
            f"engine=vllm needs vLLM, which cannot be imported ({error}): pip install 'mas[vllm]', "
            "in an environment without mas[bench], whose packages need others"
        ) from error
    _check_names(options, {field.name for field in fields(AsyncEngineArgs)})
    room = lora_room(rank)
    is_cpu = base.bank.device.type == "cpu"
    if is_cpu and (size := _head_size(base)) not in _CPU_HEADS:
        raise ModelError(
            f"vLLM on CPUs serves head sizes {_CPU_HEADS}, the model has {size}; "
            "for the tiny base set model.tiny.head_size=32"
        )
    usual = {"enforce_eager": is_cpu, "enable_prefix_caching": True, "max_num_seqs": 256, "disable_log_stats": True}
    if is_cpu:
        # Seeded requests end vLLM on CPUs when their prompt is read in parts: a CPU's random generator has no offset.
        usual |= {"enable_chunked_prefill": False, "max_num_batched_tokens": max(4096, base.limits.context)}
    worker = CPU_LORA if _adds_lora(options, is_cpu=is_cpu) else options.vllm.get("worker_extension_cls", "")
    return AsyncEngineArgs(
        model=base.name,
        dtype=base.options.dtype,
        max_model_len=base.limits.context,
        enable_lora=True,
        max_loras=options.places + needs_bare(base, worker),
        max_cpu_loras=4 * options.places,
        max_lora_rank=room,
        # Without it vLLM wraps the head, too, and dies where prompts are scored beside other requests.
        lora_target_modules=sorted(base.options.targets),
        logprobs_mode="processed_logprobs",
        max_logprobs=MOST_LOGPROBS,
        structured_outputs_config={"backend": "guidance"},
        generation_config="vllm",
        **(usual | options.vllm | {"worker_extension_cls": worker}),
    )


def needs_bare(base: BaseModel, worker: str) -> bool:
    """Whether the bare base must be an adapter of its own (`bare_version`), with this `worker_extension_cls`."""
    return base.bank.device.type == "cpu" and worker != CPU_LORA


def _check_names(options: EngineOptions, known: set[str]) -> None:
    for name in options.vllm:
        if name in _OURS:
            raise ConfigError(f"engine.vllm.{name} cannot be set: training relies on what mas sets it to")
        if name not in known:
            raise ConfigError(f"engine.vllm.{name}: vLLM has no such option. {did_you_mean(name, known)}")


def _adds_lora(options: EngineOptions, *, is_cpu: bool) -> bool:
    """Whether mas adds the adapters in vLLM's worker."""
    if not is_cpu and not options.cpu_lora:
        raise ConfigError("engine.cpu_lora=false has no effect: the model is not on a CPU")
    if not (is_cpu and options.cpu_lora):
        return False
    if "worker_extension_cls" in options.vllm:
        raise ConfigError("engine.vllm.worker_extension_cls is taken on a CPU: set engine.cpu_lora=false to use it")
    from vllm import __version__

    if not __version__.startswith(VERSIONS):
        _log.warning("vLLM %s adds adapters by itself: engine.cpu_lora knows %sx", __version__, VERSIONS)
        return False
    return True


def _head_size(base: BaseModel) -> int:
    config = base.model.config.get_text_config()
    return int(getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads)


def check_known(sampling: Sampling) -> None:
    """Refuse limits whose supports vLLM does not say.

    Raises:
        RefusedRequest: `top_p` or `min_p` without a `top_k` of at most `MOST_K`.
    """
    if sampling.is_truncated and not 0 < sampling.top_k <= MOST_K:
        raise RefusedRequest(
            f"engine=vllm says which tokens were possible only with a top_k from 1 to {MOST_K}, and it is "
            f"{sampling.top_k} with top_p={sampling.top_p} and min_p={sampling.min_p}: set top_k, or use "
            "engine=transformers"
        )


def check_limits(team: TeamSpec) -> None:
    """Refuse roles whose limits vLLM's supports do not show.

    Raises:
        ConfigError: as `check_known`, with the role.
    """
    for name, role in team.roles.items():
        if role.peer is not None or role.voice != "engine":
            continue
        limits = Sampling(temperature=role.temperature, top_k=role.top_k, top_p=role.top_p, min_p=role.min_p)
        try:
            check_known(limits)
        except RefusedRequest as error:
            raise ConfigError(f"role {name!r}: {error}") from error


def restricted_options(sampling: Sampling) -> dict[str, Any]:
    """The part of vLLM's `SamplingParams` that restricts."""
    from vllm.sampling_params import StructuredOutputsParams

    options: dict[str, Any] = {}
    if sampling.is_truncated:
        options |= {"top_k": sampling.top_k, "top_p": sampling.top_p, "min_p": sampling.min_p}
        options["logprobs"] = max(sampling.top_k + _TIES, sampling.alternatives)
    if (grammar := sampling.grammar) is not None:
        asked = {"regex": grammar.text} if grammar.kind == "regex" else {"json": grammar.text}
        options["structured_outputs"] = StructuredOutputsParams(**asked)
    return options


class Supports:
    """Follows one completion, token by token."""

    def __init__(self, sampling: Sampling, grammars: Grammars, vocabulary: int) -> None:
        self._sampling = sampling
        self._vocabulary = vocabulary
        self._matcher: Matcher | None = None if sampling.grammar is None else grammars.matcher(sampling.grammar)

    def of(self, tokens: Sequence[int], logprobs: Sequence[Mapping[int, Any]]) -> tuple[bytes, ...]:
        """Of the next tokens, with what vLLM says of each place: token -> log-probability; empty without limits."""
        if not self._sampling.is_restricted:
            return ()
        return tuple(self._one(token, entry) for token, entry in zip(tokens, logprobs, strict=True))

    def _one(self, token: int, entry: Mapping[int, Any]) -> bytes:
        mask_V = None if self._matcher is None else self._matcher.mask()
        if self._sampling.is_truncated:
            mask_V = np.zeros(self._vocabulary, dtype=np.bool_)
            mask_V[[one for one, said in entry.items() if math.isfinite(said.logprob)]] = True
        if self._matcher is not None and token != self._matcher.end:
            self._matcher.follow(token)
        assert mask_V is not None
        return pack_support(mask_V)
