"""Whose a journal is, and what a receiver on a broker that was killed knows when it comes back."""

import sqlite3
from contextlib import suppress

import pytest
from between import QUICK, as_user, until, vanish
from mosquitto import needs_mosquitto
from process_lives import Slow, note

from mas.bus.journal import Journal
from mas.bus.journal_tables import State, read_records, redrive
from mas.bus.memory import MemoryBus
from mas.bus.mqtt import MqttBus
from mas.bus.replay import fork
from mas.bus.serve import serve
from mas.core.errors import Closed, JournalError
from mas.testing.bus_suite import next_text, start

pytestmark = needs_mosquitto


async def test_a_journal_belongs_to_one_process_of_one_principal_in_one_space(url, process, tmp_path):
    await process.begin()
    await process.end()
    for changed, words in ((as_user(url, "bob"), "principal 'alice'"), (f"{url}x", "space")):
        with Journal.open(process.path) as journal, pytest.raises(JournalError, match=words):
            MqttBus.connect(changed, journal=journal)
    with Journal.open(process.path) as journal, pytest.raises(JournalError, match="that of process"):
        MqttBus.connect(url, journal=journal, process="another")
    with Journal.open(process.path) as journal, pytest.raises(JournalError, match=r"give it to MqttBus\.connect"):
        MemoryBus(journal=journal)
    with pytest.raises(JournalError, match="one process of several"):
        fork(process.path, at="m1", new=tmp_path / "fork.sqlite")
    with Journal.open(tmp_path / "memory.sqlite") as journal:
        bus = MemoryBus(journal=journal)
        async with bus.subscribe("b"):
            await bus.publish(note("1"))
    with Journal.open(tmp_path / "memory.sqlite") as journal, pytest.raises(JournalError, match="a bus in memory"):
        MqttBus.connect(url, journal=journal)


async def test_two_living_processes_cannot_have_one_journal(url, process):
    await process.begin()
    with pytest.raises(JournalError, match="is open already"):
        Journal.open(process.path)


async def test_what_a_receiver_did_before_it_was_killed_is_not_done_again(process, other):
    receiver = await process.begin()
    inbox = await receiver.subscribe("b").__aenter__()
    for text in "12":
        await other.publish(note(text))
    done = await inbox.receive()
    receiver._node.receiver._writer.reply = lambda peer, frame: None
    inbox.done(done, effect=b"1 was done")
    await process.journal.flush()
    receiver = await process.again()
    async with receiver.subscribe("b") as inbox:
        again = await inbox.receive()
        assert again.payload.content == "2"
        inbox.done(again)
        await until(lambda: other.statistics().outbox == 0)
    effects = {record.id: record.effect for record in read_records(process.path) if record.state is State.PROCESSED}
    assert effects == {"m1": b"1 was done", "m2": None}


async def test_a_receiver_that_comes_back_answers_what_it_had_answered(process, other):
    slow = Slow()
    slow.may_answer.set()
    receiver = await process.begin()
    receiver._node.receiver._writer.reply = lambda peer, frame: None
    answers = serve(receiver, "b", slow)
    await answers.__aenter__()
    asked = start(other.request(note("1")))
    await until(lambda: receiver.statistics().processed == 2)
    await process.journal.flush()
    receiver = await process.again()
    async with serve(receiver, "b", slow):
        assert (await asked).payload.content == "answer to 1"
    assert slow.begun == ["1"]
    with suppress(Closed):
        await answers.__aexit__(None, None, None)


async def test_a_receiver_that_ends_keeps_what_lies_in_its_queue(process, other):
    receiver = await process.begin()
    inbox = await receiver.subscribe("b").__aenter__()
    await other.publish(note("1"))
    await process.end()
    await until(lambda: other.statistics().outbox == 0)
    await inbox.__aexit__(None, None, None)
    receiver = await process.begin()
    async with receiver.subscribe("b") as inbox:
        assert await next_text(inbox) == "1"


async def test_dead_letters_of_the_sender_are_in_its_journal_and_can_be_sent_again(process, other, url, mas):
    sender = await process.begin()
    dies = await MqttBus.connect(as_user(url, "bob"), options=QUICK).__aenter__()
    await dies.subscribe("b").__aenter__()
    await sender.publish(note("1", deadline=sender.now() + 2.0))
    await vanish(dies)
    await until(lambda: sender.statistics().outbox == 0)
    await process.end()
    assert "m1" in mas("deadletters", str(process.path)).out
    assert redrive(process.path) == 1
    sender = await process.begin()
    async with other.subscribe("b") as inbox:
        assert await next_text(inbox) == "1"
        await until(lambda: sender.statistics().outbox == 0)
    await dies._local.close()


async def test_a_disk_that_fails_is_an_error_of_who_sends_and_nothing_is_sent(process, other, monkeypatch):
    def fail(steps: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    async with other.subscribe("b"):
        sender = await process.begin()
        monkeypatch.setattr(process.journal._writer, "_write", fail)
        for sending in (sender.publish(note("1")), sender.request(note("2"))):
            with pytest.raises(JournalError, match="cannot be written"):
                await sending
        assert sender.statistics().outbox == 0
        assert other.statistics().accepted == 0
        with pytest.raises(JournalError, match="cannot be written"):
            await process.end()
        with pytest.raises(JournalError, match="cannot be written"):
            process.journal.close()
        assert sender.me not in other.processes()
        process.bus = process.journal = None


async def test_a_message_that_kills_its_receiver_each_time_is_given_up(process, other):
    receiver = await process.begin()
    for life in range(1, 6):
        inbox = await receiver.subscribe("b").__aenter__()
        if life == 1:
            await other.publish(note("1"))
        assert (await inbox.receive()).attempt == life
        await until(lambda: all(post.is_delivered for post in other._node.sender._messages.values()))
        receiver = await process.again()
    async with receiver.subscribe("b"):
        await until(lambda: other.statistics().given_up == 1)
    assert receiver.statistics().accepted == 0
