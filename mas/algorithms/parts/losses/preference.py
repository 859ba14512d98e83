"""Losses of imitation and preference, and what they are as weights of log-probabilities. Free of torch.

Both losses are functions of sums of log pi over completions, so their gradient is a weighted sum of the gradients of
those: with the weights from a pass without gradient, each completion is learned from by itself, and the two of a pair
need not be in one micro-batch.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.core.options import NonNegative, Options


class PreferenceOptions(Options):
    """loss = `sft` x mean of -log pi over the tokens of positives + `dpo` x mean over pairs of -log sigmoid(margin).

    `value`: what a candidate is worth: the share of won episodes below it in its tree (`outcome`), or its reward as
    `algorithm.reward` adds it up (`reward`). It is positive where that is above `threshold`; None: above the mean of
    its siblings. Pairs are a positive and a negative of the same prompt and state; roles `sft_only` only imitate.
    `repairs`: the role that failed also imitates what the reflector says (`sampler.attempts.guide=repair`), as the
    answer to its own prompt. `beta` and `reference` are DPO's: the base with its adapter off, or the adapter as the
    step began (`start`).
    """

    value: Literal["outcome", "reward"] = "outcome"
    threshold: float | None = 0.5
    sft: NonNegative = 1.0
    dpo: NonNegative = 1.0
    beta: Annotated[float, Field(gt=0)] = 0.1
    reference: Literal["base", "start"] = "base"
    sft_only: tuple[str, ...] = ()
    repairs: bool = False

    def unused_reason(self, name: str) -> str | None:
        if name in ("beta", "reference", "sft_only") and not self.dpo:
            return "dpo is 0: nothing is learned from pairs"
        return None

    @model_validator(mode="after")
    def _something_is_learned(self) -> Self:
        if not self.sft and not self.dpo:
            raise ValueError("sft and dpo are both 0: nothing would be learned; give one of them a weight above 0")
        if self.sft_only and not self.sft:
            raise ValueError(f"roles {list(self.sft_only)} only imitate and sft is 0: give it a weight, or no sft_only")
        return self


@dataclass(frozen=True, slots=True)
class PairLoss:
    """The loss of one pair. `weight`: minus the loss's slope towards log pi of the winner, and plus that of the loser;
    `margin`: the reward of the winner less that of the loser, both as beta x log(pi / reference)."""

    loss: float
    weight: float
    margin: float


def dpo_pair(winner: float, loser: float, *, beta: float) -> PairLoss:
    """-log sigmoid(margin), margin = beta (winner - loser); its slope towards the winner is -beta sigmoid(-margin).

    Source: DPO, arXiv 2305.18290, equation 7 and its gradient in section 4.

    Args:
        winner, loser: log pi - log reference of the completion, summed over its tokens, in nats.
    """
    margin = beta * (winner - loser)
    # log(1 + exp(-margin)) without overflow
    loss = max(-margin, 0.0) + math.log1p(math.exp(-abs(margin)))
    weight = beta * (1 / (1 + math.exp(margin)) if margin < 0 else math.exp(-margin) / (1 + math.exp(-margin)))
    return PairLoss(loss, weight, margin)


@dataclass(frozen=True, slots=True)
class PreferenceLoss:
    """`loss` = sft x mean of -log pi over the tokens of positives + dpo x mean over pairs of -log sigmoid(margin).

    `sft` is the first mean, None where nothing is imitated; `pairs`: each pair's loss. `weights`: of each completion,
    minus the loss's slope towards the sum of its tokens' log pi.
    """

    loss: float
    sft: float | None
    weights: tuple[float, ...]
    pairs: tuple[PairLoss, ...]


def preference_loss(
    logprobs: Sequence[Sequence[float]],
    reference: Sequence[Sequence[float]],
    positives: Sequence[int],
    pairs: Sequence[tuple[int, int]],
    *,
    sft: float,
    dpo: float,
    beta: float,
) -> PreferenceLoss:
    """The loss of the completions of one adapter. A mean over nothing is 0.

    Args:
        logprobs, reference: of N completions each token's log-probability, by the policy and by the reference.
        positives: indices of the completions to imitate. pairs: (winner, loser), as indices.
        sft, dpo: the two coefficients.
    """
    weights = [0.0] * len(logprobs)
    tokens = sum(len(logprobs[index]) for index in positives)
    for index in positives:
        weights[index] += sft / tokens
    gaps = [math.fsum(own) - math.fsum(other) for own, other in zip(logprobs, reference, strict=True)]
    found = tuple(dpo_pair(gaps[winner], gaps[loser], beta=beta) for winner, loser in pairs)
    for (winner, loser), pair in zip(pairs, found, strict=True):
        weights[winner] += dpo * pair.weight / len(pairs)
        weights[loser] -= dpo * pair.weight / len(pairs)
    nll = -math.fsum(math.fsum(logprobs[index]) for index in positives) / tokens if tokens else None
    preferred = math.fsum(pair.loss for pair in found) / max(len(found), 1)
    return PreferenceLoss(sft * (nll or 0.0) + dpo * preferred, nll, tuple(weights), found)
