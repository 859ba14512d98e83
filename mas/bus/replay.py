"""A journal as an ordered record: replay it exactly, or copy its beginning to continue differently.

Only requests are checked and answered from the record: a team's whole play is made of them. One-way messages travel
as usual. Leaves out on purpose: time; an answer from the record comes at once.
"""

import re
import sqlite3
from collections import defaultdict, deque
from collections.abc import Collection, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec

from mas.bus.in_flight import DeliveryObserver
from mas.bus.journal_tables import Record, State, connect, failing, lost, owner_of, select
from mas.bus.memory import MemoryBus
from mas.bus.parts import Take
from mas.bus.wire import decode, encode, read_plain
from mas.core import errors
from mas.core.errors import JournalError, MasError, RemoteError, ReplayError
from mas.core.messages import Envelope

_COMPARED = ("target", "kind", "payload", "key", "delivery", "episode", "group", "role", "turn", "adapter")
_MEASURED = re.compile(r"payload\.fields\.candidates\[\d+\]\.seconds")
"""What is measured while a payload is made: it differs between equal runs."""


class RecordedExchange(msgspec.Struct, kw_only=True):
    """A recorded request and its answer. `answer` None: it failed, with the request's cause."""

    request: Record
    answer: Record | None = None
    was_asked: bool = False


class ReplayBus(MemoryBus):
    """A bus whose requests are answered from a record; made by `replay`.

    A request is found by its id, or, where the ids of this run are others, as the next one of its target and episode.

    Args:
        live: addresses whose listeners answer themselves, such as an environment; their answers must be those recorded.
    """

    def __init__(self, exchanges: list[RecordedExchange], live: Collection[str]) -> None:
        super().__init__()
        self._live = frozenset(live)
        self._by_id = {exchange.request.id: exchange for exchange in exchanges}
        self._next: dict[tuple[str, str | None], deque[RecordedExchange]] = defaultdict(deque)
        for exchange in exchanges:
            if exchange.request.damage is not None:  # found by its id alone, and refused then
                continue
            plain = read_plain(exchange.request.frame)
            self._next[plain["target"], plain.get("episode")].append(exchange)

    async def request(
        self,
        envelope: Envelope,
        *,
        timeout_s: float | None = None,
        observer: DeliveryObserver | None = None,
        take: Take | None = None,
    ) -> Envelope:
        """Answer from the record, which holds no parts; live addresses may give some. `observer` hears nothing.

        Raises:
            ReplayError: the recorded run asked something else here, or its record ends here.
            The recorded error where the request failed; as `MemoryBus.request` for live addresses.
        """
        exchange = self._take(envelope)
        request = exchange.request
        if request.damage is not None:
            raise ReplayError(f"request {envelope.id!r} is damaged in the record: {request.damage}")
        _compare(envelope, request, f"request {envelope.id!r}")
        if envelope.target in self._live:
            return await self._ask(envelope, take, exchange, timeout_s)
        if exchange.answer is None:
            raise _recorded_error(request)
        answer = msgspec.structs.replace(decode(exchange.answer.frame), correlation=envelope.id, target=envelope.source)
        self._settlement.taps.show(answer)
        return answer

    def check_finished(self) -> None:
        """Refuse a run that ended before the recorded one.

        Raises:
            ReplayError: recorded requests were not made.
        """
        missing = [exchange.request for exchange in self._by_id.values() if not exchange.was_asked]
        if missing:
            raise ReplayError(f"{len(missing)} recorded requests were not made, the first is {missing[0].id!r}")

    def _take(self, envelope: Envelope) -> RecordedExchange:
        exchange = self._by_id.get(envelope.id)
        if exchange is None or exchange.was_asked:
            waiting = self._next[envelope.target, envelope.episode]
            while waiting and waiting[0].was_asked:
                waiting.popleft()
            if not waiting:
                raise ReplayError(
                    f"request {envelope.id!r}: the recorded run asked {envelope.target!r} no more in episode "
                    f"{envelope.episode!r}"
                )
            exchange = waiting.popleft()
        exchange.was_asked = True
        return exchange

    async def _ask(
        self, envelope: Envelope, take: Take | None, exchange: RecordedExchange, timeout_s: float | None
    ) -> Envelope:
        try:
            answer = await super().request(envelope, timeout_s=timeout_s, take=take)
        except MasError as error:
            if exchange.answer is None and exchange.request.cause == f"{type(error).__name__}: {error}":
                raise
            recorded = "was answered" if exchange.answer is not None else f"failed with {exchange.request.cause!r}"
            raise ReplayError(f"request {envelope.id!r} failed with {error!r}; the recorded one {recorded}") from error
        if exchange.answer is None:
            raise ReplayError(f"request {envelope.id!r} was answered; the recorded one: {exchange.request.cause}")
        _compare(msgspec.structs.replace(answer, target=envelope.source), exchange.answer, f"answer {answer.id!r}")
        return answer


