"""A sender on a broker that was killed comes back as itself from its journal: it asks before it sends again."""

import asyncio
from contextlib import suppress

import msgspec
import pytest
from between import QUICK, as_user, until, vanish
from mosquitto import needs_mosquitto
from process_lives import Slow, interrupted, lives, note

from mas.bus.journal_tables import State, read_records
from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.options import MqttOptions
from mas.bus.mqtt.presence import Presence
from mas.bus.serve import serve
from mas.core.errors import Closed, Dropped, JournalError, NoRoute, RemoteError
from mas.core.messages import Delivery, Envelope, Note, Payload
from mas.testing.bus_suite import next_text, start

pytestmark = needs_mosquitto


async def test_what_a_receiver_has_is_not_sent_again_by_a_sender_that_comes_back(process, other):
    async with other.subscribe("b") as inbox:
        sender = await process.begin()
        first = sender.me
        for text in "123":
            await sender.publish(note(text))
        inbox.done(await inbox.receive())
        held = await inbox.receive()
        sender = await process.again()
        assert sender.me == first
        assert sender.life == 2
        inbox.done(held)
        assert await next_text(inbox) == "3"
        await until(lambda: sender.statistics().outbox == 0)
        assert sender.statistics().resent == 0
        assert other.statistics().accepted == 3
        await process.journal.flush()
    assert {record.state for record in read_records(process.path)} == {State.PROCESSED}


async def test_what_was_on_its_way_when_the_sender_died_is_delivered_once(process, other):
    async with other.subscribe("b", credit=1) as inbox:
        sender = await process.begin()
        await sender.publish(note("1"))
        waiting = start(sender.publish(note("2")))
        await until(lambda: other.statistics().waiting == 1)
        await process.die()
        await interrupted(waiting)
        sender = await process.begin()
        assert [await next_text(inbox), await next_text(inbox)] == ["1", "2"]
        await until(lambda: sender.statistics().outbox == 0)
        await sender.publish(note("2"))  # its program does not know
        assert other.statistics().accepted == 2


async def test_what_went_one_way_waits_in_the_journal_until_somebody_listens(process, other):
    sender = await process.begin()
    async with other.subscribe("b"):
        await sender.publish(note("1"))
    await until(lambda: sender.statistics().outbox == 1)
    await sender.close()
    assert sender.statistics().lost == 0
    await process.end()
    sender = await process.begin()
    assert sender.statistics().outbox == 1
    async with other.subscribe("b") as inbox:
        assert await next_text(inbox) == "1"


async def test_however_many_died_while_the_sender_was_away_a_message_was_with_one_of_them(url, process, other):
    dead = [await MqttBus.connect(as_user(url, "bob"), options=QUICK).__aenter__() for _ in range(6)]
    for bus in dead:
        await bus.subscribe("b").__aenter__()
    await (await process.begin()).publish(note("1"))
    await process.die()
    for bus in dead:
        await vanish(bus)
    async with other.subscribe("b") as inbox:
        sender = await process.begin()
        message = await inbox.receive()
        assert message.attempt == 2
        inbox.done(message)
        await until(lambda: sender.statistics().outbox == 0)
    for bus in dead:
        await bus._local.close()


async def test_messages_of_a_key_stay_in_order_over_the_lives_of_their_sender(process, other):
    async with other.subscribe("b", credit=1) as inbox:
        sender = await process.begin()
        sending = [start(sender.publish(note(text, key="k"))) for text in "1234"]
        await until(lambda: other.statistics().waiting >= 1)
        await process.die()
        for task in sending:
            await interrupted(task)
        sender = await process.begin()
        more = start(sender.publish(note("5", key="k")))
        assert [await next_text(inbox) for _ in range(5)] == ["1", "2", "3", "4", "5"]
        await more


async def test_two_messages_with_one_id_that_may_come_twice_are_both_taken_up_again(process, other):
    twin = msgspec.structs.replace(note("1"), delivery=Delivery.AT_LEAST_ONCE)
    async with other.subscribe("b") as inbox:
        sender = await process.begin()
        for _ in range(2):
            await sender.publish(twin)
        sender = await process.again()
        assert sender.statistics().outbox == 2
        assert [await next_text(inbox), await next_text(inbox)] == ["1", "1"]
        await until(lambda: sender.statistics().outbox == 0)
        assert other.statistics().accepted == 2


async def test_who_asks_twice_again_is_joined_once_and_refused_once_as_in_one_life(process, other):
    slow = Slow()
    async with serve(other, "b", slow):
        asked = start((await process.begin()).request(note("1")))
        await until(lambda: slow.begun == ["1"])
        await process.die()
        await interrupted(asked)
        sender = await process.begin()
        first, second = start(sender.request(note("1"))), start(sender.request(note("1")))
        with pytest.raises(Dropped, match="was sent to 'b' before"):
            await second
        slow.may_answer.set()
        assert (await first).payload.content == "answer to 1"
    assert slow.begun == ["1"]


