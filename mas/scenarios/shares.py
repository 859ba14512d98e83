"""Numbers that members say at once, and how equally something is shared among people."""

from collections.abc import Iterable, Mapping, Sequence

from mas.core.messages import read_joint


def written(numbers: Iterable[int], *, is_compact: bool) -> str:
    """The numbers of all members in one text: digits in a row, or with a space between."""
    return ("" if is_compact else " ").join(map(str, numbers))


def read_parts(action: str, names: Sequence[str], *, is_compact: bool) -> Mapping[str, str]:
    """Member -> what it said, of a joint action or of one text as `written` makes it; `?` for all of anything else."""
    said = read_joint(action, names)
    if said is not None:
        return said
    parts = list(action) if is_compact else action.split(" ")
    return dict(zip(names, parts, strict=True)) if len(parts) == len(names) else dict.fromkeys(names, "?")


def gini(values: Sequence[float]) -> float:
    """Mean absolute difference of all pairs over twice the mean: 0 for equal values, and where nobody has anything.

    G = sum_i sum_j |x_i - x_j| / (2 n sum_i x_i).
    """
    total = sum(values)
    if not total:
        return 0.0
    return sum(abs(one - other) for one in values for other in values) / (2 * len(values) * total)
