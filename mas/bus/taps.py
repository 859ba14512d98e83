"""Watchers of a bus: they see every message, but never what is private."""

import asyncio
from collections.abc import Callable

import msgspec

from mas.core.messages import Envelope, Note

Watch = Callable[[Envelope], None]


def redacted(envelope: Envelope, principal: str | None) -> Envelope:
    """The envelope as `principal` may see it; a private payload becomes the note `[private]`. None: a stranger."""
    if envelope.visibility is None or principal in envelope.visibility:
        return envelope
    return msgspec.structs.replace(envelope, kind=Note.kind, payload=Note(text="[private]"))


class Taps:
    """The watchers of one bus."""

    def __init__(self) -> None:
        self._watches: dict[object, tuple[Watch, str | None]] = {}

    def __bool__(self) -> bool:
        return bool(self._watches)

    def add(self, watch: Watch, *, principal: str | None) -> Callable[[], None]:
        """Start a tap; returns a function that ends it and may be called twice."""
        key = object()
        self._watches[key] = (watch, principal)

        def end() -> None:
            self._watches.pop(key, None)

        return end

    def show(self, envelope: Envelope) -> None:
        """Show a message to all; a watcher that raises is reported to the event loop and stops no delivery."""
        if not self._watches:
            return
        for watch, principal in tuple(self._watches.values()):
            try:
                watch(redacted(envelope, principal))
            except Exception as error:  # noqa: BLE001 - a tap must not break the sender
                asyncio.get_running_loop().call_exception_handler(
                    {"message": f"a tap failed on message {envelope.id!r}", "exception": error}
                )
