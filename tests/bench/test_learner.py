"""The learner's benchmark at its smallest: everybody computes the same step, and what differs is noticed."""

import asyncio
import gc
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from mini import mini
from torch import nn

from benchmarks.learner import field, memory
from benchmarks.learner.check import check_gaps, forget_gradients, gaps
from benchmarks.learner.competitors import DUAL_CLIP, FrozenBase, OurLearner, learner_options
from benchmarks.learner.field import make_adapters
from benchmarks.learner.grpo_trainer import GrpoTrainer, make_trainer, why_no_trl
from benchmarks.learner.models import make_base
from benchmarks.learner.names import FLOOR, OURS, PACKED, PADDED, ROWS, TRL, TRL_CHECKPOINTED
from benchmarks.learner.options import LearnerBench
from benchmarks.learner.peft_loops import Packed, Padded, PaddedRows, PeftLoop, widths_of
from benchmarks.learner.rows import distinct_tokens, make_rows, useful_tokens
from benchmarks.learner.run import bench_learner
from benchmarks.models import peft_model, write_adapters
from benchmarks.result import Result
from mas.algorithms.parts.losses.tokens import LossOptions
from mas.core.errors import ConfigError, TrainingError
from mas.serving.model import BaseModel
from mas.training.batch import TrainRow
from mas.training.learner import Learner

pytestmark = pytest.mark.nightly

OPTIONS = learner_options(64)
SWEEP = mini(
    name="more",
    sweep={"over": "groups", "values": [1, 2]},
    targets=[{"of": "2", "against": "1", "measure": "s_per_token", "at_most": 1000}],
)
TARGETS = [
    {"of": "mas", "against": "padded", "at_least": 1e-6},
    {"of": "mas", "against": "trl", "at_least": 1e-6},
    {"of": "mas", "against": "floor", "at_least": 1000},
]


@pytest.fixture(scope="module")
def result() -> Iterator[Result]:
    """A whole run of the smallest workload and a sweep, as if TRL were not installed."""
    threads = torch.get_num_threads()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(field, "why_no_trl", lambda: "not installed")
        options = LearnerBench(workloads=(mini(targets=TARGETS, peak_tflops=1), SWEEP), repeats=2, threads=1)
        yield asyncio.run(bench_learner(options, lambda text: None))
    assert torch.get_num_threads() == threads
    gc.collect()


@pytest.fixture
def base(tmp_path: Path) -> Iterator[BaseModel]:
    yield make_base(mini(), tmp_path / "base", seed=0, threads=1)
    gc.collect()


@pytest.fixture
def rows(base: BaseModel) -> list[TrainRow]:
    return make_rows(base, make_adapters(base, mini(), 0), mini(), 0)


@pytest.fixture
def peft(base: BaseModel, tmp_path: Path) -> Any:
    return peft_model(base, write_adapters(base, make_adapters(base, mini(), 0), tmp_path), is_trainable=True)


def ours(base: BaseModel, rows: list[TrainRow]) -> OurLearner:
    return OurLearner(OURS, base, make_adapters(base, mini(), 0), rows, OPTIONS)


def test_every_competitor_has_a_row_with_the_same_useful_tokens(result: Result) -> None:
    rows = [row for row in result.rows if row.size == "mini"]
    assert [row.name for row in rows] == list(ROWS.values())
    ran = [row for row in rows if not row.note]
    assert len({row.tokens for row in ran}) == 1
    assert [len(row.repeats) for row in ran] == [2] * 4
    assert {row.name: row.note for row in rows if row.note} == dict.fromkeys(
        (ROWS[TRL], ROWS[TRL_CHECKPOINTED]), "not installed"
    )
    assert {row.name: row.ratio for row in ran}[ROWS[PADDED]] == 1.0
    assert result.workload["mini"]["groups"] == 2


def test_steps_are_the_same_to_the_last_digits(result: Result) -> None:
    measures = {row.name: row.measures for row in result.rows if row.size == "mini"}
    for name in (OURS, PACKED):
        assert 0 < measures[ROWS[name]]["gradient_gap"] <= 1e-5
        assert measures[ROWS[name]]["loss_gap"] <= 1e-5
    assert "gradient_gap" not in measures[ROWS[PADDED]]
    assert "gradient_gap" not in measures[ROWS[FLOOR]]
    for name in (OURS, PADDED, PACKED, FLOOR):
        found = measures[ROWS[name]]
        assert found["mfu"] > found["mfu_causal"] > found["mfu_least"] > 0
        assert found["tflop"] == measures[ROWS[OURS]]["tflop"] > 0


