"""Where progress is printed, and what prints itself as text and shows itself in notebooks."""

import io
from dataclasses import dataclass, field
from typing import Self

from rich.console import Console


def console_of(console: Console | None, *, quiet: bool) -> Console:
    """One that prints nothing where `quiet`, else the one that is given; None: standard output."""
    return Console(quiet=True) if quiet else console or Console()


def recording(width: int) -> Console:
    """One that prints nowhere and keeps what is printed, in so many columns, for `Printout.of`."""
    return Console(file=io.StringIO(), record=True, width=width, force_jupyter=False)


@dataclass(frozen=True, slots=True)
class Printout:
    """What was printed: `text` plain, `html` with colours, as a notebook shows it."""

    text: str = field(repr=False)
    html: str = field(repr=False)

    @classmethod
    def of(cls, console: Console) -> Self:
        """What a `recording` console holds."""
        html = console.export_html(inline_styles=True, code_format="<pre>{code}</pre>", clear=False)
        return cls(console.export_text(), html)

    def _repr_html_(self) -> str:
        return self.html

    def __str__(self) -> str:
        return self.text


def inline(svg: str) -> str:
    """A drawing as part of a page: without the head of a file (`<?xml ...?>`), which HTML does not allow there."""
    return svg[svg.index("<svg") :]
