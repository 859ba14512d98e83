"""A check after every publish that the engine holds the adapter that was trained.

Leaves out on purpose: the decoding path, as both sides score with one forward pass; and updates smaller than the
tolerance, such as those of very small learning rates.

The engine scores a few of the step's own completions and the learner scores the same; in float32 the two must agree
to 1e-4, in bfloat16 to 3e-2 on average. An update that was not delivered shows as a gap.
"""

from collections.abc import Sequence
from statistics import fmean

import torch

from mas.core.errors import TrainingError
from mas.serving.forward import Row, completion_logits
from mas.serving.transformers_engine import TransformersEngine
from mas.training.batch import TrainRow
from mas.training.learner import Learner

TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2}


async def check_served(
    engine: TransformersEngine, learner: Learner, rows: Sequence[TrainRow], *, probes: int = 1
) -> dict[str, float]:
    """Mean absolute gap in nats between served and trained log-probabilities, per adapter with rows.

    Raises:
        TrainingError: a gap is above the tolerance of the model's type.
    """
    gaps: dict[str, float] = {}
    for name in dict.fromkeys(row.adapter for row in rows):
        own = [row for row in rows if row.adapter == name][:probes]
        differences: list[float] = []
        for row in own:
            served = await engine.score(row.turn.prompt_ids, row.turn.completion_ids, name)
            trained = _score(learner, row)
            differences += [abs(a - b) for a, b in zip(served, trained, strict=True)]
        gaps[name] = fmean(differences)
        tolerance = TOLERANCE[learner.base.options.dtype]
        if not gaps[name] <= tolerance:
            raise TrainingError(
                f"the engine does not serve what was trained: adapter {name!r} differs by {gaps[name]:.2g} nats "
                f"a token from the learner's, at most {tolerance} is allowed; its last update was not delivered"
            )
    return gaps


def _score(learner: Learner, row: TrainRow) -> list[float]:
    turn = row.turn
    with torch.no_grad():
        inputs = [Row(turn.prompt_ids, turn.completion_ids, learner.adapters[row.adapter])]
        logits_LV = completion_logits(learner.base.model, learner.base.bank, inputs)[0]
        tokens_L1 = torch.tensor(turn.completion_ids, device=logits_LV.device)[:, None]
        scores: list[float] = torch.log_softmax(logits_LV, -1).gather(-1, tokens_L1)[:, 0].tolist()
    return scores