def test_utilisation_is_that_of_the_median_step_at_the_given_peak(result: Result) -> None:
    row = next(row for row in result.rows if row.name == "mas")
    # peak_tflops = 1, and the median of two rounds is their mean.
    assert row.measures["mfu"] == pytest.approx(row.measures["tflop"] / (sum(row.seconds) / 2))


def test_a_sweep_has_a_row_for_each_point_that_is_compared_with_the_first(result: Result) -> None:
    rows = [row for row in result.rows if row.size == "more"]
    assert [row.name for row in rows] == ["mas, 1x groups", "mas, 2x groups"]
    assert rows[0].ratio == 1.0
    assert rows[1].tokens > 1.5 * rows[0].tokens
    assert "mfu" not in rows[0].measures
    assert rows[1].measures["tflop"] > 1.5 * rows[0].measures["tflop"]


def test_targets_are_those_of_the_files_whose_rows_ran(result: Result) -> None:
    rows = {row.name: row for row in result.rows}
    found = {target.name: (target.value, target.met) for target in result.targets if target.value is not None}
    unmeasured = {target.name: target.note for target in result.targets if target.value is None}
    assert unmeasured == {f"mini: mas / {ROWS[TRL]}, tokens_per_s": f"{ROWS[TRL]}: not installed"}
    assert found == {
        f"mini: mas / {ROWS[PADDED]}, tokens_per_s": (rows["mas"].ratio, True),
        f"mini: mas / {ROWS[FLOOR]}, tokens_per_s": (pytest.approx(found_floor(rows)), False),
        "more: mas, 2x groups / mas, 1x groups, s_per_token": (pytest.approx(found_sweep(rows)), True),
    }
    assert result.exit_code == 1


def found_floor(rows: dict[str, Any]) -> float:
    own, floor = rows["mas"].repeats, rows[ROWS[FLOOR]].repeats
    return sum(a / b for a, b in zip(own, floor, strict=True)) / 2


def found_sweep(rows: dict[str, Any]) -> float:
    """Seconds per token at two groups / at one; the median of two rounds is their mean."""
    first, second = rows["mas, 1x groups"].repeats, rows["mas, 2x groups"].repeats
    return sum(a / b for a, b in zip(first, second, strict=True)) / 2


@pytest.mark.skipif(not memory._restart_peak(), reason="no peaks on this system")
def test_every_row_that_ran_has_its_peak(result: Result) -> None:
    assert result.notes == ()
    assert all(row.measures["peak_mib"] >= 0 for row in result.rows if not row.note)


async def test_packing_masks_rows_from_each_other_and_reads_what_padding_reads(rows: list[TrainRow], peft: Any) -> None:
    one_role = [row for row in rows if row.adapter == "role_00"]
    peft.set_adapter("role_00")
    with torch.no_grad():
        wanted_M = Padded(3, widths_of(rows)).logprobs(peft, one_role)
        for budget in (1, 30, 10_000):
            parts = list(Packed(budget).split(one_role))
            assert [row for part in parts for row in part] == one_role
            found_M = torch.cat([Packed(budget).logprobs(peft, part) for part in parts])
            assert (found_M - wanted_M).abs().max() < 1e-5
    lengths = [len(row.turn.prompt_ids) + len(row.turn.completion_ids) - 1 for row in one_role]
    assert [len(part) for part in Packed(1).split(one_role)] == [1] * 8
    assert len(list(Packed(sum(lengths)).split(one_role))) == 1
    assert len(list(Packed(sum(lengths) - 1).split(one_role))) == 2
    own = torch.tensor([value for row in one_role for value in row.turn.logprobs])
    # Behaviour is the adapter's own with noise of 0.1 nats.
    assert 0.05 < float((wanted_M - own).std()) < 0.2


def test_prompts_are_padded_at_their_left_and_completions_at_their_right(rows: list[TrainRow]) -> None:
    turns = [
        replace(row, turn=type(row.turn)(**{**_fields(row), "prompt_ids": prompt, "completion_ids": completion}))
        for row, prompt, completion in zip(rows, ((5,), (6, 7)), ((8, 9), (4,)), strict=False)
    ]
    assert widths_of(turns) == {"role_00": (2, 2)}
    batch = PaddedRows.of(turns, widths_of(turns), torch.device("cpu"))
    alone = PaddedRows.of(turns[:1], widths_of(turns), torch.device("cpu"))
    assert alone.prompts_NP.tolist() == [[0, 5]]
    assert batch.prompts_NP.tolist() == [[0, 5], [6, 7]]
    assert batch.prompt_mask_NP.tolist() == [[0, 1], [1, 1]]
    assert batch.completions_NC.tolist() == [[8, 9], [4, 0]]
    assert batch.mask_NC.tolist() == [[1, 1], [1, 0]]