async def test_who_asks_again_gets_the_answer_that_was_being_computed(process, other):
    slow = Slow()
    async with serve(other, "b", slow):
        asked = start((await process.begin()).request(note("1")))
        await until(lambda: slow.begun == ["1"])
        await process.die()
        await interrupted(asked)
        again = start((await process.begin()).request(note("1")))
        slow.may_answer.set()
        assert (await again).payload.content == "answer to 1"
    assert slow.begun == ["1"]


async def test_who_asks_again_gets_the_answer_that_came_while_it_was_away(process, other):
    slow = Slow()
    async with serve(other, "b", slow):
        asked = start((await process.begin()).request(note("1")))
        await until(lambda: slow.begun == ["1"])
        me = process.bus.me
        await process.die()
        await interrupted(asked)
        await until(lambda: me not in other.processes())
        slow.may_answer.set()
        await until(lambda: other.statistics().processed == 2)
        assert (await (await process.begin()).request(note("1"))).payload.content == "answer to 1"
    assert slow.begun == ["1"]
    assert slow.stopped == []


async def test_an_answer_that_came_is_in_the_journal_and_so_is_an_error(process, other):
    async def answer(envelope: Envelope) -> Payload:
        if envelope.id == "m2":
            raise ValueError("no")
        return Note(text="yes")

    sender = await process.begin()
    async with serve(other, "b", answer):
        assert (await sender.request(note("1"))).payload.content == "yes"
        with pytest.raises(RemoteError, match="no"):
            await sender.request(note("2"))
    sender = await process.again()
    assert (await sender.request(note("1"))).payload.content == "yes"
    with pytest.raises(RemoteError, match="no"):
        await sender.request(note("2"))
    with pytest.raises(NoRoute):
        await sender.request(note("3"))


async def test_a_request_is_stopped_when_its_requester_stays_away_and_may_be_asked_again(url, tmp_path, other):
    slow = Slow()
    options = MqttOptions(absent_s=0.3, ack_s=0.2, away_s=0.5)
    async with lives(url, tmp_path / "alice.sqlite", options) as process, serve(other, "b", slow):
        asked = start((await process.begin()).request(note("1")))
        await until(lambda: slow.begun == ["1"])
        await process.die()
        await interrupted(asked)
        await until(lambda: slow.stopped == ["1"])
        slow.may_answer.set()
        assert (await (await process.begin()).request(note("1"))).payload.content == "answer to 1"
    assert slow.begun == ["1", "1"]


async def test_a_request_that_was_given_up_is_asked_for_where_it_may_be_before_it_is_made_again(process, other):
    slow = Slow()
    async with serve(other, "b", slow):
        sender = await process.begin()
        asked = start(sender.request(note("1")))
        await until(lambda: slow.begun == ["1"])
        sender._node.peers.take(other.me, Presence(since=0.0, addresses={}, is_leaving=True))  # which is not so
        with pytest.raises((Closed, NoRoute)):
            await asked
        again = start((await process.again()).request(note("1")))
        slow.may_answer.set()
        assert (await again).payload.content == "answer to 1"
    assert slow.begun == ["1"]


async def test_a_cancelled_request_of_an_earlier_life_is_not_joined(process, other):
    async with other.subscribe("b") as inbox:
        sender = await process.begin()
        asked = start(sender.request(note("1")))
        await inbox.receive()
        asked.cancel()
        with suppress(asyncio.CancelledError):
            await asked
        await process.again()
        assert [(record.id, record.state) for record in read_records(process.path)] == [("m1", State.FAILED)]
        assert process.bus._node.journal.earlier(note("1"), is_request=True) is None


async def test_a_cancelled_request_of_an_earlier_life_is_made_anew(process, other):
    slow = Slow()
    async with serve(other, "b", slow):
        asked = start((await process.begin()).request(note("1")))
        await until(lambda: slow.begun == ["1"])
        await interrupted(asked)
        await process.end()
        slow.may_answer.set()
        assert (await (await process.begin()).request(note("1"))).payload.content == "answer to 1"
    assert (slow.begun, slow.stopped) == (["1", "1"], ["1"])


async def test_an_id_of_an_earlier_life_with_another_payload_is_refused(process, other):
    async with other.subscribe("b") as inbox:
        await (await process.begin()).publish(note("1"))
        inbox.done(await inbox.receive())
        sender = await process.again()
        with pytest.raises(JournalError, match="another payload: give each message an id of its own"):
            await sender.publish(Envelope(id="m1", kind="note", source="a", target="b", payload=Note(text="2")))
