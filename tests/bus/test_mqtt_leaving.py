"""What becomes of messages whose listener leaves or dies, with a real broker between processes."""

import asyncio

from between import ASK, QUICK, processes, until, vanish
from mosquitto import needs_mosquitto

from mas.bus.counters import BusLimits
from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.options import MqttOptions
from mas.core.messages import Delivery, Note
from mas.testing.bus_suite import answer_to, next_text, start

pytestmark = needs_mosquitto


async def test_what_nobody_is_left_to_take_waits_for_the_next_listener(url):
    async with processes(url, 2) as (sends, comes):
        dies = await MqttBus.connect(url, options=QUICK).__aenter__()
        await dies.subscribe("b").__aenter__()
        await sends.publish(ASK.new("b", Note(text="x")))
        await vanish(dies)
        await until(lambda: dies.me not in sends.processes())
        assert sends.statistics().outbox == 1
        async with comes.subscribe("b") as inbox:
            inbox.done(await inbox.receive())
            await until(lambda: sends.statistics().outbox == 0)
        await dies._local.close()


async def test_what_waits_for_a_listener_leaves_room_for_what_does_not(url):
    options = MqttOptions(absent_s=0.5, ack_s=0.2, outbox=4)
    async with processes(url, 2) as (leaves, stays), MqttBus.connect(url, options=options) as sends:
        async with leaves.subscribe("b"):
            for text in "1234":
                await sends.publish(ASK.new("b", Note(text=text)))
        await until(lambda: sends.statistics().lost == 2)
        assert sends.statistics().outbox == 2
        async with stays.subscribe("c") as inbox:
            for text in "567":
                await sends.publish(ASK.new("c", Note(text=text)))
                inbox.done(await inbox.receive())
        async with stays.subscribe("b") as inbox:
            assert sorted([await next_text(inbox), await next_text(inbox)]) == ["1", "2"]


async def test_what_nobody_took_is_counted_when_its_sender_closes(url):
    async with processes(url, 2) as (sends, leaves):
        async with leaves.subscribe("b"):
            await sends.publish(ASK.new("b", Note(text="x")))
        await until(lambda: sends.statistics().outbox == 1)
        await sends.close()
        assert sends.statistics().lost == 1


async def test_what_a_leaving_process_has_not_done_goes_to_another_one(url):
    async with processes(url, 3) as (leaves, stays, sends):
        async with leaves.subscribe("b") as first:
            for text in "12":
                await sends.publish(ASK.new("b", Note(text=text)))
            asked = start(sends.request(ASK.new("b", Note(text="3"))))
            await first.receive()
            second = await stays.subscribe("b").__aenter__()
        again = [await second.receive() for _ in range(3)]
        assert sorted(envelope.payload.content for envelope in again) == ["1", "2", "3"]
        (request,) = [envelope for envelope in again if envelope.reply_to is not None]
        await stays.reply(request, answer_to(request))
        assert (await asked).payload.content == "3"
        for envelope in again:
            second.done(envelope)
        await until(lambda: sends.statistics().outbox == 0)
        assert stays.statistics().waiting == 0


async def test_what_is_to_take_effect_once_outlives_the_bus_that_had_it(url):
    async with processes(url, 3) as (closes, stays, sends):
        first = await closes.subscribe("b").__aenter__()
        await sends.publish(ASK.new("b", Note(text="x"), delivery=Delivery.EFFECTIVELY_ONCE))
        await first.receive()
        await closes.close()
        async with stays.subscribe("b") as second:
            again = await second.receive()
            assert (again.payload.content, again.attempt) == ("x", 2)
            second.done(again)
        await until(lambda: sends.statistics().outbox == 0)
        assert (sends.statistics().given_up, sends.dead_letters()) == (0, ())


async def test_what_a_draining_process_has_in_hand_is_done_there_and_nowhere_else(url):
    async with processes(url, 3) as (drains, stays, sends):
        async with drains.subscribe("b") as first:
            asked = start(sends.request(ASK.new("b", Note(text="1"))))
            request = await first.receive()
            async with stays.subscribe("b") as second:
                await until(lambda: sends.processes()[stays.me].takes("b"))
                await first.withdraw()
                await until(lambda: not sends.processes()[drains.me].takes("b"))
                await asyncio.sleep(4 * QUICK.ack_s)  # the sender asks who has it, several times
                next_one = start(sends.request(ASK.new("b", Note(text="2"))))
                other = await second.receive()
                assert other.payload.content == "2"
                await drains.reply(request, answer_to(request))
                first.done(request)
                assert (await asked).payload.content == "1"
                await stays.reply(other, answer_to(other))
                second.done(other)
                assert (await next_one).payload.content == "2"
        assert sends.statistics().resent == 0


async def test_who_withdrew_may_listen_again(url):
    async with processes(url, 2) as (bus, sends), bus.subscribe("b") as first:
        await first.withdraw()
        async with bus.subscribe("b") as second:
            assert bus.presence().takes("b")
            await sends.publish(ASK.new("b", Note(text="x")))
            assert await next_text(second) == "x"


async def test_what_another_process_did_is_not_done_again_where_it_was_left(url):
    async with processes(url, 3) as (first, second, sends):
        async with first.subscribe("b") as inbox:
            for text in "12":
                await sends.publish(ASK.new("b", Note(text=text)))
            await inbox.receive()
            elsewhere = await second.subscribe("b").__aenter__()
        for _ in "12":
            elsewhere.done(await elsewhere.receive())
        await until(lambda: sends.statistics().outbox == 0)
        async with first.subscribe("b"):
            assert first.statistics().waiting == 0
        await elsewhere.__aexit__(None, None, None)


async def test_a_process_takes_a_message_again_that_it_had_left_to_another_one(url):
    async with processes(url, 3) as (first, second, sends):
        async with first.subscribe("b") as inbox:
            await sends.publish(ASK.new("b", Note(text="x")))
            await inbox.receive()
            elsewhere = await second.subscribe("b").__aenter__()
        await elsewhere.receive()
        async with first.subscribe("b") as inbox:
            await elsewhere.__aexit__(None, None, None)
            inbox.done(await inbox.receive())
            await until(lambda: sends.statistics().outbox == 0)
            assert first.statistics().dropped == 1, "once, as it was left to the other one"


async def test_what_is_given_back_comes_again_and_at_last_is_a_dead_letter_that_its_sender_need_not_keep(url):
    async with processes(url, 2) as (takes, sends), takes.subscribe("b") as inbox:
        await sends.publish(ASK.new("b", Note(text="x")))
        attempts = 1
        while inbox.nack(await inbox.receive(), cause="not now"):
            attempts += 1
            assert sends.statistics().outbox == 1
        assert attempts == BusLimits().max_attempts
        await until(lambda: sends.statistics().outbox == 0)
        assert takes.statistics().dead == 1
        await sends.publish(ASK.new("b", Note(text="y")))
        inbox.reject(await inbox.receive(), cause="no use")
        await until(lambda: sends.statistics().outbox == 0)
        assert takes.statistics().dead == 2
