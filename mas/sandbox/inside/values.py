"""Values as text that is equal exactly when the values are equal and of one type.

The sandbox sends such text out and the expected value is written the same way outside, so that nothing a program made
is ever read as anything but text.
"""

DEPTH = 50
"""Containers within containers."""


def canonical(value: object, depth: int = DEPTH) -> str:
    """The text of a value. Sets and dictionaries are sorted by their text.

    Raises:
        TypeError: it is, or holds, something else than numbers, text, bytes, booleans, None, and lists, tuples, sets
            and dictionaries of these, of exactly these types; or it is deeper than `depth`.
    """
    kind = type(value)
    if kind in (int, float, complex, bool, str, bytes, type(None)):
        return repr(value)
    if depth == 0 or kind not in (list, tuple, set, frozenset, dict):
        raise TypeError(f"a {kind.__name__} cannot be compared" if depth else f"deeper than {DEPTH}")
    if isinstance(value, dict):
        pairs = sorted(f"{canonical(key, depth - 1)}: {canonical(item, depth - 1)}" for key, item in value.items())
        return "{" + ", ".join(pairs) + "}"
    items = [canonical(item, depth - 1) for item in value]  # type: ignore[attr-defined]
    if kind in (list, tuple):
        return f"{kind.__name__}[{', '.join(items)}]"
    return f"{kind.__name__}[{', '.join(sorted(items))}]"
