"""Texts of models and of stored files, cut and cleaned for a terminal."""

import re

_MOST = 2000


def shortened(text: str, most: int = _MOST) -> str:
    """The first `most` characters and how many there are in all; a text that is no longer stays as it is."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters in all)"


def quoted(text: str) -> str:
    """The same in quotes, with control characters spelled out."""
    return repr(text) if len(text) <= _MOST else f"{text[:_MOST]!r}... ({len(text):,} characters in all)"


def is_readable(text: str, longest: int) -> bool:
    """Not too long, and no control characters but line breaks and tabs."""
    return len(text) <= longest and all(character.isprintable() or character in "\n\t" for character in text)


_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")
"""C0 and C1 without tab and newline, what turns the direction of writing, and halves of characters, which no terminal
can be sent."""


def printable(text: str) -> str:
    """The text with its control characters written out, `\\x1b`: a terminal obeys none of them."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)
