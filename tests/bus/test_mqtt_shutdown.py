"""Who is told to end hears it once it is there, nobody else does, and nobody believes it of the wrong principal."""

import asyncio
import socket

import msgspec
import pytest
from between import QUICK, as_user, until
from mosquitto import needs_mosquitto

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.coordination import accept_shutdown, shut_down, shutdown_command
from mas.core.errors import Closed, NoRoute

pytestmark = needs_mosquitto


def worker(url: str) -> MqttBus:
    return MqttBus.connect(as_user(url, "worker"), options=QUICK)


def boss(url: str) -> MqttBus:
    return MqttBus.connect(as_user(url, "boss"), options=QUICK)


async def cut(bus: MqttBus, monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Break the connection; it comes back when the event is set."""
    link, back = bus._node.connection, asyncio.Event()
    connect = link._connect

    async def held():
        await back.wait()
        return await connect()

    monkeypatch.setattr(link, "_connect", held)
    link._client._client.socket().shutdown(socket.SHUT_RDWR)
    await until(lambda: not link.is_up)
    return back


@pytest.mark.parametrize("at_once", [False, True])
async def test_all_that_obey_are_told_and_those_that_come_later_are_not(url, at_once):
    said: list[str] = []
    async with boss(url) as tells, worker(url) as one, worker(url) as other, worker(url) as deaf:
        for bus in (one, other):
            accept_shutdown(bus, "boss")
            await bus.flush()
            assert shutdown_command(bus) is None
        telling = asyncio.create_task(shut_down(tells, said.append, at_once=at_once), name="tell")
        await until(lambda: shutdown_command(one) is at_once and shutdown_command(other) is at_once)
        async with worker(url) as later:
            accept_shutdown(later, "boss")
            await later.flush()
            assert shutdown_command(later) is shutdown_command(deaf) is None
            await one.close()
            await until(lambda: len(said) == 2)
            assert said[1] == f"has ended: worker ({one.me.process})"
            assert not telling.done()
            await other.close()
            await telling


@pytest.mark.parametrize("is_long", [False, True], ids=["a moment", "longer than it is waited for"])
async def test_whoever_is_just_connecting_again_is_told_when_it_is_back(url, monkeypatch, is_long):
    async with boss(url) as tells, worker(url) as works:
        accept_shutdown(works, "boss")
        await works.flush()
        back = await cut(works, monkeypatch)
        telling = asyncio.create_task(shut_down(tells, lambda text: None, at_once=False), name="tell")
        await until(lambda: tells.presence().stops == {works.me.process: False})
        if is_long:
            await until(lambda: works.me in tells.vanished())
        assert shutdown_command(works) is None
        back.set()
        await until(lambda: shutdown_command(works) is False)
        assert not telling.done()
        await works.close()
        await telling


async def test_whoever_never_comes_back_is_named(url, monkeypatch):
    monkeypatch.setattr("mas.bus.mqtt.coordination._BACK_S", 1.0)
    async with boss(url) as tells, worker(url) as works:
        accept_shutdown(works, "boss")
        await works.flush()
        back = await cut(works, monkeypatch)
        with pytest.raises(
            NoRoute, match=f"worker \\({works.me.process}\\) vanished, and did not come back within 1 s"
        ):
            await shut_down(tells, lambda text: None, at_once=False)
        back.set()


async def test_who_tells_hears_that_its_bus_was_closed(url):
    async with boss(url) as tells, worker(url) as one:
        accept_shutdown(one, "boss")
        await one.flush()
        telling = asyncio.create_task(shut_down(tells, lambda text: None, at_once=False), name="tell")
        await until(lambda: shutdown_command(one) is False)
        await tells.close()
        with pytest.raises(Closed):
            await asyncio.wait_for(telling, 5.0)


async def test_nobody_obeys_a_stranger(url):
    async with worker(url) as works, MqttBus.connect(as_user(url, "mallory"), options=QUICK) as mallory:
        accept_shutdown(works, "boss")
        await works.flush()
        with pytest.raises(NoRoute, match=r"on the word of 'mallory'. Possible: 'boss'"):
            await shut_down(mallory, lambda text: None, at_once=True)
        mallory.announce(msgspec.structs.replace(mallory.presence(), stops={works.me.process: True}))
        await until(lambda: works.processes()[mallory.me].stops)
        assert shutdown_command(works) is None
