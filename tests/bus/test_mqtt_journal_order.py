"""What a process with a journal says only when the disk has it, and what it asks before it sends again."""

import asyncio
import threading
from functools import partial

import pytest
from between import QUICK, as_user, until
from mosquitto import needs_mosquitto
from process_lives import Lives, Slow, interrupted, note

from mas.bus.journal_writer import AfterWrite
from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.frame_writer import FrameWriter
from mas.bus.serve import serve
from mas.core.errors import JournalError
from mas.testing.bus_suite import next_text, start

pytestmark = needs_mosquitto


class SlowDisk:
    """The disk of a process, which takes nothing until it is told to."""

    def __init__(self, process: Lives, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_write = threading.Event()
        write = process.journal._writer._write

        def wait_and_write(steps: object) -> None:
            self.may_write.wait(20.0)
            write(steps)

        monkeypatch.setattr(process.journal._writer, "_write", wait_and_write)


async def test_a_message_is_sent_when_the_disk_has_it(process, other, monkeypatch):
    async with other.subscribe("b") as inbox:
        sender = await process.begin()
        await process.journal.flush()
        disk = SlowDisk(process, monkeypatch)
        sending = [start(sender.publish(note(text, key="k"))) for text in "123"]
        await sender.flush()
        await other.flush()
        assert other._node.receiver._messages == {}
        disk.may_write.set()
        assert [await next_text(inbox) for _ in range(3)] == ["1", "2", "3"]
        await asyncio.gather(*sending)


async def test_a_sender_hears_that_a_message_is_done_when_the_disk_has_it(process, other, monkeypatch):
    receiver = await process.begin()
    async with receiver.subscribe("b") as inbox:
        await other.publish(note("1"))
        message = await inbox.receive()
        await process.journal.flush()
        disk = SlowDisk(process, monkeypatch)
        inbox.done(message, effect=b"42")
        await receiver.flush()
        await other.flush()
        assert other.statistics().outbox == 1
        disk.may_write.set()
        await until(lambda: other.statistics().outbox == 0)


async def test_an_answer_is_kept_for_its_requester_until_the_disk_of_that_has_it(process, other, monkeypatch):
    slow = Slow()
    sender = await process.begin()
    async with serve(other, "b", slow):
        asked = start(sender.request(note("1")))
        await until(lambda: slow.begun == ["1"])
        await process.journal.flush()
        disk = SlowDisk(process, monkeypatch)
        slow.may_answer.set()
        assert (await asked).payload.content == "answer to 1"
        (case,) = other._node.receiver._messages.values()
        sender._node.dispatcher.confirm_answers()
        await sender.flush()
        await other.flush()
        assert case.reply is not None
        disk.may_write.set()
        await until(lambda: case.reply is None)


async def test_who_may_have_a_message_is_asked_before_another_one_gets_it(url, process, other):
    async with (
        other.subscribe("b") as first,
        MqttBus.connect(as_user(url, "bob"), options=QUICK) as third,
        third.subscribe("b") as second,
    ):
        sender = await process.begin()
        for number in range(7):  # odd: the broker's turns shift with each round
            await sender.publish(note(str(number)))
        taken = {
            inbox: [await inbox.receive() for _ in range(bus.statistics().accepted)]
            for inbox, bus in ((first, other), (second, third))
        }
        sender = await process.again()
        await until(lambda: all(post.holder for post in sender._node.sender._messages.values()))
        for inbox, envelopes in taken.items():
            for envelope in envelopes:
                inbox.done(envelope)
        await until(lambda: sender.statistics().outbox == 0)
        assert other.statistics().accepted + third.statistics().accepted == 7
        assert other.statistics().duplicates + third.statistics().duplicates == 0


async def test_no_attempt_of_an_earlier_life_is_ever_taken_again(process, other, monkeypatch):
    sent: list[int] = []
    asked: list[int] = []
    send, ask = FrameWriter.send, FrameWriter.query
    monkeypatch.setattr(
        FrameWriter, "send", lambda self, message, *rest: sent.append(message.attempt) or send(self, message, *rest)
    )
    monkeypatch.setattr(
        FrameWriter,
        "query",
        lambda self, peer, tickets, *rest: asked.extend(dict(tickets).values()) or ask(self, peer, tickets, *rest),
    )
    await process.begin()
    async with other.subscribe("b", credit=1):
        await process.bus.publish(note("1"))
        waiting = start(process.bus.publish(note("2")))
        await until(lambda: other.statistics().waiting == 1)
        await process.die()
        await interrupted(waiting)
        highest = max(sent + asked)
        asked.clear()
        await process.begin()
        await until(lambda: len(asked) >= 2)
        assert min(asked) > highest + 1_000


async def test_calls_are_made_in_order_and_none_after_a_failure():
    called: list[str] = []
    gate = asyncio.Event()

    async def disk() -> None:
        await gate.wait()
        if "2" in called:
            raise JournalError("no disk")

    behind = AfterWrite(disk, failed=lambda error: called.append(str(error)), name="test")
    for word in "12":
        behind.call(partial(called.append, word))
    assert called == []
    gate.set()
    await behind.idle()
    assert called == ["1", "2"]
    behind.call(partial(called.append, "3"))
    await behind.idle()
    assert called == ["1", "2", "no disk"]
    AfterWrite(None, failed=lambda error: None, name="test").call(partial(called.append, "at once"))
    assert called[-1] == "at once"
