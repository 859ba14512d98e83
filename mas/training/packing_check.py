"""The check, before anything is learned, that a model's packed forward pass is its own, and how exact it can be.

Packing rests on what a model does not promise: that attention is all that connects tokens, that it obeys the layout,
and that logits are the head's product. A model that breaks one of these would learn from other numbers than it plays
with, and nothing would fail. So a few short texts with shared beginnings are scored both ways first.

In float32 two right ways agree to 1e-4 nats a token, whatever the text. In bfloat16 they differ by the model's own
rounding, so that is measured: by two ways without packing, on text that the model writes.
"""

from collections.abc import Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from mas.core.errors import ModelError
from mas.core.records import Group, Turn
from mas.serving.adapter_bank import AdapterBank
from mas.serving.forward import ScoredRow, completion_logprobs
from mas.serving.logits import Head
from mas.serving.model import BaseModel
from mas.serving.publication import TOLERANCE, TOLERANCE_OVER_ROUNDING
from mas.training.batch import MicroBatch, TrainRow
from mas.training.batch_tensors import BatchTensors

_COARSEST = 0.5
"""Mean nats a token: a tolerance above it could not tell a right policy from a wrong one."""
_TEXT = (
    "The shop on the corner opens at nine in the morning and closes at six in the evening. On Sundays it stays closed, "
    "but the owner lives upstairs and answers the door when the bell rings. What should a customer do who comes at "
    "seven? Write one sentence."
)
_SHORT = "What is the capital of France?"


def short_rows(base: BaseModel) -> list[TrainRow]:
    """Two answers to one prompt, a turn that continues one of them, and a short prompt.

    The first prompt is long enough to be attended to by itself, if the model's context has room for it. In float32 the
    ids are arbitrary; otherwise prompts are text and completions are sampled from the model.
    """
    if base.model.dtype != torch.float32:
        return _written(base)
    ids = tuple(7 * place % base.limits.vocabulary for place in range(1, 101))
    first, answer, other = ids[: max(min(70, base.limits.context - 16), 1)], ids[70:74], ids[74:77]
    texts = ((first, answer), (first, other), (first + answer + ids[77:80], other), (ids[80:88], answer))
    return [TrainRow(_turn(prompt, completion), "", 0.0, 0.0) for prompt, completion in texts]


def _written(base: BaseModel) -> list[TrainRow]:
    new = max(min(8, base.limits.context // 4), 1)
    room = max(base.limits.context - 3 * new, 1)
    first, short = (_prompt(base, text)[-room:] for text in (_TEXT, _SHORT))
    one, two = _sampled(base, first, new, 0), _sampled(base, first, new, 1)
    longer = first + one + short[: max(room - len(first), 0)]
    texts = (
        (first, one),
        (first, two),
        (longer, _sampled(base, longer, new, 2)),
        (short, _sampled(base, short, new, 3)),
    )
    return [TrainRow(_turn(prompt, completion), "", 0.0, 0.0) for prompt, completion in texts]


def _prompt(base: BaseModel, text: str) -> tuple[int, ...]:
    """Ids of a question, without those that the tokenizer has and the model does not."""
    has_chat = base.tokenizer.has_chat
    ids = base.tokenizer.chat_messages([("user", text)]) if has_chat else base.tokenizer.encode(text)
    return tuple(one for one in ids if one < base.limits.vocabulary)


def _sampled(base: BaseModel, prompt: tuple[int, ...], count: int, seed: int) -> tuple[int, ...]:
    """`count` tokens at temperature 1, none of which ends the text."""
    ids_1T = torch.tensor([prompt], device=base.model.device)
    model: Any = base.model
    with torch.random.fork_rng(), base.bank.routing([None]):
        torch.manual_seed(seed)
        made_1T = model.generate(
            ids_1T,
            attention_mask=torch.ones_like(ids_1T),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            min_new_tokens=count,
            max_new_tokens=count,
            pad_token_id=0,
        )
    return tuple(made_1T[0, len(prompt) :].tolist())


def tolerance_of(base: BaseModel, rows: Sequence[TrainRow]) -> float:
    """Mean nats a token by which right log-probabilities of this model may differ.

    Constant in float32; otherwise three times the difference between rows alone and rows padded to a batch with the
    plainest attention, and the constant of the type at least.

    Raises:
        ModelError: they differ so much that nothing could be checked.
    """
    least = TOLERANCE[str(base.model.dtype).removeprefix("torch.")]
    if base.model.dtype == torch.float32:
        return least
    with torch.no_grad(), base.bank.routing([None]):
        alone = torch.cat([_alone(base.model, row.turn.prompt_ids, row.turn.completion_ids) for row in rows])
    used = base.model.config.get_text_config()._attn_implementation
    base.model.set_attn_implementation("eager")
    try:
        padded = completion_logprobs(
            base.model, base.bank, [ScoredRow(row.turn.prompt_ids, row.turn.completion_ids) for row in rows]
        )
    finally:
        base.model.set_attn_implementation(used)
    together = torch.tensor([value for one in padded for value in one], device=alone.device)
    rounding = float((alone - together).abs().mean())
    if not rounding * TOLERANCE_OVER_ROUNDING <= _COARSEST:
        raise ModelError(
            f"{base.name!r} in {base.options.dtype}: log-probabilities of one text differ by {rounding:.2g} nats "
            f"a token between two ways to compute them, more than {_COARSEST / TOLERANCE_OVER_ROUNDING:.2g}: what is "
            "learned could not be checked. Use model.dtype=float32"
        )
    return max(least, rounding * TOLERANCE_OVER_ROUNDING)


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
        group=Group(kind="task", task="", agent=""),
        trajectory="",
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


def check_packed(
    model: PreTrainedModel, bank: AdapterBank, head: Head, batches: Sequence[MicroBatch], allowed: float
) -> None:
    """Score some rows as they are packed, and each alone by the model's own forward pass; without adapters.

    Raises:
        ModelError: the log-probabilities differ by more than rounding.
    """
    gaps = []
    with torch.no_grad():
        for batch in batches:
            tensors = BatchTensors(batch, bank.device)
            with bank.segmented(tensors.segments({})):
                packed_J = tensors.scores(head, tensors.hidden(model), 0).logprobs_J
            with bank.routing([None]):
                alone = [_alone(model, row.turn.prompt_ids, row.turn.completion_ids) for row in batch.rows]
            gaps.append((packed_J - torch.cat(alone)).abs())
    gap = float(torch.cat(gaps).mean())
    if not gap <= allowed:
        raise ModelError(
            f"{type(model).__name__} computes other log-probabilities when it is packed than alone: {gap:.2g} nats a "
            f"token, at most {allowed:.2g} is rounding. Use learner.pack=false learner.share_prompts=false "
            "learner.join_turns=false; if that is refused, too, mas cannot train this model"
        )


def _alone(model: PreTrainedModel, prompt_ids: tuple[int, ...], completion_ids: tuple[int, ...]) -> torch.Tensor:
    ids_1T = torch.tensor([[*prompt_ids, *completion_ids[:-1]]], device=model.device)
    logits_LV = model(input_ids=ids_1T, use_cache=False).logits[0, len(prompt_ids) - 1 :].float()
    tokens_L1 = torch.tensor(completion_ids, device=model.device)[:, None]
    logprobs_LV: torch.Tensor = logits_LV.log_softmax(-1)
    return logprobs_LV.gather(-1, tokens_L1)[:, 0]
