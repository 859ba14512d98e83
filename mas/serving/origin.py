"""Where a base comes from, as others find it: what an adapter's files name as the base that it was trained on."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Origin:
    """A hub id with its commit, or a directory.

    Attributes:
        name: the hub id, or the directory's path.
        revision: the commit of the hub's repository; None: a directory, or the commit is not known.
        note: how the weights here differ from those of the name, one sentence; empty: they do not.
    """

    name: str
    revision: str | None = None
    note: str = ""
