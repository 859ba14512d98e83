"""Presences are claims: those beyond a principal's bounds, or of another's address, are ignored and counted."""

import asyncio
import logging

import aiomqtt
import msgspec
import pytest
from between import QUICK, as_user, echo, until
from mosquitto import Mosquitto, needs_mosquitto

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.coordination import ask_for_lease
from mas.bus.mqtt.options import MqttOptions
from mas.bus.mqtt.presence import PRINCIPALS, PeerObserver, Peers, Presence, PresenceFilter, any_address
from mas.bus.mqtt.topics import Peer, Topics
from mas.bus.serve import EnvelopeFactory, serve
from mas.core.errors import Malformed
from mas.core.messages import Note
from mas.protocols import plan_execute
from mas.runtime.processes import team_owns

EVE, BOB = "eve", "bob"


def presence(
    *addresses: str, draining: tuple[str, ...] = (), leases: tuple[str, ...] = (), is_leaving: bool = False
) -> bytes:
    shown = Presence(
        since=1.0, addresses=dict.fromkeys(addresses, "x"), draining=draining, leases=leases, is_leaving=is_leaving
    )
    return msgspec.json.encode(shown)


def own_only(principal: str, address: str) -> bool:
    return principal == address


@pytest.mark.parametrize(
    "claimed",
    [
        presence(BOB),
        presence(EVE, BOB),
        presence(EVE, draining=(BOB,)),
        presence(leases=(BOB,)),
        presence(BOB, is_leaving=True),
    ],
    ids=["listens", "listens at both", "drains", "asks for a lease", "leaves"],
)
def test_a_presence_that_claims_an_address_of_another_is_ignored(claimed: bytes) -> None:
    presence_filter = PresenceFilter(own_only, most=5, most_bytes=10_000)
    assert presence_filter.read(Peer(EVE, "p"), presence(EVE)) is not None
    assert presence_filter.read(Peer(EVE, "p"), claimed) is None
    assert presence_filter.read(Peer(BOB, "p"), presence(BOB)) is not None
    assert presence_filter.refused == 1


def test_the_first_refusal_of_each_principal_is_logged_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    presence_filter = PresenceFilter(own_only, most=5, most_bytes=10_000)
    with caplog.at_level(logging.WARNING):
        for principal in (EVE, EVE, "mallory\n"):
            presence_filter.read(Peer(principal, "p"), presence(BOB))
    assert [record.getMessage().split(": ")[0] for record in caplog.records] == [
        "presences of 'eve' are ignored",
        "presences of 'mallory\\n' are ignored",
    ]
    assert "claims the address 'bob', which is another's" in caplog.records[0].getMessage()


def test_processes_of_one_principal_are_bounded_and_those_of_others_are_not_touched() -> None:
    presence_filter = PresenceFilter(any_address, most=3, most_bytes=10_000)
    known = [presence_filter.read(Peer(EVE, str(number)), presence()) is not None for number in range(5)]
    assert known == [True] * 3 + [False] * 2
    assert presence_filter.read(Peer(EVE, "2"), presence("a")) is not None, "one that is known may show another"
    assert presence_filter.read(Peer(BOB, "9"), presence()) is not None
    presence_filter.forget(Peer(EVE, "0"))
    assert presence_filter.read(Peer(EVE, "4"), presence()) is not None


def test_bytes_of_one_principal_are_bounded_and_given_back() -> None:
    size = len(presence("a"))
    presence_filter = PresenceFilter(any_address, most=100, most_bytes=2 * size)
    for _ in range(3):  # the same presence again costs nothing
        assert presence_filter.read(Peer(EVE, "0"), presence("a")) is not None
    assert presence_filter.read(Peer(EVE, "1"), presence("b")) is not None
    assert presence_filter.read(Peer(EVE, "2"), presence("c")) is None
    assert presence_filter.read(Peer(EVE, "1"), presence("longer")) is None
    presence_filter.forget(Peer(EVE, "0"))
    presence_filter.forget(Peer(EVE, "0"))
    assert presence_filter.read(Peer(EVE, "2"), presence("c")) is not None


def test_bytes_of_all_principals_are_bounded() -> None:
    """An open broker lets everybody choose names."""
    size = len(presence("a"))
    presence_filter = PresenceFilter(any_address, most=100, most_bytes=size)
    known = [
        presence_filter.read(Peer(str(number), "p"), presence("a")) is not None for number in range(PRINCIPALS + 2)
    ]
    assert known == [True] * PRINCIPALS + [False] * 2


