"""The check, before anything is learned, that a model's packed forward pass is its own.

Packing rests on what a model does not promise: that attention is all that connects tokens, that it obeys the layout,
and that logits are the head's product. A model that breaks one of these would learn from other numbers than it plays
with, and nothing would fail. So a few short texts with shared beginnings are scored both ways first.
"""

from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from mas.core.errors import ModelError
from mas.core.records import Turn
from mas.serving.check import Limits
from mas.serving.head import Head
from mas.serving.lora import AdapterBank
from mas.serving.publication import TOLERANCE
from mas.training.batch import TrainRow
from mas.training.feed import Feed
from mas.training.packing import MicroBatch


def short_rows(limits: Limits) -> list[TrainRow]:
    """Two answers to one prompt, a turn that continues one of them, and a short prompt.

    The first prompt is long enough to be attended to by itself, if the model's context has room for it.
    """
    ids = tuple(7 * place % limits.vocabulary for place in range(1, 101))
    first, answer, other = ids[: max(min(70, limits.context - 16), 1)], ids[70:74], ids[74:77]
    texts = ((first, answer), (first, other), (first + answer + ids[77:80], other), (ids[80:88], answer))
    return [TrainRow(_turn(prompt, completion), "", 0.0, 0.0) for prompt, completion in texts]


def _turn(prompt_ids: tuple[int, ...], completion_ids: tuple[int, ...]) -> Turn:
    return Turn(
        id="",
        episode="",
        task="",
        agent="",
        role="",
        turn=0,
        visit=0,
        candidate=0,
        parent=None,
        group="",
        trajectory="",
        state="",
        prompt_ids=prompt_ids,
        completion_ids=completion_ids,
        logprobs=(0.0,) * len(completion_ids),
        temperature=1.0,
        adapter=None,
        seed=0,
        finish="length",
        text="",
        rewards={},
        chosen=False,
    )


def check_packed(model: PreTrainedModel, bank: AdapterBank, head: Head, batches: Sequence[MicroBatch]) -> None:
    """Score some rows as they are packed, and each alone by the model's own forward pass; without adapters.

    Raises:
        ModelError: the log-probabilities differ by more than rounding.
    """
    gaps = []
    with torch.no_grad():
        for batch in batches:
            feed = Feed(batch, bank.device)
            with bank.training(feed.segments({})):
                packed_J = feed.scores(head, feed.hidden(model), 0).logprobs_J
            with bank.routing([None]):
                alone = [_alone(model, row.turn.prompt_ids, row.turn.completion_ids) for row in batch.rows]
            gaps.append((packed_J - torch.cat(alone)).abs())
    gap, allowed = float(torch.cat(gaps).mean()), TOLERANCE[str(model.dtype).removeprefix("torch.")]
    if not gap <= allowed:
        raise ModelError(
            f"{type(model).__name__} computes other log-probabilities when it is packed than alone: {gap:.2g} nats a "
            f"token, at most {allowed} is rounding. Use learner.pack=false learner.share_prompts=false "
            "learner.join_turns=false; if that is refused, too, mas cannot train this model"
        )


def _alone(model: PreTrainedModel, prompt_ids: tuple[int, ...], completion_ids: tuple[int, ...]) -> torch.Tensor:
    ids_1T = torch.tensor([[*prompt_ids, *completion_ids[:-1]]], device=model.device)
    logits_LV = model(input_ids=ids_1T, use_cache=False).logits[0, len(prompt_ids) - 1 :].float()
    tokens_L1 = torch.tensor(completion_ids, device=model.device)[:, None]
    logprobs_LV: torch.Tensor = logits_LV.log_softmax(-1)
    return logprobs_LV.gather(-1, tokens_L1)[:, 0]
