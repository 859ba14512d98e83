"""Messages that more than one process has in turn: their order, their attempts, and who settles them."""

import asyncio
from contextlib import AsyncExitStack

import pytest
from between import ASK, PATIENCE_S, processes, until, vanish
from mosquitto import needs_mosquitto

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.options import MqttOptions
from mas.core.errors import RemoteError
from mas.core.messages import Note
from mas.testing.bus_suite import cancel, is_blocked, next_text, start

pytestmark = needs_mosquitto
THRICE = MqttOptions(absent_s=0.3, ack_s=0.2, max_attempts=3)


async def die_with_it(url: str, options: MqttOptions = THRICE) -> MqttBus:
    """A process that listens, takes one message, and dies."""
    bus = await MqttBus.connect(url, options=options).__aenter__()
    inbox = await bus.subscribe("b").__aenter__()
    await inbox.receive()
    await asyncio.sleep(0)
    await bus.flush()
    await vanish(bus)
    return bus


async def test_a_process_that_closes_loses_nothing_that_it_has_in_hand_or_gave_back(url):
    async with processes(url, 2) as (sends, stays), AsyncExitStack() as leaving:
        closes = await leaving.enter_async_context(MqttBus.connect(url))
        first = await leaving.enter_async_context(closes.subscribe("b"))
        for text in ("given back", "in hand"):
            await sends.publish(ASK.new("b", Note(text=text)))
        first.nack(await first.receive(), delay_s=0.3)
        in_hand = await first.receive()
        async with stays.subscribe("b") as second:
            await closes.close()
            first.done(in_hand)
            assert sorted([await next_text(second), await next_text(second)]) == ["given back", "in hand"]
            await until(lambda: sends.statistics().outbox == 0)


async def test_what_a_process_gave_back_when_it_closes_waits_for_the_next_listener(url):
    async with processes(url, 2) as (sends, comes), AsyncExitStack() as leaving:
        closes = await leaving.enter_async_context(MqttBus.connect(url))
        first = await leaving.enter_async_context(closes.subscribe("b"))
        await sends.publish(ASK.new("b", Note(text="x")))
        first.nack(await first.receive(), delay_s=0.3)
        await closes.close()
        await until(lambda: closes.me not in sends.processes())
        async with comes.subscribe("b") as second:
            assert await next_text(second) == "x"
            await until(lambda: sends.statistics().outbox == 0)


async def test_a_key_keeps_its_order_when_the_process_that_has_it_leaves(url):
    async with processes(url, 4) as (leaves, one, two, sends), AsyncExitStack() as staying:
        async with leaves.subscribe("b"):
            for text in "123":
                await sends.publish(ASK.new("b", Note(text=text), key="k"))
            inboxes = [await staying.enter_async_context(bus.subscribe("b")) for bus in (one, two)]
        receiving = {start(inbox.receive()): inbox for inbox in inboxes}
        order = []
        for _ in range(3):
            await asyncio.wait(receiving, return_when=asyncio.FIRST_COMPLETED)
            assert [await is_blocked(task, PATIENCE_S) for task in receiving].count(True) == 1, "one at a time"
            (task,) = (task for task in receiving if task.done())
            inbox = receiving.pop(task)
            order.append(task.result().payload.content)
            inbox.done(task.result())
            receiving[start(inbox.receive())] = inbox
        assert order == ["1", "2", "3"]
        await until(lambda: sends.statistics().outbox == 0)
        for task in receiving:
            await cancel(task)


async def test_a_subscription_that_has_ended_settles_nothing_that_another_one_has(url):
    async with processes(url, 2) as (receives, sends), receives.subscribe("b") as stays:
        async with AsyncExitStack() as leaving:
            ends = await leaving.enter_async_context(receives.subscribe("b"))
            for text in "12":
                await sends.publish(ASK.new("b", Note(text=text)))
            early = await ends.receive()
        again = [await stays.receive() for _ in "12"]
        for settle in (ends.done, lambda envelope: ends.reject(envelope, cause="late")):
            settle(early)
            await receives.flush()
            await sends.flush()
            assert sends.statistics().outbox == 2
        for envelope in again:
            stays.done(envelope)
        await until(lambda: sends.statistics().outbox == 0)


