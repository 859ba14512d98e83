"""Cards are claims: those beyond a principal's bounds, or of another's address, are ignored and counted."""

import asyncio
import logging

import aiomqtt
import msgspec
import pytest
from between import QUICK, as_user, echo, until
from mosquitto import Mosquitto, needs_mosquitto

from mas.bus.envelopes import EnvelopeFactory
from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.admission import PRINCIPALS, Admission, any_address
from mas.bus.mqtt.leases import claim
from mas.bus.mqtt.presence import Card, Cards
from mas.bus.mqtt.topics import Peer, Topics
from mas.bus.serve import serve
from mas.core.errors import Malformed
from mas.core.messages import Note
from mas.protocols import plan_execute
from mas.runtime.joining import team_owns

EVE, BOB = "eve", "bob"


def card(*addresses: str, draining: tuple[str, ...] = (), claims: tuple[str, ...] = (), leaves: bool = False) -> bytes:
    shown = Card(
        since=1.0, addresses=dict.fromkeys(addresses, "x"), draining=draining, claims=claims, is_leaving=leaves
    )
    return msgspec.json.encode(shown)


def own_only(principal: str, address: str) -> bool:
    return principal == address


@pytest.mark.parametrize(
    "claimed",
    [card(BOB), card(EVE, BOB), card(EVE, draining=(BOB,)), card(claims=(BOB,)), card(BOB, leaves=True)],
    ids=["listens", "listens at both", "drains", "claims", "leaves"],
)
def test_a_card_that_claims_an_address_of_another_is_ignored(claimed: bytes) -> None:
    admission = Admission(own_only, most=5, most_bytes=10_000)
    assert admission.read(Peer(EVE, "p"), card(EVE)) is not None
    assert admission.read(Peer(EVE, "p"), claimed) is None
    assert admission.read(Peer(BOB, "p"), card(BOB)) is not None
    assert admission.refused == 1


def test_the_first_refusal_of_each_principal_is_logged_and_no_more(caplog: pytest.LogCaptureFixture) -> None:
    admission = Admission(own_only, most=5, most_bytes=10_000)
    with caplog.at_level(logging.WARNING):
        for principal in (EVE, EVE, "mallory\n"):
            admission.read(Peer(principal, "p"), card(BOB))
    assert [record.getMessage().split(": ")[0] for record in caplog.records] == [
        "cards of 'eve' are ignored",
        "cards of 'mallory\\n' are ignored",
    ]
    assert "claims the address 'bob', which is another's" in caplog.records[0].getMessage()


def test_processes_of_one_principal_are_bounded_and_those_of_others_are_not_touched() -> None:
    admission = Admission(any_address, most=3, most_bytes=10_000)
    known = [admission.read(Peer(EVE, str(number)), card()) is not None for number in range(5)]
    assert known == [True] * 3 + [False] * 2
    assert admission.read(Peer(EVE, "2"), card("a")) is not None, "one that is known may show another"
    assert admission.read(Peer(BOB, "9"), card()) is not None
    admission.forget(Peer(EVE, "0"))
    assert admission.read(Peer(EVE, "4"), card()) is not None


def test_bytes_of_one_principal_are_bounded_and_given_back() -> None:
    size = len(card("a"))
    admission = Admission(any_address, most=100, most_bytes=2 * size)
    for _ in range(3):  # the same card again costs nothing
        assert admission.read(Peer(EVE, "0"), card("a")) is not None
    assert admission.read(Peer(EVE, "1"), card("b")) is not None
    assert admission.read(Peer(EVE, "2"), card("c")) is None
    assert admission.read(Peer(EVE, "1"), card("longer")) is None
    admission.forget(Peer(EVE, "0"))
    admission.forget(Peer(EVE, "0"))
    assert admission.read(Peer(EVE, "2"), card("c")) is not None


def test_bytes_of_all_principals_are_bounded() -> None:
    """An open broker lets everybody choose names."""
    size = len(card("a"))
    admission = Admission(any_address, most=100, most_bytes=size)
    known = [admission.read(Peer(str(number), "p"), card("a")) is not None for number in range(PRINCIPALS + 2)]
    assert known == [True] * PRINCIPALS + [False] * 2


