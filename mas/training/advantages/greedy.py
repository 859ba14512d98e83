"""Against what the policy's most likely answer earns."""

from collections.abc import Sequence

from mas.training.advantages.members import check_lengths


def greedy_advantages(rewards: Sequence[float], greedy: Sequence[float]) -> list[float]:
    """A = R - R of the greedy answer to the same prompt. Source: ReMax, arXiv 2310.10505.

    Args:
        rewards: of N rows. greedy: of each row's prompt answered at temperature 0.

    Raises:
        ValueError: the two lengths differ.
    """
    check_lengths({"rewards": rewards, "rewards of greedy answers": greedy})
    return [reward - base for reward, base in zip(rewards, greedy, strict=True)]
