"""Long texts, as they are told to people: their beginning, and how long they are."""

_MOST = 2000


def shortened(text: str, most: int = _MOST) -> str:
    """The first `most` characters and how many there are in all; a text that is no longer stays as it is."""
    return text if len(text) <= most else f"{text[:most]}... ({len(text):,} characters in all)"


def quoted(text: str, most: int = _MOST) -> str:
    """The same in quotes, with control characters spelled out."""
    return repr(text) if len(text) <= most else f"{text[:most]!r}... ({len(text):,} characters in all)"
