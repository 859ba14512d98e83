"""Whose a journal is: that of one process on a broker, in all its lives."""

import secrets

import msgspec

from mas.bus.journal import Journal
from mas.bus.journal_tables import failing, owner_of
from mas.core.errors import JournalError


class Owner(msgspec.Struct, frozen=True):
    """Whose journal it is: one process, by the name of its principal, and the id of its connection to the broker.

    `life`: how often the process has begun, this time included.
    """

    principal: str
    space: str
    process: str
    client: str
    life: int


def take_ownership(journal: Journal, *, principal: str, space: str, process: str | None, new: str) -> Owner:
    """Begin another life of the process that has the journal; it must be on the disk before the process says anything.

    Args:
        process: what it is called; None: as before, or `new` in its first life.

    Raises:
        JournalError: it is the journal of another process, or of a bus in memory, or cannot be used.
    """
    with failing(journal.path, "claimed"):
        before = owner_of(journal.connection)
    if before is None:
        if journal.last:
            raise JournalError(f"the journal {journal.path} is that of a bus in memory; name a new file")
        owner = Owner(principal, space, process or new, secrets.token_hex(12), 1)
        journal.write(("INSERT INTO owner VALUES (?, ?, ?, ?, ?)", msgspec.structs.astuple(owner)))
    else:
        owner = Owner(*before)
        _check(journal, owner, {"principal": principal, "space": space, "process": process or owner.process})
        owner = msgspec.structs.replace(owner, life=owner.life + 1)
        journal.write(("UPDATE owner SET life = ?", (owner.life,)))
    journal.is_shared = True
    return owner


def _check(journal: Journal, owner: Owner, wanted: dict[str, str]) -> None:
    """Raises JournalError: the journal belongs to another process."""
    for what, name in wanted.items():
        if getattr(owner, what) != name:
            raise JournalError(
                f"the journal {journal.path} is that of {what} {getattr(owner, what)!r}, and this one is {name!r}: "
                "each process has a journal of its own; name another file"
            )
