"""Texts of models and of stored files, safe to print at a terminal."""

import re

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""C0 and C1 without tab and newline, and what turns the direction of writing."""


def printable(text: str) -> str:
    """The text with its control characters written out, `\\x1b`: a terminal obeys none of them."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)
