"""What nobody may do, tried against a real mosquitto with plain clients.

What counts is what is delivered: brokers accept subscriptions and messages that they then leave undelivered.
"""

import asyncio
import socket
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from brokers import (
    Broker,
    back_topic,
    broker,
    needs_mosquitto,
    presence_topic,
    shared_filter,
    to_topic,
)
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.properties import Properties

from mas.bus.mqtt.topics import share_group

pytestmark = needs_mosquitto
SPACE, PLANNER, EXECUTOR, COORDINATOR, OPERATOR = (
    "default",
    "relay/planner",
    "relay/executor",
    "coordinator",
    "operator",
)
MAX_PACKET = 2048
_WAIT_S = 30.0
FENCES = {
    **{name: back_topic(SPACE, name, "fence", COORDINATOR) for name in (PLANNER, EXECUTOR, COORDINATOR)},
    OPERATOR: presence_topic(SPACE, COORDINATOR, "fence"),
}
"""Where the coordinator may write and the principal may read."""
PRIVATE = [
    *[to_topic(SPACE, PLANNER, COORDINATOR)] * 3,
    back_topic(SPACE, PLANNER, "p1", COORDINATOR),
]
"""Where the coordinator writes to the planner alone."""


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """A broker for the team planner -> executor."""
    directory = tmp_path_factory.mktemp("served") / "broker"
    with broker("relay", directory, "--max-packet-bytes", str(MAX_PACKET), "--max-queued-bytes", "100000") as running:
        yield running


@pytest.fixture(autouse=True)
async def _the_broker_serves_on(served: Broker) -> AsyncIterator[None]:
    """After every test messages still pass."""
    yield
    topic = to_topic(SPACE, EXECUTOR, PLANNER)
    assert await heard(served, EXECUTOR, [topic], lambda: publish(served, PLANNER, topic)) == [topic]
    assert served.process.poll() is None


async def publish(running: Broker, principal: str, *topics: str, **options: Any) -> None:
    """Send a message to each topic and wait until the broker has taken it."""
    async with running.client(principal) as client:
        for topic in topics:
            await client.publish(topic, b"said", qos=1, **options)


async def heard(
    running: Broker, principal: str, filters: list[str], act: Callable[[], Awaitable[object]], **options: Any
) -> list[str]:
    """Topics of what a principal gets for its filters while something happens.

    Messages to one client come in order, so when the last one, which it may read, is there, nothing is still to come.
    """
    fence = FENCES[principal]
    async with asyncio.timeout(_WAIT_S), running.client(principal, **options) as client:
        for wanted in (*filters, fence):
            await client.subscribe(wanted, qos=1)
        await act()
        await publish(running, COORDINATOR, fence)
        found = []
        async for message in client.messages:
            if message.topic.value == fence:
                return found
            found.append(message.topic.value)
    raise AssertionError("the client was disconnected")


SPYING = [
    ["#"],
    ["mas/#"],
    ["+/+/+/+/+", "+/+/+/+/+/+"],
    [f"mas/{SPACE}/to/+/+", f"mas/{SPACE}/back/#"],
    [to_topic(SPACE, PLANNER, None), to_topic(SPACE, PLANNER, COORDINATOR), back_topic(SPACE, PLANNER, None, None)],
    ["$share/mine/#"],
    [f"$share/mine/{to_topic(SPACE, PLANNER, None)}", f"$share/mine/{back_topic(SPACE, PLANNER, None, None)}"],
    [shared_filter(SPACE, PLANNER, PLANNER)],
]


@pytest.mark.parametrize("filters", SPYING, ids=" ".join)
@pytest.mark.parametrize("spy", [EXECUTOR, OPERATOR])
async def test_nobody_reads_what_is_sent_to_another(served: Broker, spy: str, filters: list[str]) -> None:
    assert await heard(served, spy, filters, lambda: publish(served, COORDINATOR, *PRIVATE)) == []


async def test_whom_it_is_sent_to_reads_all_of_it(served: Broker) -> None:
    filters = [shared_filter(SPACE, PLANNER, "group"), back_topic(SPACE, PLANNER, "p1", None)]
    assert await heard(served, PLANNER, filters, lambda: publish(served, COORDINATOR, *PRIVATE)) == PRIVATE


async def test_a_stranger_who_does_not_know_the_group_takes_no_message_away(served: Broker) -> None:
    guesses = (PLANNER, "planner", share_group(PLANNER, served.password(EXECUTOR)))
    topic, last = to_topic(SPACE, PLANNER, COORDINATOR), back_topic(SPACE, PLANNER, "p1", COORDINATOR)
    async with asyncio.timeout(_WAIT_S), served.client(EXECUTOR) as thief, served.client(PLANNER) as listener:
        for guess in guesses:
            await thief.subscribe(shared_filter(SPACE, PLANNER, guess), qos=1)
        group = share_group(PLANNER, served.password(PLANNER))
        for wanted in (shared_filter(SPACE, PLANNER, group), last):
            await listener.subscribe(wanted, qos=1)
        await publish(served, COORDINATOR, *[topic] * 10, last)
        found = []
        async for message in listener.messages:
            found.append(message.topic.value)
            if found[-1] == last:
                break
    assert found == [topic] * 10 + [last]


async def test_a_message_kept_for_a_session_is_not_handed_to_who_takes_the_session_over(served: Broker) -> None:
    keep = Properties(PacketTypes.CONNECT)
    keep.SessionExpiryInterval = 60
    session = {"identifier": "known", "clean_start": False, "properties": keep}
    async with served.client(PLANNER, **session) as listener:
        await listener.subscribe(to_topic(SPACE, PLANNER, None), qos=1)
    await publish(served, COORDINATOR, *PRIVATE)

    async def nothing() -> None:
        return

    assert await heard(served, EXECUTOR, [], nothing, **session) == []


