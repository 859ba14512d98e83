"""A step's work by prime-rl's formula, by the causal one and at least; and the peaks of devices."""

from collections.abc import Mapping

import pytest
from mini import mini

from benchmarks.learner import rows as learner_rows
from benchmarks.learner.rows import Drawn, distinct_tokens, draw
from benchmarks.learner.work import StepWork, attention_flops, linear_flops, peak_tflops
from benchmarks.learner.workload import WorkloadOptions, load_workload
from mas.training.batch import TrainRow

QWEN3_06B = {
    "hidden": 1024,
    "intermediate": 3072,
    "layers": 28,
    "heads": 16,
    "kv_heads": 8,
    "head_size": 128,
    "vocabulary": 151936,
}
# Rank 16 on the seven linear layers, 16 (in + out) numbers each, by hand:
# 0.6B: 28 layers x 16 (q 1024+2048, k and v 1024+1024 each, o 2048+1024, gate and up 1024+3072 each, down 3072+1024).
LORA_06B = 28 * 16 * (3072 + 2 * 2048 + 3072 + 3 * 4096)
# 1.7B: 28 layers x 16 (q 2048+2048, k and v 2048+1024, o 2048+2048, gate, up and down 2048+6144).
LORA_17B = 28 * 16 * (4096 + 2 * 3072 + 4096 + 3 * 8192)
# 4B: 36 layers x 16 (q 2560+4096, k and v 2560+1024, o 4096+2560, gate, up and down 2560+9728).
LORA_4B = 36 * 16 * (6656 + 2 * 3584 + 6656 + 3 * 12288)


def train_row(role: str, prompt: tuple[int, ...], completion: tuple[int, ...], number: int = 0) -> TrainRow:
    """A row of which only the tokens and the adapter count."""
    noise = (0.0,) * len(completion)
    drawn = Drawn(
        role=role,
        group=0,
        candidate=number,
        prompt_ids=prompt,
        completion_ids=completion,
        reward=0.0,
        noise=noise,
    )
    return TrainRow(learner_rows._turn(drawn, noise), role, 0.0, 1.0)


ROWS = [
    train_row("x", (5, 6, 7), (8, 9)),
    train_row("x", (5, 6, 7), (9, 8, 4, 3), 1),
    train_row("y", (5, 6, 7), (4, 4)),
]


def test_the_work_of_three_rows_is_counted_by_hand() -> None:
    # Layers: 2 x (2 x 16 x 8 x (2 + 1) + 3 x 16 x 32) = 4608 weights; head: 32 x 16 = 512; an adapter of 100.
    # Read are: x's prompt of 3 once, 1 and 3 tokens behind it; y's prompt of 3 and 1 behind it: 11.
    assert distinct_tokens(ROWS) == 11
    work = StepWork.of(mini(), ROWS, 100)
    # Rows of 4, 6 and 4 tokens. A token times its row: 3 x 4 (prompt, in the shorter row), 1 x 4, 3 x 6; y's 4 x 4: 50.
    assert work.flops == 11 * (4 * (4608 + 512) + 6 * 100) + 12 * 2 * 16 * 50 == 251_080
    # Positions: 1 + 2 + 3, then 4, and 4 + 5 + 6; for y 1 + 2 + 3 + 4: 35.
    assert work.causal_flops == 11 * (4 * (4608 + 512) + 6 * 100) + 12 * 2 * 16 * 35 == 245_320
    # The head: at the prompts' last tokens and behind them, 1 + 1 + 3 and 1 + 1.
    assert work.least_flops == 11 * (4 * 4608 + 600) + 7 * 4 * 512 == 223_688
    assert StepWork.of(mini(), ROWS[::-1], 100) == work


def test_utilisation_is_work_over_what_the_device_could_have_done_in_that_time() -> None:
    work = StepWork.of(mini(), ROWS, 100)
    # 2 s at 1e6 operations a second.
    assert work.measures(2.0, 1e-6) == pytest.approx(
        {"tflop": 251_080e-12, "mfu": 0.12554, "mfu_causal": 0.12266, "mfu_least": 0.111844}
    )
    assert work.measures(2.0, None) == pytest.approx({"tflop": 251_080e-12})


