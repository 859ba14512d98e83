"""Everybody who competes over one workload, with the same weights, adapters and rows."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.learner.competitors import FrozenBase, LearnerCompetitor, OurLearner, learner_options
from benchmarks.learner.grpo_trainer import GrpoTrainer, make_trainer, why_no_trl
from benchmarks.learner.models import make_base
from benchmarks.learner.names import FLOOR, OURS, PACKED, PADDED, TRL, TRL_CHECKPOINTED
from benchmarks.learner.options import LearnerBench
from benchmarks.learner.peft_loops import Packed, Padded, PeftLoop, widths_of
from benchmarks.learner.rows import make_rows, role_names
from benchmarks.learner.workload import WorkloadOptions
from benchmarks.models import make_adapter, peft_model, write_adapters
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.training.batch import TrainRow


@dataclass(frozen=True, slots=True)
class Field:
    """One workload's competitors in the table's order.

    Attributes:
        absent: short name -> why it could not run here.
        adapter_weights: numbers in one adapter; all have the same shape.
    """

    base: BaseModel
    competitors: Sequence[LearnerCompetitor]
    absent: Mapping[str, str]
    rows: Sequence[TrainRow]
    adapter_weights: int


def open_field(workload: WorkloadOptions, options: LearnerBench, folder: Path) -> Field:
    """Make the base, its adapters and rows in the folder, and everybody who trains them."""
    base = make_base(workload, folder / "base", seed=options.seed, threads=options.threads)
    adapters = make_adapters(base, workload, options.seed)
    rows = make_rows(base, adapters, workload, options.seed)
    paths = write_adapters(base, adapters, folder)
    trl = [name for name in options.rows if name in (TRL, TRL_CHECKPOINTED)]
    reason = why_no_trl() if trl else ""
    absent = dict.fromkeys(trl, reason) if reason else {}
    asked = [name for name in options.rows if name not in absent]
    made = [_competitor(name, workload, base, adapters, rows, paths, folder) for name in asked]
    return Field(base, made, absent, rows, weights_of(adapters))


def make_adapters(base: BaseModel, workload: WorkloadOptions, seed: int) -> dict[str, AdapterWeights]:
    """One adapter a role."""
    return {name: make_adapter(base, seed, name) for name in role_names(workload)}


def weights_of(adapters: Mapping[str, AdapterWeights]) -> int:
    """Numbers in one adapter; all have the same shape."""
    return sum(tensor.numel() for tensor in next(iter(adapters.values())).parameters())


def our_learner(
    name: str,
    base: BaseModel,
    adapters: Mapping[str, AdapterWeights],
    rows: Sequence[TrainRow],
    workload: WorkloadOptions,
) -> OurLearner:
    """mas at one workload."""
    return OurLearner(name, base, adapters, rows, learner_options(workload.micro_batch_tokens))


def _competitor(
    name: str,
    workload: WorkloadOptions,
    base: BaseModel,
    adapters: Mapping[str, AdapterWeights],
    rows: Sequence[TrainRow],
    paths: Mapping[str, Path],
    folder: Path,
) -> LearnerCompetitor:
    learner = learner_options(workload.micro_batch_tokens)
    if name == OURS:
        return our_learner(name, base, adapters, rows, workload)
    if name == FLOOR:
        return FrozenBase(base, rows, learner)
    model = peft_model(base, paths, is_trainable=True)
    if name == PADDED:
        return PeftLoop(name, model, rows, learner, Padded(workload.rows_per_forward, widths_of(rows)))
    if name == PACKED:
        return PeftLoop(name, model, rows, learner, Packed(workload.peft_packed_tokens))
    trainer = make_trainer(model, workload, folder / name, is_checkpointing=name == TRL_CHECKPOINTED)
    return GrpoTrainer(name, trainer, rows, learner)