FORGED = [
    to_topic(SPACE, PLANNER, COORDINATOR),
    to_topic(SPACE, PLANNER, EXECUTOR),
    to_topic(SPACE, PLANNER, PLANNER),
    back_topic(SPACE, PLANNER, "p1", COORDINATOR),
    back_topic(SPACE, PLANNER, "p1", PLANNER),
    presence_topic(SPACE, PLANNER, "p1"),
    presence_topic(SPACE, COORDINATOR, "p1"),
]
"""What the executor may not say, though the planner would read it."""
OPEN_TO_PLANNER = [
    to_topic(SPACE, PLANNER, None),
    back_topic(SPACE, PLANNER, None, None),
    presence_topic(SPACE, None, None),
]


@pytest.mark.parametrize("forger", [EXECUTOR, OPERATOR])
@pytest.mark.parametrize("retain", [False, True], ids=["live", "retained"])
async def test_nobody_writes_under_anothers_name_or_where_no_edge_leads(
    served: Broker, forger: str, retain: bool
) -> None:
    async def forge() -> None:
        await publish(served, forger, *FORGED, retain=retain)

    assert await heard(served, PLANNER, OPEN_TO_PLANNER, forge) == []
    assert await heard(served, PLANNER, OPEN_TO_PLANNER, lambda: publish(served, EXECUTOR)) == [], "kept"


async def test_who_is_asked_answers_under_its_own_name(served: Broker) -> None:
    answers = [back_topic(SPACE, PLANNER, "p1", EXECUTOR)]
    assert await heard(served, PLANNER, OPEN_TO_PLANNER, lambda: publish(served, EXECUTOR, *answers)) == answers


async def test_a_last_will_is_no_way_around(served: Broker) -> None:
    own = presence_topic(SPACE, EXECUTOR, "dead")

    async def die() -> None:
        async with served.client(OPERATOR) as watcher:
            await watcher.subscribe(own, qos=1)
            for topic in (*FORGED, own):
                client = served.client(EXECUTOR, will=aiomqtt.Will(topic, b"said", qos=1))
                await client.__aenter__()
                client._client.socket().shutdown(socket.SHUT_RDWR)  # not closed by MQTT's rules: the will counts
                with pytest.raises(aiomqtt.MqttError):
                    await anext(aiter(client.messages))
                await client.__aexit__(None, None, None)
            await anext(aiter(watcher.messages))

    assert await heard(served, PLANNER, OPEN_TO_PLANNER, die) == [own]


async def test_presence_is_written_by_its_owner_and_read_by_all(served: Broker) -> None:
    presence = presence_topic(SPACE, EXECUTOR, "p7")
    for reader in (PLANNER, OPERATOR, COORDINATOR):
        assert await heard(served, reader, [presence], lambda: publish(served, EXECUTOR, presence)) == [presence]


async def test_counters_of_the_broker_are_for_the_operator(served: Broker) -> None:
    for principal, version in ((OPERATOR, ["$SYS/broker/version"]), (EXECUTOR, [])):

        async def nothing() -> None:
            return

        assert await heard(served, principal, ["$SYS/broker/version"], nothing) == version


@pytest.mark.parametrize(
    "login",
    [
        {"username": None, "password": None},
        {"password": None},
        {"password": "wrong"},
        {"username": "stranger"},
        {"username": PLANNER},
        {"username": "Relay/Executor"},
    ],
    ids=str,
)
@pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V5, aiomqtt.ProtocolVersion.V311], ids=str)
async def test_nobody_connects_without_a_password_of_its_own(
    served: Broker, login: dict[str, Any], version: aiomqtt.ProtocolVersion
) -> None:
    with pytest.raises(aiomqtt.MqttError, match=r"[Nn]ot authori[sz]ed"):
        await served.client(EXECUTOR, protocol=version, **login).__aenter__()


@pytest.mark.parametrize("version", [aiomqtt.ProtocolVersion.V5, aiomqtt.ProtocolVersion.V311], ids=str)
async def test_a_message_beyond_the_limit_is_refused_with_its_sender(
    served: Broker, version: aiomqtt.ProtocolVersion
) -> None:
    topic = to_topic(SPACE, EXECUTOR, PLANNER)

    async def send(size: int) -> None:
        async with served.client(PLANNER, protocol=version) as client:
            await client.publish(topic, bytes(size), qos=1)

    async def exceed() -> None:
        async with asyncio.timeout(_WAIT_S), served.client(PLANNER, protocol=version) as client:
            await client.publish(topic, bytes(MAX_PACKET), qos=0)
            with pytest.raises(aiomqtt.MqttError):
                await anext(aiter(client.messages))

    assert await heard(served, EXECUTOR, [topic], lambda: send(MAX_PACKET // 2)) == [topic]
    assert await heard(served, EXECUTOR, [topic], exceed) == []


def test_a_stranger_cannot_announce_a_packet_beyond_the_limit(served: Broker) -> None:
    with socket.create_connection(("127.0.0.1", served.port), timeout=10) as raw:
        raw.sendall(b"\x10\xff\xff\xff\x7f")  # CONNECT of 268,435,455 bytes
        assert raw.recv(1) == b""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nothing_listens_where_other_machines_could_connect(served: Broker) -> None:
    listening = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            _, local, _, state, *_ = line.split()
            address, port = local.split(":")
            if state == "0A" and int(port, 16) == served.port:
                listening.append(address)
    assert listening == ["0100007F"]  # 127.0.0.1, the bytes from the last to the first
