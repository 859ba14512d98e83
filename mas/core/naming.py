"""Nearest valid names, for errors that say what was possible."""

from collections.abc import Iterable
from difflib import get_close_matches


def did_you_mean(value: str, options: Iterable[str]) -> str:
    """One sentence that lists the options, the nearest first: `Did you mean 'x'? Possible: 'x', 'y'.`"""
    names = sorted(options)
    if not names:
        return "Nothing is possible here."
    listed = "Possible: " + ", ".join(repr(name) for name in names) + "."
    near = get_close_matches(value, names, n=2, cutoff=0.5)
    return f"Did you mean {' or '.join(repr(name) for name in near)}? {listed}" if near else listed
