"""Which groups of episodes have something to tell.

Source: Training-Free GRPO, arXiv 2510.08191: groups with 0 < mean reward < 1, for rewards of 0 and 1.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import TypeVar

Key = TypeVar("Key", bound=Hashable)


def is_telling(scores: Sequence[float]) -> bool:
    """Whether some did better than others and, of scores from 0 to 1, neither all are 0 nor all are 1.

    For scores of 0 and 1 this is 0 < mean < 1. For others it is our reading: a group of equal ones compares nothing.
    """
    return bool(scores) and min(scores) < max(scores)


def telling(scores: Mapping[Key, Sequence[float]]) -> list[Key]:
    """The groups to learn from, in order. `scores`: group -> one per episode."""
    return [key for key, values in scores.items() if is_telling(values)]
