"""Subscriptions that come and go at one address of one process, with a real broker."""

import asyncio

from between import ASK, echo, processes, until
from mosquitto import needs_mosquitto

from mas.bus.mqtt import MqttBus
from mas.bus.serve import serve
from mas.core.messages import Note
from mas.testing.bus_suite import start

pytestmark = needs_mosquitto


async def come_and_go(bus: MqttBus, turns: int) -> None:
    for _ in range(turns):
        async with bus.subscribe("b"):
            await asyncio.sleep(0)


async def test_an_address_that_subscriptions_come_to_and_go_from_is_never_deaf(url):
    async with processes(url, 2) as (listens, asks):
        for turns in range(40):
            going = [start(come_and_go(listens, 1 + number * turns % 3)) for number in range(turns % 4 + 1)]
            for _ in range(turns):
                await asyncio.sleep(0)
            async with serve(listens, "b", echo):
                await asyncio.gather(*going)
                answer = await asks.request(ASK.new("b", Note(text="x")), timeout_s=5.0)
                assert answer.payload.content == "x"
        assert listens.processes()[listens.me].addresses == {}


async def test_a_subscription_that_is_cancelled_on_its_way_in_or_out_leaves_nothing_at_the_broker(url):
    async with processes(url, 3) as (listens, other, asks):
        for turns in range(12):
            coming = start(come_and_go(listens, 1_000))
            for _ in range(turns):
                await asyncio.sleep(0.0005)
            while not coming.done():  # asyncio.wait_for of Python 3.11 may swallow a cancellation
                coming.cancel()
                await asyncio.sleep(0)
            await until(lambda: listens.processes()[listens.me].addresses == {})
        async with serve(other, "b", echo):
            for _ in range(10):
                await asks.request(ASK.new("b", Note(text="x")), timeout_s=5.0)
            assert asks.statistics().resent == 0, "no message went where nobody listens any more"