# PrimeIntellect-ai/prime-rl at 559b447, benchmarks/baselines/benchmark-1xh100-Qwen--Qwen3-MODEL-rl-16-1gpu-RECOMPUTE-
# flash_attention_3-CONTEXT-cp1-ep1.json (the last one Offload, the others Recompute): means of `mfu` and `throughput`.
@pytest.mark.parametrize(
    ("shape", "lora", "context", "tokens_per_s", "mfu"),
    [
        (QWEN3_06B, LORA_06B, 16384, 13341.807441650146, 0.10902290160145071),
        (QWEN3_06B, LORA_06B, 65536, 9966.595939452507, 0.25186637106124792),
        ("h100_qwen3_4b", LORA_4B, 16384, 6229.22540223386, 0.2167106712168685),
        ("h100_qwen3_4b", LORA_4B, 65536, 4042.514189268571, 0.3628241994221462),
    ],
)
def test_the_formula_gives_the_utilisation_that_prime_rl_published_for_its_speed(
    shape: str | Mapping[str, int], lora: int, context: int, tokens_per_s: float, mfu: float
) -> None:
    workload = load_workload(shape) if isinstance(shape, str) else mini(shape=shape)
    per_token = linear_flops(workload, lora) + attention_flops(workload, context)
    assert per_token * tokens_per_s / 989e12 == pytest.approx(mfu, rel=1e-5)


def test_weights_in_products_are_those_of_prime_rls_test() -> None:
    # Their tests/unit/train/test_perf.py: 595,984,384 of Qwen3-0.6B, with the head; without adapters 4 of each a token.
    assert linear_flops(mini(shape=QWEN3_06B), 0) == 4 * 595_984_384


@pytest.mark.parametrize(
    ("name", "lora", "flops", "causal", "least"),
    # The lengths give 27,895 distinct tokens, 21,831 with a loss behind them, Σ S 8,467,926, by position 6,262,982.
    [
        ("h100_qwen3_1.7b", LORA_17B, 200.712638e12, 199.195354e12, 187.338004e12),
        ("h100_qwen3_4b", LORA_4B, 463.698214e12, 461.259722e12, 444.898844e12),
    ],
)
def test_the_steps_of_the_gpus_workloads_have_the_work_that_the_docs_say(
    name: str, lora: int, flops: float, causal: float, least: float
) -> None:
    workload = load_workload(name)
    rows = [train_row(one.role, one.prompt_ids, one.completion_ids, one.candidate) for one in draw(workload, 0)]
    work = StepWork.of(workload, rows, lora)
    assert (work.flops, work.causal_flops, work.least_flops) == pytest.approx((flops, causal, least), rel=1e-7)


@pytest.mark.parametrize(
    ("device", "peak"),
    [
        ("NVIDIA H100 80GB HBM3", 989),
        ("NVIDIA H100 PCIe", 756),
        ("NVIDIA H100 NVL", 835),
        ("NVIDIA H200", 989),
        ("NVIDIA H200 NVL", 835),
        ("NVIDIA A100-SXM4-80GB", 312),
        ("NVIDIA H100 80GB HBM3 MIG 1g.10gb", None),
        ("Tesla T4", None),
        ("cpu", None),
    ],
)
def test_a_peak_is_known_by_the_devices_name_or_given(device: str, peak: float | None) -> None:
    assert peak_tflops(mini(dtype="bfloat16"), device) == peak
    assert peak_tflops(mini(dtype="float32"), device) is None
    assert peak_tflops(mini(dtype="float32", peak_tflops=12.5), device) == 12.5


def adapted(workload: WorkloadOptions) -> list[tuple[int, int]]:
    """In and out of a layer's seven linear maps."""
    shape = workload.shape
    hidden, inner = shape.hidden, shape.intermediate
    read, kept = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
    return [(hidden, read), *[(hidden, kept)] * 2, (read, hidden), *[(hidden, inner)] * 2, (inner, hidden)]


@pytest.mark.parametrize(("name", "lora", "bases"), [("h100_qwen3_1.7b", LORA_17B, 5), ("h100_qwen3_4b", LORA_4B, 3)])
def test_the_gpus_workloads_fit_into_80_gb_by_the_estimate_that_training_prints(
    name: str, lora: int, bases: int
) -> None:
    workload = load_workload(name)
    maps = adapted(workload)
    assert lora == workload.shape.layers * sum(16 * (into + out) for into, out in maps)
    # Kept for the backward pass (mas.serving.base_measures): inputs and outputs in 2 bytes, adapters' inputs in 4.
    token = workload.shape.layers * sum(2 * (into + out) + 4 * into for into, out in maps)
    tokens = max(workload.micro_batch_tokens, workload.peft_packed_tokens, workload.rows_per_forward * workload.longest)
    # Weights in 2 bytes; four adapters with gradients and moments in 4 bytes each.
    base = 2 * (workload.layer_weights + workload.head_weights) + 4 * 16 * lora
    assert tokens * token + bases * base < 70e9
