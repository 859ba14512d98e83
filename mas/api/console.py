"""Where progress is printed."""

from rich.console import Console


def console_of(console: Console | None, *, quiet: bool) -> Console:
    """One that prints nothing where `quiet`, else the one that is given; None: standard output."""
    return Console(quiet=True) if quiet else console or Console()
