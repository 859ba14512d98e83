"""Every reward term compared by itself, so that a small or rare one is not lost in the sum."""

import math
from collections.abc import Hashable, Mapping, Sequence

from mas.training.advantages.group import group_advantages
from mas.training.advantages.members import check_lengths
from mas.training.advantages.whiten import whiten


def component_advantages(
    components: Mapping[str, Sequence[float]],
    keys: Sequence[Hashable],
    weights: Mapping[str, float],
    *,
    buffers: Sequence[Hashable] | None = None,
    tokens: Sequence[int] | None = None,
) -> list[float]:
    """z of each term in its group, their weighted sum, then `whiten` over the batch.

    Source: GDPO, arXiv 2601.05242.

    Args:
        components: name -> N scalars. keys: N group keys.
        weights: name -> weight; a term without one counts once.
        buffers: what is whitened together, e.g. agents; None: the whole batch. tokens: as in `whiten`.

    Raises:
        ValueError: no component, lengths differ, or a weight names no component.
    """
    unknown = sorted(set(weights) - set(components))
    if unknown or not components:
        raise ValueError(f"weights are given for {unknown}, but the reward's components are {sorted(components)}")
    check_lengths({"group keys": keys} | {f"rewards of {name}": values for name, values in components.items()})
    terms = [
        [weights.get(name, 1.0) * advantage for advantage in group_advantages(values, keys)]
        for name, values in components.items()
    ]
    return whiten([math.fsum(row) for row in zip(*terms, strict=True)], buffers, tokens=tokens)