def test_what_is_too_long_is_not_even_read() -> None:
    presence_filter = PresenceFilter(any_address, most=3, most_bytes=100)
    assert presence_filter.read(Peer(EVE, "p"), b"{" * 101) is None
    with pytest.raises(Malformed):
        presence_filter.read(Peer(EVE, "p"), b"{" * 99)


def test_processes_that_may_come_back_are_bounded_for_each_principal() -> None:
    forgotten: list[Peer] = []
    peers = Peers(clock=lambda: 0.0, options=MqttOptions(absent_s=1.0, max_processes=2))
    observer = PeerObserver()
    observer.peer_forgotten = forgotten.append
    peers.observers = (observer,)
    for peer in (Peer(BOB, "b"), *(Peer(EVE, str(number)) for number in range(4))):
        peers.take(peer, Presence(since=1.0, addresses={}, away_s=9.0))
        peers.take(peer, Presence(since=1.0, addresses={}, is_leaving=True))
    assert forgotten == [Peer(EVE, "0"), Peer(EVE, "1")]


def test_an_agents_address_is_its_own_and_the_rest_is_for_whoever_plays() -> None:
    owns = team_owns(plan_execute())
    planner, executor, world, run = (f"plan_execute/{name}" for name in ("planner", "executor", "environment", "run"))
    assert owns(planner, planner)
    assert owns("coordinator", world)
    assert owns("somebody who plays", run)
    for principal, address in ((executor, planner), ("coordinator", planner), (executor, world), (executor, run)):
        assert not owns(principal, address)


@needs_mosquitto
async def test_one_retained_card_stops_nobody(url: str, broker: Mosquitto) -> None:
    """Eve's presence says that she listens where bob does, as another reader, and came first. She answers nothing."""
    space = url.rpartition("/")[2]
    topics = Topics(space=space)
    shown = Presence(since=-1.0, addresses={BOB: EVE}, leases=(BOB,), away_s=9.0)
    async with aiomqtt.Client("127.0.0.1", broker.port, username=EVE) as client:
        for process in ("p1", "p2"):
            await client.publish(topics.presence(Peer(EVE, process)), msgspec.json.encode(shown), qos=1, retain=True)

    def owns(principal: str, address: str) -> bool:
        return address != BOB or principal == BOB

    async with (
        asyncio.timeout(10),
        MqttBus.connect(url, options=QUICK, owns=owns) as alice,
        MqttBus.connect(as_user(url, BOB), options=QUICK, owns=owns) as bob,
    ):
        async with ask_for_lease(bob, BOB, most=1) as first:
            assert first == ()
            serving = serve(bob, BOB, echo)
            await serving.__aenter__()
        asked = EnvelopeFactory("alice").new(BOB, Note(text="hello"))
        assert (await alice.request(asked, timeout_s=5.0)).payload.content == "hello"
        assert {peer.principal for peer in alice.processes()} == {"alice", BOB}
        assert alice.statistics().ignored_presences >= 2 <= bob.statistics().ignored_presences
        await serving.__aexit__(None, None, None)


@needs_mosquitto
async def test_a_flood_of_cards_leaves_an_agent_small_and_at_work(url: str, broker: Mosquitto) -> None:
    """40 presences of 64 KiB and 500 small ones: of one principal, 256 processes and 1 MiB are known."""
    topics = Topics(space=url.rpartition("/")[2])
    long = msgspec.json.encode(Presence(since=1.0, addresses={"x" * 1000 + str(n): "y" * 50 for n in range(64)}))
    async with (
        MqttBus.connect(as_user(url, BOB), options=QUICK) as bob,
        serve(bob, BOB, echo),
        aiomqtt.Client("127.0.0.1", broker.port, username=EVE) as client,
    ):
        for number in range(40):
            await client.publish(topics.presence(Peer(EVE, f"long{number}")), long, qos=1, retain=True)
        for number in range(500):
            await client.publish(topics.presence(Peer(EVE, f"small{number}")), presence(), qos=1, retain=True)
        async with MqttBus.connect(url, options=QUICK) as alice:
            await until(lambda: alice.statistics().ignored_presences >= 284 <= bob.statistics().ignored_presences)
            known = [shown for peer, shown in alice.processes().items() if peer.principal == EVE]
            assert len(known) <= 256
            assert sum(len(msgspec.json.encode(shown)) for shown in known) <= 1 << 20
            asked = EnvelopeFactory("alice").new(BOB, Note(text="hello"))
            assert (await alice.request(asked, timeout_s=5.0)).payload.content == "hello"
        for number in range(40):
            await client.publish(topics.presence(Peer(EVE, f"long{number}")), b"", qos=1, retain=True)
