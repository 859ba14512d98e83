"""What changes advantages after the comparison: a bonus for early tools, and scales by uncertainty."""

import math
from collections.abc import Hashable, Sequence
from itertools import pairwise
from statistics import fmean
from typing import Annotated

from pydantic import Field

from mas.algorithms.parts.advantages.group import check_lengths, members, standardised
from mas.core.options import NonNegative, Options, Selective


class EarlyOptions(Options):
    """A bonus for tools that are used early, in episodes that are won and use one: A + clip(`delta` (p - mean p) /
    mean L, -`bound` |A|, `bound` |A|), p the tokens before the first call, L those of the episode."""

    delta: Annotated[float, Field(lt=0)] = -2.0
    bound: Annotated[float, Field(gt=0, lt=1)] = 0.7


def early_bonus(
    advantages: Sequence[float],
    positions: Sequence[int | None],
    lengths: Sequence[int],
    keys: Sequence[Hashable],
    *,
    delta: float,
    bound: float,
) -> list[float]:
    """A_i + clip(delta (p_i - mean p) / mean L, -bound |A_i|, bound |A_i|), means over the group's eligible answers.

    A bound below 1 keeps every sign, and an advantage of 0 stays 0, so that a group of right answers does not teach
    the bonus alone. Other answers keep theirs.
    Source: ASPO, arXiv 2508.19201 (delta and bound are not stated there). |A_i| where the paper has A_i is
    our reading for a right answer below its group's mean.

    Args:
        advantages: of N answers. positions: of the first use of the tool, in tokens, in answers that are right and use
            it; None: not eligible. lengths: of the answers in tokens. keys: their groups.
        delta: below 0 favours early use. bound: at least 0, below 1.

    Raises:
        ValueError: lengths differ, the bound is outside [0, 1), or an eligible answer is shorter than 1 token.
    """
    check_lengths({"advantages": advantages, "positions": positions, "lengths": lengths, "group keys": keys})
    if not 0 <= bound < 1:
        raise ValueError(f"the bound must be at least 0 and below 1, or signs are not kept: it is {bound}")
    shaped = list(advantages)
    for indices in members(keys).values():
        placed = {i: place for i in indices if (place := positions[i]) is not None}
        if not placed:
            continue
        if min(lengths[i] for i in placed) < 1:
            raise ValueError("an answer that uses a tool has length 0: give the lengths in tokens")
        middle, long = fmean(placed.values()), fmean(lengths[i] for i in placed)
        for i, place in placed.items():
            most = bound * abs(advantages[i])
            shaped[i] += min(max(delta * (place - middle) / long, -most), most)
    return shaped


class UncertaintyOptions(Selective):
    """Advantages x exp(-`scale` H) / mean, + `clarity` x exp(-`clarity_scale` H of the next turn), less the mean.

    H: the turn's mean entropy a token, from 0 for the least of the batch to 1 for the greatest.
    """

    scale: NonNegative = 1.0
    clarity: NonNegative = 0.05
    clarity_scale: NonNegative = 1.0

    def unused_reason(self, name: str) -> str | None:
        return "clarity is 0" if name == "clarity_scale" and not self.clarity else None


def modulated_advantages(
    advantages: Sequence[Sequence[float]],
    entropies: Sequence[Sequence[float]],
    *,
    sharpness: float,
    future_sharpness: float,
    future_weight: float,
) -> list[list[float]]:
    """Confident steps count more, uncertain ones less, and steps that lead to a confident one get a bonus.

    With H min-max normalised over the batch: A_t = A g(H_t) + future_weight f(H_(t+1)), g = exp(-sharpness H) / its
    mean over the batch, f = exp(-future_sharpness H), no bonus for the last step (our reading); at last the batch's
    mean is taken off.
    Source: EMPG, arXiv 2509.09265; the exponential form of f is our reading.

    Args:
        advantages: of N trajectories' steps, equal within one where only trajectories were compared.
        entropies: of the same steps, the mean over the step's tokens.

    Returns:
        N x steps of that trajectory.

    Raises:
        ValueError: lengths differ.
    """
    check_lengths({"advantages of trajectories": advantages, "trajectories with entropies": entropies})
    normal = normalised(entropies)
    scales = confidence(normal, sharpness)
    rows = []
    for advantage, own, scale in zip(advantages, normal, scales, strict=True):
        bonus = [future_weight * math.exp(-future_sharpness * after) for _, after in pairwise(own)] + [0.0]
        check_lengths({"advantages of a trajectory": advantage, "entropies of it": own})
        parts = zip(advantage, scale, bonus[: len(own)], strict=True)
        rows.append([value * factor + extra for value, factor, extra in parts])
    return centred(rows)


def normalised(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """(x - least) / (most - least) over all rows together; 0 where all are equal."""
    every = [value for row in rows for value in row]
    least, most = min(every, default=0.0), max(every, default=0.0)
    return [[(value - least) / (most - least) if most > least else 0.0 for value in row] for row in rows]


def confidence(rows: Sequence[Sequence[float]], sharpness: float) -> list[list[float]]:
    """g = exp(-sharpness H) / mean over all rows together of exp(-sharpness H): its mean is one."""
    raw = [[math.exp(-sharpness * value) for value in row] for row in rows]
    mean = fmean([value for row in raw for value in row] or [1.0])
    return [[value / mean for value in row] for row in raw]


def centred(rows: Sequence[Sequence[float]]) -> list[list[float]]:
    """Less the mean over all rows together."""
    mean = fmean([value for row in rows for value in row] or [0.0])
    return [[value - mean for value in row] for row in rows]


def surprise(logprobs: Sequence[float]) -> float:
    """-mean log p of tokens that were drawn: an unbiased estimate of the mean entropy a token, in nats; 0 for none.

    Source: AT2PO, arXiv 2601.04767 (as its code has it): the entropy of a node.
    """
    return -fmean(logprobs) if logprobs else 0.0


def entropy_scaled(advantages: Sequence[float], entropies: Sequence[float], weight: float = 0.2) -> list[float]:
    """A (1 + weight z(H)), z over all that is given: uncertain tokens count more.

    Source: AEPO, arXiv 2510.14545 (over the batch's trained tokens).

    Args:
        advantages: of N tokens (or turns). entropies: of their distributions, in nats, without gradient.

    Raises:
        ValueError: the two lengths differ.
    """
    check_lengths({"advantages": advantages, "entropies": entropies})
    return [a * (1 + weight * z) for a, z in zip(advantages, standardised(entropies), strict=True)]
