"""Long lists in pages."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

PAGE = 50
"""Entries of a page."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Page:
    """A page of a list. `first`: of all that are listed, from 1."""

    number: int
    pages: int
    first: int
    last: int
    total: int


def page_of(number: str, total: int) -> Page:
    """The page with this number, or the nearest that there is."""
    pages = max(1, math.ceil(total / PAGE))
    wanted = int(number) if number.isdecimal() and len(number) < 12 else 1
    here = min(max(1, wanted), pages)
    return Page(number=here, pages=pages, first=(here - 1) * PAGE + 1, last=min(here * PAGE, total), total=total)


def query_of(query: Mapping[str, str]) -> Sequence[tuple[str, str]]:
    """What an address says beside the number of the page."""
    return [(name, value) for name, value in query.items() if name != "page" and value]