def _fields(row: TrainRow) -> dict[str, Any]:
    return {name: getattr(row.turn, name) for name in row.turn.__struct_fields__}


async def test_another_advantage_another_weight_and_another_adapter_are_noticed(
    base: BaseModel, rows: list[TrainRow], peft: Any
) -> None:
    right = PeftLoop(PADDED, peft, rows, OPTIONS, Padded(4, widths_of(rows)))
    await right.run(0)
    fine = ours(base, rows)
    await fine.run(0)
    assert max(gaps(fine, right).values()) < 1e-5
    changed = [
        [replace(rows[0], advantage=rows[0].advantage + 1), *rows[1:]],
        [replace(row, weight=2 * row.weight) for row in rows],
    ]
    for other in changed:
        wrong = ours(base, other)
        await wrong.run(0)
        found = gaps(wrong, right)
        assert found["gradient_gap"] > 1e-2
        with pytest.raises(TrainingError, match=r"mas: gradient gap .* at most 1\.0e-04 is possible"):
            check_gaps({OURS: found}, 1e-4)
    exchanged = dict(zip(("role_01", "role_00"), make_adapters(base, mini(), 0).values(), strict=True))
    wrong = OurLearner(OURS, base, exchanged, rows, OPTIONS)
    await wrong.run(0)
    assert min(gaps(wrong, right).values()) > 1e-2


def test_a_gap_that_is_no_number_is_no_equality() -> None:
    check_gaps({OURS: {"loss_gap": 1e-4}}, 1e-4)
    with pytest.raises(TrainingError, match="PEFT set_adapter, packed: loss gap nan"):
        check_gaps({PACKED: {"loss_gap": float("nan")}}, 1e-4)


async def test_a_gradient_that_is_no_number_is_noticed_in_every_role(
    base: BaseModel, rows: list[TrainRow], peft: Any
) -> None:
    right, one = PeftLoop(PADDED, peft, rows, OPTIONS, Padded(4, widths_of(rows))), ours(base, rows)
    await right.run(0)
    await one.run(0)
    *_, last = one.adapters.values()
    for tensor in last.values():
        assert tensor.grad is not None
        tensor.grad[:] = float("nan")
    with pytest.raises(TrainingError, match="mas: gradient gap nan"):
        check_gaps({OURS: gaps(one, right)}, 1e-4)


async def test_a_missing_gradient_is_no_equality(base: BaseModel, rows: list[TrainRow], peft: Any) -> None:
    right, one = PeftLoop(PADDED, peft, rows, OPTIONS, Padded(4, widths_of(rows))), ours(base, rows)
    await right.run(0)
    await one.run(0)
    forget_gradients([one])
    with pytest.raises(TrainingError, match=r"mas: .* of role_00 has no gradient"):
        gaps(one, right)


async def test_the_loops_clip_as_the_formula_says(base: BaseModel, rows: list[TrainRow], peft: Any) -> None:
    # Ratios of about e and 1/e and e^2: beyond every bound, the dual clip's (3) included.
    shifts = (-1.0, 1.0, -2.0, 0.0)
    far = [
        replace(row, turn=type(row.turn)(**{**_fields(row), "logprobs": tuple(v + shift for v in row.turn.logprobs)}))
        for index, row in enumerate(rows)
        for shift in (shifts[index % 4],)
    ]
    right, one = PeftLoop(PADDED, peft, far, OPTIONS, Padded(4, widths_of(rows))), ours(base, far)
    await right.run(0)
    await one.run(0)
    assert DUAL_CLIP == 3.0
    assert max(gaps(one, right).values()) < 1e-5


