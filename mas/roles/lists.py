"""Lists as models write them."""

import re

_MARK = re.compile(r"\s*(?:[-*•]|\d+[.)])\s+")
NOTHING = "none"
"""The answer that is an empty list."""


def listed(text: str) -> tuple[str, ...]:
    """The items of a text: one per line, without the mark or number that it may begin with; `none` alone has none."""
    lines = (_MARK.sub("", line, count=1).strip() for line in text.splitlines() if line.strip())
    items = tuple(line for line in lines if line)
    return () if [item.strip(".").casefold() for item in items] == [NOTHING] else items
