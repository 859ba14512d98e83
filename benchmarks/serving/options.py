"""What `mas bench serving` is asked. Needs no torch, so that mistakes are found at once."""

from dataclasses import dataclass
from importlib.util import find_spec

from mas.config.options import SMOLLM2, TinyOptions
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean

GENERATE = "transformers.generate, base"
PEFT = "PEFT, 3 adapters + base"
OURS_BASE = "mas, base"
OURS = "mas, 3 adapters + base"
VLLM_BASE = "vLLM, base"
VLLM = "vLLM, 3 adapters + base"
REFERENCE = OURS_BASE

SIZES = {
    "1M": TinyOptions(hidden=128, intermediate=384, layers=5, heads=4, kv_heads=2, head_size=32, spread=0.05),
    "10M": TinyOptions(hidden=384, intermediate=1088, layers=6, heads=12, kv_heads=4, head_size=32, spread=0.03),
}
"""Shapes by name; heads of 32, the least that vLLM serves on a CPU."""

PRETRAINED = (SMOLLM2,)
"""Models that are measured in batches of their own, against `generate` alone."""

REQUESTS = 64
"""Completions of a round, where nothing else is asked for."""

OPTIONAL = {"generate": (GENERATE,), "peft": (PEFT,), "vllm": (VLLM_BASE, VLLM)}
"""What `--without` takes -> the rows that it leaves out."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ServingBench:
    """One benchmark.

    Attributes:
        sizes: keys of `SIZES`, and of `PRETRAINED`.
        repeats: measured rounds; `requests`: completions of each, but for pretrained models.
        without: keys of `OPTIONAL`.
        threads: torch threads of every competitor.
    """

    sizes: tuple[str, ...] = (*SIZES, *PRETRAINED)
    repeats: int = 5
    requests: int = REQUESTS
    seed: int = 0
    without: frozenset[str] = frozenset()
    threads: int = 2

    def __post_init__(self) -> None:
        for size in self.sizes:
            if size not in (*SIZES, *PRETRAINED):
                raise ConfigError(f"--size {size}: no such size. {did_you_mean(size, (*SIZES, *PRETRAINED))}")
        for name in self.without:
            if name not in OPTIONAL:
                raise ConfigError(f"--without {name}: nothing to leave out. {did_you_mean(name, OPTIONAL)}")
        if set(self.sizes) <= set(PRETRAINED):
            if self.requests != REQUESTS:
                raise ConfigError(
                    f"--requests {self.requests}: {', '.join(self.sizes)} has batches of its own; leave it out, or add "
                    f"--size {' or '.join(SIZES)}"
                )
            if idle := sorted(self.without - {"generate"}):
                raise ConfigError(
                    f"--without {idle[0]}: {', '.join(self.sizes)} is measured against generate alone; leave it out, "
                    f"or add --size {' or '.join(SIZES)}"
                )
        needs_peft = "peft" not in self.without and any(size in SIZES for size in self.sizes)
        if needs_peft and find_spec("peft") is None:
            raise ConfigError(
                "mas is measured against PEFT, which is not installed: pip install 'mas[bench]', or add --without peft"
            )

    @property
    def rows(self) -> tuple[str, ...]:
        """Names of the competitors that are asked for, in the table's order."""
        left_out = {row for name in self.without for row in OPTIONAL[name]}
        return tuple(row for row in (GENERATE, PEFT, OURS_BASE, OURS, VLLM_BASE, VLLM) if row not in left_out)