async def test_the_floor_goes_through_all_layers_and_trains_nothing(base: BaseModel, rows: list[TrainRow]) -> None:
    reached: list[torch.Tensor] = []
    embeddings: Any = base.model.get_input_embeddings()
    watch = embeddings.register_forward_hook(lambda module, ids, output: reached.append(output))
    floor = FrozenBase(base, rows, OPTIONS)
    reached.clear()
    assert await floor.run(0) == useful_tokens(rows)
    watch.remove()
    batches = Learner(base, {}, OPTIONS, LossOptions()).micro_batches(rows)
    assert [one.shape[1] for one in reached] == [batch.tokens for batch in batches]
    assert len(batches) > 1
    assert all(one.grad is not None and bool(one.grad.abs().sum() > 0) for one in reached)
    assert all(parameter.grad is None for parameter in base.model.parameters())
    assert not embeddings._forward_hooks


def test_tokens_are_counted_by_hand(rows: list[TrainRow]) -> None:
    own = [row for row in rows if row.adapter == "role_00"][:4]
    prompt, completions = len(own[0].turn.prompt_ids), [len(row.turn.completion_ids) for row in own]
    assert useful_tokens(own) == 4 * prompt + sum(completions)
    assert distinct_tokens(own) == prompt + sum(completions) - 4


class Hungry:
    """A step that needs some memory and gives it back."""

    name = "hungry"

    def __init__(self, mib: int) -> None:
        self._mib = mib

    async def run(self, number: int) -> int:
        return int(torch.ones(self._mib * 2**18).sum())


@pytest.mark.skipif(not memory._restart_peak(), reason="no peaks on this system")
async def test_a_peak_is_what_the_step_itself_needed() -> None:
    cpu = torch.device("cpu")
    await Hungry(200).run(0)
    assert await memory.peak_mib(cpu, Hungry(100)) == pytest.approx(100, abs=10)
    assert await memory.peak_mib(cpu, Hungry(20)) == pytest.approx(20, abs=10)


async def test_where_peaks_cannot_be_measured_the_result_says_so(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(memory, "_CLEAR", tmp_path / "none" / "clear_refs")
    options = LearnerBench(workloads=(SWEEP,), repeats=1, threads=1)
    result = await bench_learner(options, lambda text: None)
    assert result.notes == (f"peak memory: {tmp_path / 'none' / 'clear_refs'} does not reset it on this system",)
    assert all("peak_mib" not in row.measures for row in result.rows)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
async def test_a_workload_for_a_gpu_is_refused_before_anything_is_measured() -> None:
    told: list[str] = []
    options = LearnerBench(workloads=(SWEEP, mini(device="cuda")), repeats=1)
    with pytest.raises(ConfigError, match="workload 'mini' is for a CUDA device, and torch sees none here"):
        await bench_learner(options, told.append)
    assert told == []


def test_the_model_has_the_workloads_shape(base: BaseModel) -> None:
    workload = mini()
    linear = [layer for layer in base.model.modules() if isinstance(layer, nn.Linear)]
    assert sum(layer.weight.numel() for layer in linear) == workload.layer_weights + workload.head_weights
    assert base.model.get_input_embeddings().weight.shape == (32, 16)
    assert base.bank.create(base.options.lora, 0).options.rank == 2


@pytest.mark.parametrize("is_checkpointing", [False, True])
@pytest.mark.skipif(bool(why_no_trl()), reason="TRL is not installed")
async def test_trl_computes_the_same_step(
    base: BaseModel, rows: list[TrainRow], peft: Any, tmp_path: Path, is_checkpointing: bool
) -> None:
    right = PeftLoop(PADDED, peft, rows, OPTIONS, Padded(4, widths_of(rows)))
    await right.run(0)
    paths = {name: tmp_path / name for name in make_adapters(base, mini(), 0)}
    model = peft_model(base, paths, is_trainable=True)
    before = torch.random.get_rng_state()
    trainer = make_trainer(model, mini(), tmp_path / "trl", is_checkpointing=is_checkpointing)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert any(getattr(part, "gradient_checkpointing", False) for part in model.modules()) is is_checkpointing
    trl = GrpoTrainer(TRL, trainer, rows, OPTIONS)
    assert await trl.run(0) == useful_tokens(rows)
    assert max(gaps(trl, right).values()) < 1e-5
    gc.collect()


@pytest.mark.parametrize(
    ("number", "reason"), [(None, "not installed"), ("1.15.2", "trl 1.15.2 is installed, 1.16 or later is needed")]
)
def test_why_trl_takes_no_part_is_said(number: str | None, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    from importlib.metadata import PackageNotFoundError

    def version(name: str) -> str:
        if number is None:
            raise PackageNotFoundError(name)
        return number

    monkeypatch.setattr("benchmarks.learner.grpo_trainer.version", version)
    assert why_no_trl() == reason
