"""Sessions of the clients of one server. What a session made ends with it, but for saved weights."""

import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from tinker import types

from mas.endpoint.errors import Refused

MOST_SESSIONS = 1024


@dataclass(slots=True, eq=False)
class ClientSession:
    """`seen`: when its client gave a sign of life, by the monotonic clock. `is_over`: it finished or was given up."""

    id: str
    seen: float
    metadata: Mapping[str, Any]
    is_over: bool = False


class ClientSessions:
    """All sessions of a server.

    Args:
        idle_s: a session without a sign of life for so many seconds ends.
        free: frees what the session of this name made.
    """

    def __init__(self, idle_s: float, free: Callable[[str], None], now: Callable[[], float] = time.monotonic) -> None:
        self._idle_s, self._free, self._now = idle_s, free, now
        self._sessions: dict[str, ClientSession] = {}

    def begin(self, request: types.CreateSessionRequest) -> str:
        """A new session; those whose clients are gone end first.

        Raises:
            Refused: there are too many.
        """
        self.end_idle()
        if len(self._sessions) >= MOST_SESSIONS:
            over = next((one for one in self._sessions.values() if one.is_over), None)
            if over is None:
                raise Refused(429, f"{MOST_SESSIONS} sessions are open here: come again later", code="busy")
            del self._sessions[over.id]
        session = ClientSession(secrets.token_hex(16), self._now(), request.user_metadata or {})
        self._sessions[session.id] = session
        return session.id

    def open(self, name: str) -> ClientSession:
        """An open session, whose client gives a sign of life now.

        Raises:
            Refused: status 404, there is none, or 410, it is over.
        """
        found = self._sessions.get(name)
        if found is None:
            raise Refused(404, f"no session {name[:80]!r} here: a server that was started again has none of before")
        if found.is_over:
            raise Refused(410, f"session {name} is over: make another ServiceClient")
        found.seen = self._now()
        return found

    def end(self, name: str) -> None:
        """Free all that a session has; saved weights stay. What is over already stays as it is."""
        session = self._sessions.get(name)
        if session is not None and not session.is_over:
            session.is_over = True
            self._free(name)

    def end_idle(self) -> None:
        """End the sessions whose clients are gone."""
        for session in [*self._sessions.values()]:
            if self._now() - session.seen > self._idle_s:
                self.end(session.id)
