"""Preferences between siblings of a tree.

Source: MALT, arXiv 2412.01928, section 4. Siblings are candidates of one prompt and state. Pure functions on scalars.
"""

from collections import defaultdict
from collections.abc import Hashable, Sequence
from statistics import fmean

THRESHOLD = 0.5
_ROUNDING = 1e-9


def preference_labels(
    values: Sequence[float], groups: Sequence[Hashable], threshold: float | None = THRESHOLD
) -> list[bool | None]:
    """True: positive, V > threshold by more than rounding; False: negative, V <= threshold (MALT: 0.5).

    With `threshold` None each is compared with the mean of its siblings (not of MALT): above it is positive, below it
    negative, and None where it is neither.

    Raises:
        ValueError: the two lengths differ.
    """
    if len(values) != len(groups):
        raise ValueError(f"{len(values)} values but {len(groups)} groups: give one group per value")
    if threshold is not None:
        return [value - threshold > _ROUNDING for value in values]
    members: dict[Hashable, list[float]] = defaultdict(list)
    for value, group in zip(values, groups, strict=True):
        members[group].append(value)
    labels: list[bool | None] = []
    for value, group in zip(values, groups, strict=True):
        own = members[group]
        labels.append(None if min(own) == max(own) else _sign(value - fmean(own)))
    return labels


def sibling_pairs(labels: Sequence[bool | None], groups: Sequence[Hashable]) -> list[tuple[int, int]]:
    """(winner, loser) for every positive and every negative of one group, as indices, in order.

    Raises:
        ValueError: the two lengths differ.
    """
    if len(labels) != len(groups):
        raise ValueError(f"{len(labels)} labels but {len(groups)} groups: give one group per label")
    members: dict[Hashable, list[int]] = defaultdict(list)
    for index, group in enumerate(groups):
        members[group].append(index)
    return [
        (winner, loser)
        for own in members.values()
        for winner in own
        for loser in own
        if labels[winner] is True and labels[loser] is False
    ]


def _sign(difference: float) -> bool | None:
    return None if abs(difference) <= _ROUNDING else difference > 0
