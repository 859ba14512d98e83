"""A step's own term beside its trajectory's: A = A_episode + w A_step.

A_step is `group_advantages` of the steps' values in groups of steps: of one state or step index (`keys`), or random.
A_episode has its statistics once per trajectory (`trajectories`).
"""

import random
from collections.abc import Hashable, Sequence

from mas.core.naming import Part, derive_seed
from mas.core.records import Fact
from mas.training.advantages.members import check_lengths, members


class Anchor(Fact, frozen=True):
    """Of a turn. `state`: fingerprint of where its task stands, whatever the time and the way there
    (`mas.core.environment.anchor_of`), and of the messages that its agent has."""

    state: str = ""


def with_steps(episode: Sequence[float], step: Sequence[float], weight: float = 1.0) -> list[float]:
    """A = A_episode + weight x A_step.

    Source: GiGPO, arXiv 2505.10978; UI-S1, arXiv 2509.11543; SRGPO, arXiv 2512.02631; OPRL, arXiv
    2509.19199.

    Args:
        episode: of N rows, equal within a trajectory. step: of the same rows.

    Raises:
        ValueError: the two lengths differ.
    """
    check_lengths({"advantages of episodes": episode, "advantages of steps": step})
    return [own + weight * term for own, term in zip(episode, step, strict=True)]


def random_groups(
    labels: Sequence[str], size: int, *seed: Part, within: Sequence[Hashable] | None = None
) -> list[tuple[Hashable, int]]:
    """Group keys that put rows together at random, for step rewards that mean the same in every state.

    Depends on labels and seed alone, not on the order of the rows. The last group of a scope has what is left over;
    if that is one row alone, it is compared with nothing.
    Source: SRGPO, arXiv 2512.02631 (size 16, from the whole batch).

    Args:
        labels: N different names of rows. size: rows per group, at least 2. seed: names and numbers.
        within: the scope of each row, e.g. its task: groups lie inside one. None: the whole batch.

    Raises:
        ValueError: lengths differ, labels repeat, or the size is below 2.
    """
    within = within if within is not None else [None] * len(labels)
    check_lengths({"labels": labels, "scopes": within})
    if size < 2:
        raise ValueError(f"random groups of {size} have nothing to compare: the size must be 2 or more")
    if len(set(labels)) < len(labels):
        raise ValueError(f"{len(labels)} rows have only {len(set(labels))} labels: each row needs one of its own")
    keys: list[tuple[Hashable, int]] = [(None, 0)] * len(labels)
    for scope, indices in members(within).items():
        ordered = sorted(indices, key=lambda index: labels[index])
        random.Random(derive_seed("random groups", *seed, labels[ordered[0]])).shuffle(ordered)
        for place, i in enumerate(ordered):
            keys[i] = scope, place // size
    return keys
