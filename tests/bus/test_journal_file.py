"""The file of a journal: who may have it, what it refuses, how it fails, and that it stays small."""

import asyncio
import sqlite3
import stat
from contextlib import closing
from pathlib import Path

import pytest

from mas.bus.journal import Journal
from mas.bus.journal_tables import read_records
from mas.bus.memory import MemoryBus
from mas.bus.serve import EnvelopeFactory
from mas.core.errors import JournalError
from mas.core.messages import Envelope, Note
from mas.testing.bus_suite import answer_to


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "bus.sqlite"


@pytest.fixture
def sender() -> EnvelopeFactory:
    return EnvelopeFactory("a")


def note(sender: EnvelopeFactory, text: str) -> Envelope:
    return sender.new("b", Note(text=text))


def states(path: Path) -> list[tuple[str, str]]:
    return [(record.envelope.payload.content, record.state.value) for record in read_records(path)]


@pytest.mark.parametrize("option", ["keep", "keep_s", "keep_ids", "keep_dead", "backlog"])
def test_a_negative_option_is_refused(path, option):
    with pytest.raises(ValueError, match=f"{option} is -1"):
        Journal.open(path, **{option: -1})
    with pytest.raises(ValueError, match="'group'"):
        Journal.open(path, durability="none")


def test_a_journal_has_one_owner_at_a_time_and_only_its_user_can_read_it(path):
    with Journal.open(path) as journal:
        with pytest.raises(JournalError, match="is open already"):
            Journal.open(path)
        MemoryBus(journal=journal)
        with pytest.raises(JournalError, match="another bus"):
            MemoryBus(journal=journal)
        assert stat.S_IMODE(path.stat().st_mode) == 0o600
    journal.close()
    Journal.open(path).close()


def test_a_file_that_is_no_journal_is_refused_and_left_as_it_was(path, tmp_path):
    path.write_bytes(b"something else" * 100)
    with pytest.raises(JournalError, match="not a database"):
        Journal.open(path)
    assert path.read_bytes() == b"something else" * 100
    with closing(sqlite3.connect(tmp_path / "other.sqlite")) as other:
        other.execute("CREATE TABLE x (y)")
    with pytest.raises(JournalError, match="no journal of version 2: it says 0"):
        Journal.open(tmp_path / "other.sqlite")
    with pytest.raises(JournalError, match="there is no journal"):
        read_records(tmp_path / "none.sqlite")
    with pytest.raises(JournalError, match="cannot be opened"):
        Journal.open(path / "below a file")


async def test_a_request_that_was_not_answered_before_the_kill_may_be_made_again(path, sender):
    asked = note(sender, "1")
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b") as inbox:
            asking = asyncio.create_task(bus.request(asked))
            await inbox.receive()
            await journal.flush()
            copy = path.with_name("copy.sqlite")  # what a kill leaves
            with closing(sqlite3.connect(path)) as now, closing(sqlite3.connect(copy)) as left:
                now.backup(left)
            asking.cancel()
    with Journal.open(copy) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b") as inbox:
            asking = asyncio.create_task(bus.request(asked))
            request = await inbox.receive()
            await bus.reply(request, answer_to(request))
            await asking


async def test_a_disk_that_fails_is_an_error_of_the_sender_and_nothing_is_written_behind_the_gap(path, sender):
    journal = Journal.open(path)
    bus = MemoryBus(journal=journal)
    async with bus.subscribe("b") as inbox:
        await bus.publish(note(sender, "1"))
        with closing(sqlite3.connect(path)) as other:
            other.execute("ALTER TABLE record RENAME TO moved")
        with pytest.raises(JournalError, match="cannot be written"):
            await bus.publish(note(sender, "2"))
        with closing(sqlite3.connect(path)) as other:
            other.execute("ALTER TABLE moved RENAME TO record")
        with pytest.raises(JournalError, match="cannot be written"):
            await bus.publish(note(sender, "3"))
        inbox.done(await inbox.receive())
    with pytest.raises(JournalError, match="cannot be written"):
        journal.close()
    assert states(path) == [("1", "open")]


async def test_senders_wait_when_the_disk_is_behind_in_async_mode(path, sender):
    with Journal.open(path, durability="async", backlog=4) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b", credit=1_000):
            for _ in range(200):
                await bus.publish(note(sender, "x"))
                assert journal._writer.added - journal._writer._written <= 4 + 2


async def test_many_messages_share_one_sync(path, sender, monkeypatch):
    with Journal.open(path) as journal:
        commits: list[int] = []
        write = journal._writer._write
        monkeypatch.setattr(journal._writer, "_write", lambda steps: (commits.append(len(steps)), write(steps)))
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b", credit=1_000):
            await asyncio.gather(*(bus.publish(note(sender, "x")) for _ in range(500)))
        assert sum(commits) >= 500
        assert len(commits) < 50


async def test_50_000_messages_stay_bounded(path, sender):
    """Without compaction they take 25 MB; 1,000 kept ones, 1,000 ids and 10 dead letters take well under 4."""
    sizes = []
    with Journal.open(path, durability="async", keep=1_000, keep_ids=1_000, keep_dead=10) as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b") as inbox:
            for number in range(50_000):
                await bus.publish(note(sender, "x" * 100))
                envelope = await inbox.receive()
                if number % 1_000 == 0:
                    inbox.reject(envelope, cause="no")
                else:
                    inbox.done(envelope)
                if number % 5_000 == 4_999:
                    await journal.flush()
                    sizes.append(sum(file.stat().st_size for file in path.parent.iterdir()))
            await bus.close()
    records = read_records(path)
    assert 1_000 <= len(records) < 5_000
    assert max(sizes) < 12_000_000
    assert path.stat().st_size < 4_000_000
    with Journal.open(path) as journal:
        bus = MemoryBus(journal=journal)
        counts = bus.statistics()
        assert counts.dead + counts.forgotten == 50
        assert counts.dead < 20
