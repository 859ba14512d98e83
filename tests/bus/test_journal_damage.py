"""One garbage frame in a journal: said in one sentence, and everything else stays usable."""

import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import msgspec
import pytest

from mas.bus.journal import Journal
from mas.bus.journal_tables import JOURNAL_NAME, State, read_records
from mas.bus.memory import MemoryBus
from mas.bus.plays import Plays
from mas.bus.replay import replay
from mas.bus.serve import EnvelopeFactory, serve
from mas.bus.wire import pack
from mas.core.errors import JournalError, ReplayError
from mas.core.messages import Envelope, Note, Payload
from mas.runtime.replay_events import Beginning
from mas.runtime.replay_log import ReplayLog
from mas.testing.bus_suite import next_text

GARBAGE = [
    b"",
    b"\xc1",
    b"\x00" * 40,
    b"\x81\xa2id\xa1a",
    b"\xff" * 9,
    b"not msgpack",
    msgspec.msgpack.encode({"id": 1, "kind": "note", "source": "a", "target": "b", "payload": "x"}),
]


def damage(path: Path, table: str, column: str, value: object, where: str) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute(f"UPDATE {table} SET {column} = ? WHERE {where}", (value,))


async def _journal_of_three(path: Path) -> None:
    sender = EnvelopeFactory("a")
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b"):
            for text in ("one", "two", "three"):
                await bus.publish(sender.new("b", Note(text=text)))
            await bus.close()
    damage(path, "record", "state", "open", "1")
    damage(path, "record", "ended", None, "1")


@pytest.mark.parametrize("frame", GARBAGE)
async def test_the_next_bus_delivers_the_others_and_lists_the_damaged_one(
    mas: Callable[..., Any], tmp_path: Path, frame: bytes
) -> None:
    path = tmp_path / JOURNAL_NAME
    await _journal_of_three(path)
    damage(path, "record", "frame", frame, "seq = 2")
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b") as inbox:
            assert [await next_text(inbox), await next_text(inbox)] == ["one", "three"]
        await bus.close()
    with Journal.open(path) as journal:  # and once more, beside a dead letter that is damaged
        await MemoryBus(journal=journal).close()
    (dead,) = read_records(path, (State.DEAD,))
    assert (dead.seq, dead.cause.startswith(f"damaged: {len(frame)} bytes are no message")) == (2, True)
    ran = mas("deadletters", str(tmp_path))
    assert (ran.code, "1 dead letter" in ran.out, "are no message" in ran.out) == (0, True, True)


async def test_a_column_of_another_type_is_one_sentence(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL_NAME
    await _journal_of_three(path)
    damage(path, "record", "state", "nonsense", "seq = 2")
    assert len(read_records(path, (State.OPEN,))) == 2
    damage(path, "record", "attempt", "many", "seq = 3")
    with pytest.raises(JournalError, match="message 3 of the journal is damaged"):
        read_records(path)


async def test_a_replay_answers_what_is_whole_and_refuses_what_is_damaged(tmp_path: Path) -> None:
    path, sender = tmp_path / JOURNAL_NAME, EnvelopeFactory("a")
    with Journal.open(path, keep=None) as journal:
        bus = MemoryBus(journal=journal)

        async def handle(envelope: Envelope) -> Payload:
            return envelope.payload

        asked = [sender.new("b", Note(text=text)) for text in ("one", "two")]
        async with serve(bus, "b", handle):
            for one in asked:
                await bus.request(one)
        await bus.close()
    damage(path, "record", "frame", b"\xc1", f"id = '{asked[0].id}'")
    again = replay(path)
    with pytest.raises(ReplayError, match="is damaged in the record"):
        await again.request(asked[0])
    assert (await again.request(asked[1])).payload is not None


async def test_a_damaged_play_is_listed_as_such_and_hides_no_other(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL_NAME
    with Journal.open(path) as journal:
        plays, log = Plays(journal), ReplayLog(journal)
        for episode in ("one", "two"):
            plays.begin(f"t/{episode}", "t", episode, pack(Beginning(plan="p", state="s", settings={})))
        await plays.flush()
        damage(path, "play", "frame", b"\xc1", "episode = 'one'")
        damaged, whole = await log.plays()
        assert (damaged.is_over, whole.is_over) == (True, False)
        assert (damaged.failure or "").startswith("its record is damaged")
        assert [play.episode for play in await log.unfinished()] == ["two"]
        assert await log.forget("t", "one")
