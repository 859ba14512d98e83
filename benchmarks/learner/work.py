"""The arithmetic of a step as others count it and at least, and which share of a device's peak it is. Needs no torch.

`StepWork.flops` is what prime-rl counts (PrimeIntellect-ai/prime-rl at 559b447, src/prime_rl/trainer/perf.py), so that
a model FLOP utilisation (MFU) is comparable with published ones. `StepWork.least_flops` leaves out what a learner need
not compute. Neither counts norms, the loss, the optimiser, or anything that is computed twice.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from benchmarks.learner.workload import WorkloadOptions
from mas.training.batch import TrainRow

TFLOP = 1e12
WORK = "tflop"
"""Measure: `StepWork.flops`, in 1e12 operations."""
MFU = "mfu"
"""Measure: `StepWork.flops` / what the device could do in the step's median time."""

_PEAK_TFLOPS = (
    ("H100 PCIe", 756.0),
    ("H100 NVL", 835.0),
    ("H100", 989.0),
    ("H200 NVL", 835.0),
    ("H200", 989.0),
    ("A100", 312.0),
)
"""Part of a CUDA device's name -> dense bfloat16 of NVIDIA's data sheets; the first that fits counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepWork:
    """Floating-point operations of one step.

    Attributes:
        flops: T (4 (N + H) + 6 A) + 12 L d Σ S. A frozen weight costs 2 operations a token forward and 2 backward, as
            only the input's gradient is needed; a trained one 2 and 4. T distinct tokens, N weights of the layers, H of
            the head, A of one adapter, L layers, d the hidden size, S of each token: the tokens of its row.
        causal_flops: the same, but a token attends to those up to it alone: S is its position, from 1.
        least_flops: T (4 N + 6 A) + 4 R H: the head only at the R distinct tokens behind which one is predicted that is
            learned from; no attention.
    """

    flops: float
    causal_flops: float
    least_flops: float

    @classmethod
    def of(cls, workload: WorkloadOptions, rows: Sequence[TrainRow], adapter_weights: int) -> "StepWork":
        """Of the workload's rows. A prompt that rows of one adapter share counts once, in the shortest of them, and the
        last token of a row, which predicts nothing, not at all."""
        shortest: dict[tuple[str, tuple[int, ...]], int] = {}
        tokens = attended = causal = unread = 0
        for row in rows:
            prompt, new = len(row.turn.prompt_ids), len(row.turn.completion_ids)
            length = prompt + new - 1
            key = (row.adapter, row.turn.prompt_ids)
            shortest[key] = min(length, shortest.get(key, length))
            tokens += new - 1
            attended += (new - 1) * length
            causal += _positions(length) - _positions(prompt)
        for (_, prompt_ids), length in shortest.items():
            tokens += len(prompt_ids)
            attended += len(prompt_ids) * length
            causal += _positions(len(prompt_ids))
            unread += len(prompt_ids) - 1
        linear = tokens * linear_flops(workload, adapter_weights)
        return cls(
            flops=linear + attention_flops(workload, attended),
            causal_flops=linear + attention_flops(workload, causal),
            least_flops=linear - 4 * unread * workload.head_weights,
        )

    def measures(self, seconds: float, peak_tflops: float | None) -> Mapping[str, float]:
        """By name: the step's work, and, where the device's peak is known, the shares of it that a step of so many
        seconds used, by each count."""
        work = {WORK: self.flops / TFLOP}
        if peak_tflops is None:
            return work
        counts = {MFU: self.flops, f"{MFU}_causal": self.causal_flops, f"{MFU}_least": self.least_flops}
        return work | {name: flops / seconds / (peak_tflops * TFLOP) for name, flops in counts.items()}


def linear_flops(workload: WorkloadOptions, adapter_weights: int) -> int:
    """Operations of one token in all linear layers, the head among them, forward and backward."""
    return 4 * (workload.layer_weights + workload.head_weights) + 6 * adapter_weights


def attention_flops(workload: WorkloadOptions, attended: int) -> int:
    """Operations of attention's two products, forward and backward, where tokens attend to so many in all.

    As prime-rl counts them, with the hidden size; heads x head size is larger in some models.
    """
    return 12 * workload.shape.layers * workload.shape.hidden * attended


def peak_tflops(workload: WorkloadOptions, device: str) -> float | None:
    """What the device can do in the workload's type: as the workload says, or by the device's name; None: unknown.

    Args:
        device: the name of a CUDA device, or `cpu`. Of a part of one (MIG) nothing is known.
    """
    if workload.peak_tflops is not None:
        return workload.peak_tflops
    if workload.dtype != "bfloat16" or "MIG" in device:
        return None
    return next((peak for name, peak in _PEAK_TFLOPS if name in device), None)


def _positions(tokens: int) -> int:
    """1 + 2 + ... + tokens."""
    return tokens * (tokens + 1) // 2
