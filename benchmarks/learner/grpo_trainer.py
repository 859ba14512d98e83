"""TRL's `GRPOTrainer` on our rows: its own loss and metrics, over its own forward pass; no generation, no rewards.

What is set otherwise than by default: `loss_type="grpo"` and `delta`, so that it minimises what mas does. Its trainer
takes the optimiser's step in a loop that also generates; here AdamW is that of `PeftCompetitor`, as for everybody.
"""

import warnings
from collections.abc import Sequence
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.learner.competitors import CLIP, DUAL_CLIP, STEP_LOSS
from benchmarks.learner.peft_loops import PaddedRows, PeftCompetitor, Widths, pad, widths_of
from benchmarks.learner.workload import WorkloadOptions
from mas.config.options import LearnerOptions
from mas.serving.model import tiny_tokenizer
from mas.training.batch import TrainRow

_OLDEST = (1, 16)
"""Its first version whose trainer takes the inputs that `trainer_inputs` makes."""


def why_no_trl() -> str:
    """Why TRL cannot take part here; empty where it can."""
    try:
        number = version("trl")
        if tuple(int(part) for part in number.split(".")[:2]) < _OLDEST:
            return f"trl {number} is installed, {'.'.join(map(str, _OLDEST))} or later is needed"
        import datasets  # noqa: F401 - to see whether it can be imported
        from trl import GRPOTrainer  # noqa: F401 - the same
    except PackageNotFoundError:
        return "not installed"
    except (ImportError, RuntimeError) as error:  # transformers and TRL import on demand, and wrap what fails
        return f"cannot be imported: {error}".splitlines()[0]
    return ""


class GrpoTrainer(PeftCompetitor):
    """One trainer over a `PeftModel` with all roles' adapters, roles in turn."""

    def __init__(self, name: str, trainer: Any, rows: Sequence[TrainRow], options: LearnerOptions) -> None:
        super().__init__(name, trainer.model, rows, options)
        self._trainer = trainer
        self._widths = widths_of(rows)

    def backward(self, rows: Sequence[TrainRow]) -> dict[str, float]:
        size = self._trainer.args.per_device_train_batch_size
        self._trainer.current_gradient_accumulation_steps = len(rows) // size
        total = torch.zeros((), device=self.model.device)
        for start in range(0, len(rows), size):
            inputs = trainer_inputs(rows[start : start + size], self._widths, self.model.device)
            loss = self._trainer.compute_loss(self._trainer.model, inputs)
            loss.backward()
            total += loss.detach()
        return {STEP_LOSS: float(total)}


def trainer_inputs(rows: Sequence[TrainRow], widths: Widths, device: torch.device) -> dict[str, Tensor]:
    """Rows of one role as the trainer's own generation step hands them over."""
    batch = PaddedRows.of(rows, widths, device)
    behaved = [torch.tensor(row.turn.logprobs) for row in rows]
    return {
        "prompt_ids": batch.prompts_NP,
        "prompt_mask": batch.prompt_mask_NP,
        "completion_ids": batch.completions_NC,
        "completion_mask": batch.mask_NC,
        "advantages": torch.tensor([row.advantage for row in rows], device=device),
        "old_per_token_logps": pad(behaved, "right", batch.mask_NC.shape[1]).to(device),
    }


def make_trainer(model: Any, workload: WorkloadOptions, directory: Path, *, is_checkpointing: bool) -> Any:
    """TRL's trainer over a `PeftModel`; torch's random state is left as it was."""
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    arguments = GRPOConfig(
        output_dir=str(directory),
        per_device_train_batch_size=workload.rows_per_forward,
        gradient_accumulation_steps=workload.groups * workload.candidates // workload.rows_per_forward,
        num_generations=workload.candidates,
        max_completion_length=workload.completion_tokens[1],
        beta=0.0,
        loss_type="grpo",
        epsilon=CLIP,
        epsilon_high=CLIP,
        delta=DUAL_CLIP,
        bf16=workload.dtype == "bfloat16",
        use_cpu=workload.device == "cpu",
        gradient_checkpointing=is_checkpointing,
        report_to="none",
        disable_tqdm=True,
    )
    with torch.random.fork_rng(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what its libraries have to say of one another
        trainer = GRPOTrainer(
            model=model,
            reward_funcs=_no_reward,
            args=arguments,
            train_dataset=Dataset.from_dict({"prompt": [""]}),
            processing_class=tiny_tokenizer(),
        )
    if is_checkpointing:  # as the trainer's own loop does when it starts
        trainer.model.gradient_checkpointing_enable()
    trainer.model.train()
    return trainer


def _no_reward(completions: Sequence[str], **columns: object) -> list[float]:
    """The trainer wants one; nothing is generated, so nothing is rewarded."""
    return [0.0] * len(completions)
