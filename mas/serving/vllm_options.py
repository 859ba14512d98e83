"""The options that vLLM is started with: ours are fixed, the user's are checked before anything starts."""

import logging
import os
from dataclasses import fields
from typing import Any

from mas.config.options import EngineOptions
from mas.core.errors import ConfigError, ModelError
from mas.core.naming import did_you_mean
from mas.serving.model import BaseModel
from mas.serving.vllm_cpu_lora import VERSIONS, CpuLora
from mas.serving.vllm_supports import MOST_LOGPROBS

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
}
"""Set unless the user has: no telemetry, no flood of messages, a small cache on CPUs."""
CPU_LORA = f"{CpuLora.__module__}.{CpuLora.__name__}"
"""vLLM's `worker_extension_cls` where mas adds the adapters."""
_log = logging.getLogger(__name__)


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
    if is_cpu:
        # Seeded requests end vLLM on CPUs when their prompt is read in parts: a CPU's random generator has no offset.
        usual |= {"enable_chunked_prefill": False, "max_num_batched_tokens": max(4096, base.limits.context)}
    worker = CPU_LORA if _adds_lora(options, is_cpu=is_cpu) else options.vllm.get("worker_extension_cls", "")
    return AsyncEngineArgs(
        model=base.name,
        dtype=base.options.dtype,
        max_model_len=base.limits.context,
        enable_lora=True,
        max_loras=options.adapters + needs_bare(base, worker),
        max_cpu_loras=4 * options.adapters,
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
    """Whether the bare base must be an adapter of its own (`mas.serving.bare`), with this `worker_extension_cls`."""
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