async def test_attempts_are_counted_over_all_processes(url):
    async with processes(url, 3, THRICE) as (one, two, sends), AsyncExitStack() as staying:
        async with one.subscribe("b") as first:
            await sends.publish(ASK.new("b", Note(text="x")))
            assert first.nack(await first.receive(), cause="one")
            await first.receive()
            second = await staying.enter_async_context(two.subscribe("b"))
        last = await second.receive()
        assert last.attempt == 3
        assert not second.nack(last, cause="three")
        await until(lambda: sends.statistics().outbox == 0)
        assert [(letter.cause, letter.attempts) for letter in two.dead_letters()] == [("three", 3)]
        assert sends.statistics().given_up == 1
        assert one.dead_letters() == sends.dead_letters() == ()


async def test_a_message_that_kills_each_process_ends_as_a_dead_letter_of_its_sender(url):
    async with MqttBus.connect(url, options=THRICE) as sends, AsyncExitStack() as dead:
        for number in range(3):
            dying = start(die_with_it(url))
            if number == 0:
                await until(lambda: any(presence.addresses for presence in sends.processes().values()))
                await sends.publish(ASK.new("b", Note(text="poison")))
            bus = await dying
            dead.push_async_callback(bus._local.close)
            await until(lambda bus=bus: bus.me not in sends.processes())
        assert sends.statistics().outbox == 0
        (letter,) = sends.dead_letters()
        assert (letter.envelope.payload.content, letter.attempts) == ("poison", 3)
        assert "tried 3 times" in letter.cause
        async with MqttBus.connect(url, options=THRICE) as comes, comes.subscribe("b") as inbox:
            assert sends.redrive() == 1
            again = await inbox.receive()
            assert again.attempt == 1
            inbox.done(again)
            await until(lambda: sends.statistics().outbox == 0)
        assert (sends.statistics().given_up, sends.dead_letters()) == (0, ())


async def test_a_request_that_kills_each_process_fails_after_as_many_attempts(url):
    async with MqttBus.connect(url, options=THRICE) as asks, AsyncExitStack() as dead:
        dying = [start(die_with_it(url)) for _ in range(3)]
        await until(lambda: sum(bool(presence.addresses) for presence in asks.processes().values()) == 3)
        with pytest.raises(RemoteError, match=r"'asker/.*tried 3 times at 'b'"):
            await asks.request(ASK.new("b", Note(text="poison")))
        for task in dying:
            dead.push_async_callback((await task)._local.close)


async def test_a_message_whose_processes_die_before_they_take_it_has_all_its_attempts(url):
    async with MqttBus.connect(url, options=THRICE) as sends, AsyncExitStack() as dead:
        for number in range(3):
            bus = await MqttBus.connect(url, options=THRICE).__aenter__()
            dead.push_async_callback(bus._local.close)
            await bus.subscribe("b").__aenter__()
            if number == 0:
                await sends.publish(ASK.new("b", Note(text="x")))
            await until(lambda bus=bus: bus.statistics().waiting == 1)
            await bus.flush()
            await sends.flush()
            await vanish(bus)
            await until(lambda bus=bus: bus.me not in sends.processes())
        async with MqttBus.connect(url, options=THRICE) as comes, comes.subscribe("b") as inbox:
            assert (await inbox.receive()).attempt == 1


async def test_the_rest_of_a_delay_is_waited_for_in_another_process(url):
    async with processes(url, 3) as (leaves, stays, sends), AsyncExitStack() as staying:
        async with leaves.subscribe("b") as first:
            await sends.publish(ASK.new("b", Note(text="late")))
            second = await staying.enter_async_context(stays.subscribe("b"))
            first.nack(await first.receive(), delay_s=0.8)
        again = start(second.receive())
        assert await is_blocked(again, 0.5)
        assert (await again).attempt == 2
