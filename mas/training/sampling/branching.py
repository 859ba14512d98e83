"""Where a budget of samples is spent: on whole rollouts, or on branches at uncertain places.

Entropies are in the unit in which the caller compares them (AEPO: divided by the logarithm of the vocabulary's size).
"""

import math
from collections.abc import Sequence

BRANCH_FROM = 0.5
"""The branch score from which AEPO branches."""


def whole_rollouts(budget: int, *, root_entropy: float, tool_entropy: float, slope: float = 0.5) -> int:
    """How many of the budget are whole rollouts; the rest are branches.

    m = clip(int(n sigmoid(slope (H_root - H_tool))) + 1, 1, n): the more uncertain the question itself is, compared
    with what tools return, the more whole rollouts. H_root: of the first answer to the question; H_tool: mean over
    first tokens after tool results.
    Source: AEPO, arXiv 2510.14545 (as its code has it), n = 16.

    Raises:
        ValueError: a budget below 1, or an entropy that is not finite.
    """
    if budget < 1 or not (math.isfinite(root_entropy) and math.isfinite(tool_entropy)):
        raise ValueError(f"cannot split a budget of {budget} by entropies {root_entropy} and {tool_entropy}")
    share = (1 + math.tanh(slope * (root_entropy - tool_entropy) / 2)) / 2  # sigmoid without overflow
    return min(int(budget * share) + 1, budget)


def branch_score(
    draw: float, *, entropy: float, root_entropy: float, consecutive: int, weight: float = 0.2, penalty: float = 0.05
) -> float:
    """clip((u + weight (H_t - H_0)) max(0, 1 - penalty l), 0, 1); a branch is made from `BRANCH_FROM` on.

    Args:
        draw: u, uniform in [0, 1). consecutive: l, branches made at the steps right before this one.

    Source: AEPO, arXiv 2510.14545 (as its code has it).

    Raises:
        ValueError: the draw is outside of [0, 1], or `consecutive` is negative.
    """
    if not 0 <= draw <= 1 or consecutive < 0:
        raise ValueError(f"a draw of {draw} after {consecutive} branches: [0, 1] and at least 0 are possible")
    score = (draw + weight * (entropy - root_entropy)) * max(0.0, 1 - penalty * consecutive)
    return min(max(score, 0.0), 1.0)


def to_expand(
    entropies: Sequence[float], siblings: Sequence[int], *, count: int, penalty: float = 0.05
) -> tuple[int, ...]:
    """Indices of the nodes of a tree to branch from next, the best first: uncertain, and not often branched already.

    Score = entropy - penalty (siblings - 1), `siblings` counting the node itself. Of equals the first. Fewer nodes than
    `count`: all of them.
    Source: AT2PO, arXiv 2601.04767: 10 chains, then two rounds of 6 nodes, 22 leaves.

    Raises:
        ValueError: the two lengths differ, a node has no sibling count of at least 1, or the count is negative.
    """
    if len(entropies) != len(siblings):
        raise ValueError(f"{len(entropies)} entropies but {len(siblings)} numbers of siblings: give one per node")
    if count < 0 or any(number < 1 for number in siblings):
        raise ValueError(f"cannot choose {count} nodes with {list(siblings)} siblings: at least 0, and 1 for each")
    scores = [entropy - penalty * (number - 1) for entropy, number in zip(entropies, siblings, strict=True)]
    return tuple(sorted(range(len(scores)), key=lambda node: -scores[node])[:count])
