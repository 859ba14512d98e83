"""A bounded bonus for using a tool early, added after normalisation."""

from collections.abc import Hashable, Sequence
from statistics import fmean

from mas.training.advantages.members import check_lengths, members


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