def replay(path: str | Path, *, live: Collection[str] = ()) -> ReplayBus:
    """A bus that answers requests as the journal's run was answered. The journal is only read.

    Args:
        live: addresses whose listeners answer live; the answers of all others come from the record.

    Raises:
        JournalError: there is no such journal, or it cannot be read.
        ReplayError: its oldest messages were dropped to keep it small; record with `keep=None`.
    """
    place = Path(path)
    with closing(connect(place)) as connection, failing(place, "read"):
        dropped = lost(connection, "records")
        records = select(connection, tuple(State))
    if dropped:
        raise ReplayError(
            f"the journal {place} lacks its first {dropped} messages; record with Journal.open(keep=None)"
        )
    return ReplayBus(_exchanges(records), live)


def fork(path: str | Path, *, at: str, new: str | Path) -> int:
    """Copy a journal as it was when a message was accepted, to continue differently; returns how many messages.

    What was not over by then is open in the copy: the next bus delivers it, the message itself included. Requests are
    not sent again: their requester asks anew.

    Args:
        at: id of the last message of the copy; of several with this id the first.

    Raises:
        JournalError: there is no such journal or message, it is that of a bus over MQTT, or the new file exists or
            cannot be written.
    """
    source, target = Path(path), Path(new)
    if target.exists():
        raise JournalError(f"{target} exists; name a new file for the fork")
    with closing(connect(source)) as old, failing(source, "read"):
        if owner_of(old) is not None:
            raise JournalError(f"the journal {source} is that of one process of several, which cannot continue twice")
        (cut,) = old.execute("SELECT min(seq) FROM record WHERE id = ?", (at,)).fetchone()
        if cut is None:
            raise JournalError(f"the journal {source} has no message {at!r}")
        target.touch(mode=0o600)
        with failing(target, "written"), closing(sqlite3.connect(target, isolation_level=None)) as copy:
            old.backup(copy)
            copy.execute("BEGIN")
            copy.execute("DELETE FROM record WHERE seq > ?", (cut,))
            copy.execute("DELETE FROM seen WHERE seq > ?", (cut,))
            for table in ("play", "event", "reply"):  # what was played is another story than the copy's
                copy.execute(f"DROP TABLE IF EXISTS {table}")
            copy.execute(
                "UPDATE record SET state = 'open', tries = 0, cause = '', effect = NULL, ended = NULL, ended_at = NULL "
                "WHERE ended >= ? AND way <> 'answer'",
                (cut,),
            )
            number: int = copy.execute("SELECT count(*) FROM record").fetchone()[0]
            copy.execute("COMMIT")
    return number


def _exchanges(records: list[Record]) -> list[RecordedExchange]:
    """Requests in order, each with its answer."""
    exchanges = {record.id: RecordedExchange(request=record) for record in records if record.way == "request"}
    for record in records:
        if record.way == "answer" and record.damage is None:
            exchange = exchanges.get(read_plain(record.frame).get("correlation", ""))
            if exchange is not None:
                exchange.answer = record
    return list(exchanges.values())


def _compare(envelope: Envelope, record: Record, what: str) -> None:
    """Refuse the first field that differs. Ids, senders, readers and deadlines may be others in another run."""
    now, then = read_plain(encode(envelope)), read_plain(record.frame)
    for name in _COMPARED if record.way == "request" else ("kind", "payload"):
        for path, mine, recorded in _differences(now.get(name), then.get(name), name):
            raise ReplayError(f"{what}, recorded as {record.id!r}: {path} is {mine!r}, in the record {recorded!r}")


def _differences(mine: Any, recorded: Any, path: str) -> Iterator[tuple[str, Any, Any]]:
    if isinstance(mine, dict) and isinstance(recorded, dict) and mine.keys() == recorded.keys():
        for key in mine:
            yield from _differences(mine[key], recorded[key], f"{path}.{key}")
    elif isinstance(mine, list) and isinstance(recorded, list) and len(mine) == len(recorded):
        for index, pair in enumerate(zip(mine, recorded, strict=True)):
            yield from _differences(*pair, f"{path}[{index}]")
    elif mine != recorded and not _MEASURED.fullmatch(path):
        yield path, mine, recorded


def _recorded_error(request: Record) -> MasError:
    """The error that a recorded request ended with."""
    if request.state is not State.FAILED:
        return ReplayError(f"request {request.id!r}: the record ends before its answer")
    name, _, text = request.cause.partition(": ")
    kind = getattr(errors, name, None)
    is_known = isinstance(kind, type) and issubclass(kind, MasError)
    return kind(text) if is_known and kind is not None else RemoteError(request.cause)
