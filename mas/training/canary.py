"""Two checks in every step that the served policy is the trained policy.

Before an update: the log-probabilities that came with the samples against the learner's for the same tokens. They meet
if the whole serving path (adapter, cache, padding, sampling) computes what the learner computes. After an update: the
engine must hold the learner's tensors bit by bit, however small the update was, and score a completion alike.

In float32 log-probabilities must agree to 1e-4 on average, in bfloat16 to 3e-2.
"""

from collections.abc import Mapping, Sequence
from statistics import fmean

import torch

from mas.core.errors import TrainingError
from mas.serving.forward import Row, completion_logits
from mas.serving.transformers_engine import TransformersEngine
from mas.training.batch import TrainRow
from mas.training.learner import Learner

TOLERANCE = {"float32": 1e-4, "bfloat16": 3e-2}


def check_sampled(learned: Mapping[str, Mapping[str, float]], dtype: str) -> None:
    """Compare the samples of a step with the policy that the learner held before it; `learned` is its metrics.

    Raises:
        TrainingError: a `behaviour_gap` is above the tolerance of the model's type.
    """
    for name, metrics in learned.items():
        gap = metrics["behaviour_gap"]
        if not gap <= TOLERANCE[dtype]:
            raise TrainingError(
                f"the samples of adapter {name!r} were not drawn from the policy in training: their log-probabilities "
                f"differ by {gap:.2g} nats a token, at most {TOLERANCE[dtype]} is allowed; the engine served another "
                "version, or computes something else"
            )


async def check_served(
    engine: TransformersEngine, learner: Learner, rows: Sequence[TrainRow], *, probes: int = 1
) -> dict[str, float]:
    """Mean absolute gap in nats between served and trained log-probabilities, per adapter with rows.

    Raises:
        TrainingError: the engine holds other tensors, or a gap is above the tolerance of the model's type.
    """
    gaps: dict[str, float] = {}
    for name in dict.fromkeys(row.adapter for row in rows):
        where = f"the engine does not serve what was trained: adapter {engine.adapters()[name]}"
        held, trained = engine.weights(name).parameters(), learner.adapters[name].parameters()
        if not all(torch.equal(a, b) for a, b in zip(held, trained, strict=True)):
            raise TrainingError(f"{where} holds other weights than the learner; its last update was not delivered")
        differences: list[float] = []
        for row in [row for row in rows if row.adapter == name][:probes]:
            served = await engine.score(row.turn.prompt_ids, row.turn.completion_ids, name)
            differences += [abs(a - b) for a, b in zip(served, _score(learner, row), strict=True)]
        gaps[name] = fmean(differences)
        tolerance = TOLERANCE[learner.base.options.dtype]
        if not gaps[name] <= tolerance:
            raise TrainingError(
                f"{where} differs by {gaps[name]:.2g} nats a token from the learner's, at most {tolerance} is allowed"
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
