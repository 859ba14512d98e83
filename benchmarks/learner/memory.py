"""How much memory a step needs beyond what is there before it.

On Linux the kernel keeps a process's largest resident size; writing 5 to `clear_refs` makes it start anew (proc(5)).
Memory that was freed before is given back to the system first, or the step would fill it unseen.
"""

import ctypes
import gc
from pathlib import Path

import torch

from benchmarks.rounds import Competitor

_MIB = 2**20
_STATUS = Path("/proc/self/status")
_CLEAR = Path("/proc/self/clear_refs")
_SLACK_KIB = 8192
"""By how much the largest size may exceed the current one just after it was made to start anew."""


def why_unmeasured(device: torch.device) -> str:
    """Why there are no peaks on this machine; empty where there are."""
    if device.type == "cuda" or _restart_peak():
        return ""
    return f"peak memory: {_CLEAR} does not reset it on this system"


async def peak_mib(device: torch.device, competitor: Competitor) -> float:
    """The largest memory during a round of the competitor less that before it, in MiB."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        await competitor.run(0)
        torch.cuda.synchronize(device)
        return (torch.cuda.max_memory_allocated(device) - before) / _MIB
    _give_back()
    _restart_peak()
    before_kib = _kib("VmRSS")
    await competitor.run(0)
    return (_kib("VmHWM") - before_kib) * 1024 / _MIB


def _restart_peak() -> bool:
    """Whether the kernel's largest resident size now counts from here."""
    try:
        _CLEAR.write_text("5")
        return _kib("VmHWM") - _kib("VmRSS") <= _SLACK_KIB
    except (OSError, KeyError):  # not Linux, or a sandbox that denies it
        return False


def _kib(key: str) -> int:
    sizes = dict(line.split(":", 1) for line in _STATUS.read_text().splitlines())
    return int(sizes[key].split()[0])


def _give_back() -> None:
    """Let the C library return freed memory to the system, where it is one that can be asked."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