def test_what_is_too_long_is_not_even_read() -> None:
    admission = Admission(any_address, most=3, most_bytes=100)
    assert admission.read(Peer(EVE, "p"), b"{" * 101) is None
    with pytest.raises(Malformed):
        admission.read(Peer(EVE, "p"), b"{" * 99)


def test_processes_that_may_come_back_are_bounded_for_each_principal() -> None:
    forgotten: list[Peer] = []
    cards = Cards(
        clock=lambda: 0.0,
        absent_s=1.0,
        most_away=2,
        gone=lambda *_: None,
        back=lambda _: None,
        forgotten=forgotten.append,
        changed=lambda *_: None,
    )
    for peer in (Peer(BOB, "b"), *(Peer(EVE, str(number)) for number in range(4))):
        cards.take(peer, Card(since=1.0, addresses={}, away_s=9.0))
        cards.take(peer, Card(since=1.0, addresses={}, is_leaving=True))
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
    """Eve's card says that she listens where bob does, as another reader, and came first. She answers nothing."""
    space = url.rpartition("/")[2]
    topics = Topics(space=space)
    shown = Card(since=-1.0, addresses={BOB: EVE}, claims=(BOB,), away_s=9.0)
    async with aiomqtt.Client("127.0.0.1", broker.port, username=EVE) as client:
        for process in ("p1", "p2"):
            await client.publish(topics.card(Peer(EVE, process)), msgspec.json.encode(shown), qos=1, retain=True)

    def owns(principal: str, address: str) -> bool:
        return address != BOB or principal == BOB

    async with (
        asyncio.timeout(10),
        MqttBus.connect(url, options=QUICK, owns=owns) as alice,
        MqttBus.connect(as_user(url, BOB), options=QUICK, owns=owns) as bob,
    ):
        async with claim(bob, BOB, most=1) as first:
            assert first == ()
            serving = serve(bob, BOB, echo)
            await serving.__aenter__()
        asked = EnvelopeFactory("alice").new(BOB, Note(text="hello"))
        assert (await alice.request(asked, timeout_s=5.0)).payload.content == "hello"
        assert {peer.principal for peer in alice.processes()} == {"alice", BOB}
        assert alice.statistics().ignored_cards >= 2 <= bob.statistics().ignored_cards
        await serving.__aexit__(None, None, None)


@needs_mosquitto
async def test_a_flood_of_cards_leaves_an_agent_small_and_at_work(url: str, broker: Mosquitto) -> None:
    """40 cards of 64 KiB and 500 small ones: of one principal, 256 processes and 1 MiB are known."""
    topics = Topics(space=url.rpartition("/")[2])
    long = msgspec.json.encode(Card(since=1.0, addresses={"x" * 1000 + str(n): "y" * 50 for n in range(64)}))
    async with (
        MqttBus.connect(as_user(url, BOB), options=QUICK) as bob,
        serve(bob, BOB, echo),
        aiomqtt.Client("127.0.0.1", broker.port, username=EVE) as client,
    ):
        for number in range(40):
            await client.publish(topics.card(Peer(EVE, f"long{number}")), long, qos=1, retain=True)
        for number in range(500):
            await client.publish(topics.card(Peer(EVE, f"small{number}")), card(), qos=1, retain=True)
        async with MqttBus.connect(url, options=QUICK) as alice:
            await until(lambda: alice.statistics().ignored_cards >= 284 <= bob.statistics().ignored_cards)
            known = [shown for peer, shown in alice.processes().items() if peer.principal == EVE]
            assert len(known) <= 256
            assert sum(len(msgspec.json.encode(shown)) for shown in known) <= 1 << 20
            asked = EnvelopeFactory("alice").new(BOB, Note(text="hello"))
            assert (await alice.request(asked, timeout_s=5.0)).payload.content == "hello"
        for number in range(40):
            await client.publish(topics.card(Peer(EVE, f"long{number}")), b"", qos=1, retain=True)
