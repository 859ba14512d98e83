"""Who may listen where only so many may: never one too many, whoever comes first."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack

import msgspec
import pytest
from between import QUICK, processes, until
from mosquitto import needs_mosquitto

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.coordination import ask_for_lease
from mas.bus.mqtt.topics import Peer
from mas.core.errors import Closed

pytestmark = needs_mosquitto


def age(bus: MqttBus, since: float) -> None:
    bus.announce(msgspec.structs.replace(bus.presence(), since=since))


async def seen(bus: MqttBus, other: MqttBus, holds: Callable[[MqttBus], bool]) -> None:
    await until(lambda: bus.me in other.processes() and holds(other))


async def listens(bus: MqttBus, stack: AsyncExitStack, most: int = 1) -> bool:
    """Whether it got in."""
    async with ask_for_lease(bus, "b", most=most) as first:
        if len(first) < most:
            await stack.enter_async_context(bus.subscribe("b"))
    return len(first) < most


@pytest.mark.parametrize("since", [1.0, 3.0], ids=["the older one comes later", "the younger one comes later"])
async def test_whoever_comes_to_one_that_listens_gives_way(url, since):
    async with processes(url, 2) as (here, comes), AsyncExitStack() as stack:
        age(here, 2.0)
        age(comes, since)
        assert await listens(here, stack)
        async with ask_for_lease(comes, "b", most=1) as first:
            assert first == (here.me,)
        assert here.presence().leases == comes.presence().leases == ()


async def test_of_two_that_claim_at_once_the_older_gets_in(url):
    async with processes(url, 2) as (older, younger), AsyncExitStack() as stack:
        age(older, 1.0)
        age(younger, 2.0)
        async with ask_for_lease(older, "b", most=1) as first:
            assert first == ()
            async with ask_for_lease(younger, "b", most=1) as second:
                assert second == (older.me,)
            await stack.enter_async_context(older.subscribe("b"))


@pytest.mark.parametrize("gets_in", [True, False])
async def test_the_older_waits_for_a_younger_one_that_may_not_have_seen_it(url, gets_in):
    async with processes(url, 2) as (older, younger), AsyncExitStack() as stack:
        age(older, 1.0)
        age(younger, 2.0)
        async with ask_for_lease(younger, "b", most=1) as first:
            assert first == ()
            waiting = asyncio.create_task(listens(older, stack), name="older")
            await until(lambda: younger.processes()[older.me].leases == ("b",))
            await older.flush()
            assert not waiting.done()
            if gets_in:
                await stack.enter_async_context(younger.subscribe("b"))
        assert await waiting is not gets_in


async def test_who_waits_hears_that_the_bus_was_closed(url):
    async with processes(url, 2) as (older, younger), AsyncExitStack() as stack:
        age(older, 1.0)
        age(younger, 2.0)
        async with ask_for_lease(younger, "b", most=1):
            waiting = asyncio.create_task(listens(older, stack), name="older")
            await until(lambda: older.presence().leases == ("b",))
            await older.flush()
            await older.close()
            with pytest.raises(Closed):
                await asyncio.wait_for(waiting, 5.0)


async def test_of_equal_age_the_name_decides(url):
    async with (
        MqttBus.connect(url, process="p1", options=QUICK) as one,
        MqttBus.connect(url, process="p2", options=QUICK) as two,
    ):
        age(one, 1.0)
        age(two, 1.0)
        async with ask_for_lease(one, "b", most=1), ask_for_lease(two, "b", most=1) as first:
            assert first == (Peer("alice", "p1"),)


@pytest.mark.parametrize("most", [1, 2, 3])
async def test_of_many_at_once_as_many_get_in_as_may(url, most):
    async with processes(url, 5) as buses, AsyncExitStack() as stack:
        for number, bus in enumerate(buses):
            age(bus, float(number % 3))
        tries: list[Awaitable[bool]] = [listens(bus, stack, most) for bus in buses]
        assert sum(await asyncio.gather(*tries)) == most
        counts = [sum("b" in presence.addresses for presence in bus.processes().values()) for bus in buses]
        assert max(counts) == most
