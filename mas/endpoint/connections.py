"""Connections before and behind their requests: how long a client may take, and how many may be open.

uvicorn has no time limit for a request's head, none for an answer that is not read, and lets the newest client wait
when all places are taken. Here a head has a deadline, an answer that is not read ends its connection, and of too many
connections the oldest that waits for its client gives way: a client that sends its request at once finds a place.
"""

import asyncio
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

_READ = 8192
"""Bytes read of one connection before others have their turn: asyncio's 256 KiB of tiny chunks take h11 a second."""
_PIECES, _SMALL = 8, 512
"""Behind so many pieces of a request, one of fewer bytes is followed by a pause, in which the next ones join: what
comes byte by byte costs as much a byte as what comes whole costs a page."""
_CHUNKS, _CHUNK = 64, 256
"""Behind so many chunks, those of a body must have so many bytes on average: each costs as much as a large one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What a client may take.

    Attributes:
        head_s: seconds for the head of a request.
        rest_s: seconds for what is left of a body when its answer is complete already.
        pause_s: seconds before more is read of a request that comes in very small pieces.
        read_s: seconds without room for more of an answer, since the client does not read it.
        connections: in all; `per_address`: of one address, unless requests run on all of them.
    """

    head_s: float = 10.0
    rest_s: float = 5.0
    pause_s: float = 1.0
    read_s: float = 30.0
    connections: int = 1792
    per_address: int = 896


class Connections:
    """The open connections of one server, by address; the one longest without a new request first."""

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self._all: OrderedDict[BoundedProtocol, None] = OrderedDict()
        self._by_address: dict[str, OrderedDict[BoundedProtocol, None]] = defaultdict(OrderedDict)

    def __len__(self) -> int:
        return len(self._all)

    def add(self, new: "BoundedProtocol") -> None:
        """A connection was made; another one, or if requests run on all others this one, may have to go."""
        same = self._by_address[new.address]
        self._all[new] = same[new] = None
        if len(same) > self.bounds.per_address:
            _end_oldest(same, but=new)
        if len(self._all) > self.bounds.connections and not _end_oldest(self._all, but=new):
            new.end()

    def renew(self, held: "BoundedProtocol") -> None:
        """A request on it was answered."""
        if held in self._all:
            self._all.move_to_end(held)
            self._by_address[held.address].move_to_end(held)

    def drop(self, gone: "BoundedProtocol") -> None:
        self._all.pop(gone, None)
        same = self._by_address[gone.address]
        same.pop(gone, None)
        if not same:
            del self._by_address[gone.address]


def _end_oldest(held: "OrderedDict[BoundedProtocol, None]", but: "BoundedProtocol") -> bool:
    """End the oldest that waits for its client; False: a request runs on each."""
    oldest = next((one for one in held if one is not but and one.is_waiting), None)
    if oldest is not None:
        oldest.end()
    return oldest is not None


class BoundedProtocol(H11Protocol):
    """One connection within `Bounds`; made by `bounded`."""

    table: Connections

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.conn = _BoundedConnection(h11.SERVER)
        self.address = ""
        self._pieces = 0
        self._is_in_head = False
        self._timers: dict[str, asyncio.TimerHandle] = {}

    @property
    def is_waiting(self) -> bool:
        """Whether no request runs: its client has not sent a whole one since the last answer."""
        return self.cycle is None or self.cycle.response_complete or self.cycle.more_body

    def end(self) -> None:
        """Close it at once, whatever is under way."""
        self.table.drop(self)
        self.transport.abort()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        if hasattr(transport, "max_size"):  # asyncio's own; others read less at once
            transport.max_size = _READ
        self.address = self.client[0] if self.client else ""
        self._start("deadline", self.table.bounds.head_s, self.end)
        self.table.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self.table.drop(self)
        for name in [*self._timers]:
            self._stop(name)
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        self._watch_head()
        self._pieces += 1
        if self._pieces > _PIECES and len(data) < _SMALL and self.is_waiting and not self.transport.is_closing():
            self.transport.pause_reading()
            self._start("pause", self.table.bounds.pause_s, self._read_on)

    def _read_on(self) -> None:
        if not self.flow.read_paused and not self.transport.is_closing():
            self.transport.resume_reading()

    def on_response_complete(self) -> None:
        self.table.renew(self)
        self._pieces = 0
        if self.conn.their_state is h11.SEND_BODY:
            self._start("deadline", self.table.bounds.rest_s, self.end)
        super().on_response_complete()
        self._watch_head()

    def pause_writing(self) -> None:
        self._start("unread", self.table.bounds.read_s, self.end)
        super().pause_writing()

    def resume_writing(self) -> None:
        self._stop("unread")
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP is answered so, unless an answer is under way already: then only the end is left."""
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        else:
            self.end()

    def _watch_head(self) -> None:
        """A head has its time from its first byte."""
        if self.conn.their_state is not h11.IDLE:
            self._is_in_head = False
            if self.cycle is not None and not self.cycle.response_complete:
                self._stop("deadline")
        elif not self.conn.trailing_data[0]:
            self._stop("deadline")
        elif not self._is_in_head:
            self._is_in_head = True
            self._start("deadline", self.table.bounds.head_s, self.end)

    def _start(self, name: str, seconds: float, then: Callable[[], None]) -> None:
        """A timer: `deadline` of a head or of the rest of a body, `pause` of reading, `unread` of an answer."""
        self._stop(name)
        self._timers[name] = self.loop.call_later(seconds, then)

    def _stop(self, name: str) -> None:
        if (timer := self._timers.pop(name, None)) is not None:
            timer.cancel()


class _BoundedConnection(h11.Connection):
    """Refuses a body in very many chunks, each of which costs as much as a large one."""

    _chunks = _bytes = 0

    def next_event(self) -> Any:
        event = super().next_event()
        if isinstance(event, h11.Request):
            self._chunks = self._bytes = 0
        elif isinstance(event, h11.Data):
            self._chunks += event.chunk_start
            self._bytes += len(event.data)
            if self._chunks > _CHUNKS + self._bytes // _CHUNK:
                raise h11.RemoteProtocolError(f"a body in chunks of less than {_CHUNK} bytes")
        return event


def bounded(table: Connections) -> type[BoundedProtocol]:
    """The protocol of one server's connections."""
    return type("BoundedProtocol", (BoundedProtocol,), {"table": table})
