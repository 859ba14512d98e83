"""Where entropy trees branch: how much of a budget is spent on branches, and which turns are drawn again.

Entropies are in the unit in which the caller compares them (AEPO: divided by the logarithm of the vocabulary's size).
Source: AEPO, arXiv 2510.14545; AT2PO, arXiv 2601.04767.
"""

import math
from collections.abc import Sequence
from typing import Literal

from mas.core.options import NonNegative, Positive, Selective

BRANCH_FROM = 0.5
"""The branch score from which AEPO branches."""


class BranchOptions(Selective):
    """Where an entropy tree branches, by the mean entropy a token of turns that were drawn (of their first `tokens`).

    `rank`: `chains` whole episodes, then rounds in which the `expand` turns of the greatest entropy - `penalty` x
    (siblings - 1) are drawn again. `chance`: so many whole episodes as the entropy of the first turn against that of
    the others says; then a turn is drawn again where (u + `weight` (H - H of its episode's first turn)) x
    (1 - `penalty` x branches right before it) is at least 0.5, u uniform.
    """

    by: Literal["rank", "chance"] = "rank"
    chains: Positive = 4
    expand: Positive = 2
    penalty: NonNegative = 0.05
    weight: NonNegative = 0.2
    tokens: Positive | None = None

    def unused_reason(self, name: str) -> str | None:
        if name in ("chains", "expand") and self.by == "chance":
            return "by=chance chooses how many by entropies"
        return "by=rank compares entropies alone" if name == "weight" and self.by == "rank" else None


def whole_rollouts(budget: int, *, root_entropy: float, tool_entropy: float) -> int:
    """How many of the budget are whole rollouts; the rest are branches.

    m = clip(int(n sigmoid((H_root - H_tool) / 2)) + 1, 1, n): the more uncertain the question itself is, compared
    with what tools return, the more whole rollouts. H_root: of the first answer to the question; H_tool: mean over
    first tokens after tool results.
    Source: AEPO, arXiv 2510.14545 (as its code has it), n = 16.

    Raises:
        ValueError: a budget below 1, or an entropy that is not finite.
    """
    if budget < 1 or not (math.isfinite(root_entropy) and math.isfinite(tool_entropy)):
        raise ValueError(f"cannot split a budget of {budget} by entropies {root_entropy} and {tool_entropy}")
    share = (1 + math.tanh((root_entropy - tool_entropy) / 4)) / 2  # sigmoid without overflow
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
