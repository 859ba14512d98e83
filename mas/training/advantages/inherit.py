"""Nested workers get the advantage of the rollout that called them."""

from collections.abc import Mapping, Sequence


def inherited(rows: Sequence[str], parents: Mapping[str, str], advantages: Mapping[str, float]) -> list[float]:
    """Every row has the advantage of the main rollout it was called from, however deeply; main rollouts have theirs.

    Only main rollouts are compared with each other, so a worker's own reward enters no statistics.
    Source: MATPO, arXiv 2510.04678.

    Args:
        rows: N ids. parents: id of a worker -> id of who called it. advantages: id of a main rollout -> advantage.

    Raises:
        ValueError: a row leads to no main rollout, or its callers to each other in a circle.
    """
    found = []
    for row in rows:
        path = [row]
        while path[-1] not in advantages:
            caller = parents.get(path[-1])
            if caller is None or caller in path:
                why = "has no caller and no advantage" if caller is None else "is called by itself"
                raise ValueError(f"row {row!r} leads to no main rollout: {path[-1]!r} {why} (on the way: {path})")
            path.append(caller)
        found.append(advantages[path[-1]])
    return found


def row_multiplier(rows: int, mains: int) -> float:
    """What a sequence-mean loss over all rows is multiplied by: rows / main rollouts.

    Each row then weighs 1 / main rollouts, however many workers others called.
    Source: MATPO, arXiv 2510.04678.

    Raises:
        ValueError: there is no main rollout, or there are fewer rows than main rollouts.
    """
    if not 1 <= mains <= rows:
        raise ValueError(f"{rows} rows cannot hold {mains} main rollouts: give one or more, all of them rows")
    return rows / mains
