"""Payloads too long for the broker travel by reference, with a real broker that takes little."""

import asyncio
import secrets
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest
from between import ASK, as_user, echo, until, vanish
from mosquitto import OPEN, Mosquitto, needs_mosquitto, running_mosquitto

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.blobs import BlobStore
from mas.bus.mqtt.frames import AnswerFrame, Codec, PartFrame, Send, Stored
from mas.bus.mqtt.options import MqttOptions
from mas.bus.mqtt.references import References
from mas.bus.serve import serve
from mas.core.errors import Closed, Expired, Malformed, NoPayload, NoRoute
from mas.core.messages import PAYLOADS, Envelope, Note, Payload
from mas.testing.bus_suite import LoopTurn, next_text, start

pytestmark = needs_mosquitto
LIMIT = 20_000
SMALL = MqttOptions(inline_bytes=8_000)
QUICK_SMALL = MqttOptions(inline_bytes=8_000, absent_s=0.5, ack_s=0.2)


class Weights(Payload):
    """Bytes on the wire."""

    kind: ClassVar[str] = "weights"
    content_of: dict[str, bytes]


KINDS = {**PAYLOADS, "weights": Weights}
CODEC = Codec(KINDS)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mosquitto]:
    """Drops what is longer than its limit, and says so to the sender alone."""
    with running_mosquitto(tmp_path_factory.mktemp("mosquitto"), f"{OPEN}\nmessage_size_limit {LIMIT}") as broker:
        yield broker


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "payloads"


@pytest.fixture
def store(place: Path) -> str:
    return f"file://{place}"


def connect(url: str, store: str | None, options: MqttOptions = SMALL) -> MqttBus:
    return MqttBus.connect(url, payloads=KINDS, store=store, options=options)


async def test_twenty_megabytes_travel_both_ways_over_a_broker_that_takes_twenty_thousand(url, store, place):
    weights = Weights(content_of={"a": secrets.token_bytes(20 << 20), "b": b"\x00\xff"})
    async with connect(url, store) as alice, connect(as_user(url, "bob"), store) as bob, serve(bob, "b", echo):
        answer = await alice.request(ASK.new("b", weights))
        assert answer.payload == weights
        counts = alice.statistics(), bob.statistics()
    assert [(count.stored, count.fetched) for count in counts] == [(1, 1), (1, 1)]
    assert len(list(place.iterdir())) == 1, "the same bytes are one file"


async def test_what_is_short_travels_in_its_message(url, store, place):
    async with connect(url, store) as bus, serve(bus, "b", echo):
        text = "x" * (SMALL.inline_bytes - 100)
        assert (await bus.request(ASK.new("b", Note(text=text)))).payload.content == text
        assert not place.exists()
        assert (await bus.request(ASK.new("b", Note(text=text + "x" * 200)))).payload.content == text + "x" * 200
        assert bus.statistics().stored == 2


async def test_without_a_store_the_error_names_the_option(url):
    async with connect(url, None) as bus, bus.subscribe("b"):
        with pytest.raises(Malformed, match=r"4,194,304 are allowed.*store="):
            await bus.publish(ASK.new("b", Weights(content_of={"a": bytes(5 << 20)})))


async def test_a_process_without_a_store_refuses_a_reference_and_its_sender_is_told(url, store):
    async with connect(url, store) as alice, connect(as_user(url, "bob"), None) as bob, bob.subscribe("b"):
        long = Note(text="x" * 50_000)
        for sending in (alice.request(ASK.new("b", long)), alice.publish(ASK.new("b", long))):
            with pytest.raises(NoPayload, match="has no store: give every process"):
                await sending
        assert bob.statistics().accepted == 0
        assert alice.statistics().outbox == 0


@pytest.mark.parametrize("harm", ["removed", "changed"])
async def test_a_payload_that_is_gone_or_changed_fails_both_ways(url, store, place, harm, monkeypatch):
    put = BlobStore.put

    def harmful(self: BlobStore, content: bytes) -> str:
        name = put(self, content)
        if harm == "removed":
            (place / name).unlink()
        else:
            (place / name).write_bytes(b"y" * len(content))
        return name

    async def much(envelope: Envelope) -> Payload:
        return Note(text="x" * 50_000)

    monkeypatch.setattr(BlobStore, "put", harmful)
    said = "has no [0-9a-f]{64}: it was removed" if harm == "removed" else "was changed: its hash is another one"
    async with connect(url, store) as alice, connect(as_user(url, "bob"), store) as bob, serve(bob, "b", much):
        long, short = ASK.new("b", Note(text="x" * 50_000)), ASK.new("b", Note(text="x"))
        for sending in (alice.publish(long), alice.request(long), alice.request(short)):
            with pytest.raises(NoPayload, match=said):
                await sending
        assert bob.statistics().fetched == alice.statistics().fetched == 0


async def test_messages_of_one_key_stay_in_order_though_some_take_longer(url, store, monkeypatch):
    """Stored and fetched slowly are the long ones, which are every third."""
    slowly = BlobStore.get

    def get(self: BlobStore, name: str, size: int) -> bytes:
        time.sleep(0.02)
        return slowly(self, name, size)

    monkeypatch.setattr(BlobStore, "get", get)
    texts = [str(number) + "x" * (0 if number % 3 else 30_000) for number in range(12)]
    async with (
        connect(url, store) as alice,
        connect(as_user(url, "bob"), store) as bob,
        bob.subscribe("b") as inbox,
    ):
        sending = [start(alice.publish(ASK.new("b", Note(text=text), key="k"))) for text in texts]
        assert [await next_text(inbox) for _ in texts] == texts
        await asyncio.gather(*sending)


@contextmanager
def hanging(monkeypatch: pytest.MonkeyPatch, name: str) -> Iterator[None]:
    """Stores hang in `put` or `get` until the end."""
    release = threading.Event()
    monkeypatch.setattr(BlobStore, name, lambda self, *words: release.wait() and b"")
    try:
        yield
    finally:
        release.set()


async def test_a_store_that_hangs_is_an_error_in_bounded_time(store, monkeypatch):
    clock = asyncio.get_running_loop().time
    options = MqttOptions(inline_bytes=10, store_s=0.05)
    references = References(CODEC, BlobStore(store, keep_s=1.0), options=options, clock=clock)
    envelope = ASK.new("b", Note(text="x" * 100), key="k")
    with hanging(monkeypatch, "put"):
        with pytest.raises(NoPayload, match=r"did not answer within 0.05 s \(store_s\)"):
            await references.stow(envelope)
        with pytest.raises(Expired, match="not stored or fetched in time"):
            await references.stow(envelope, clock() + 0.01)
        assert not references._turns, "nobody waits behind it any more"


async def test_closing_in_the_moment_that_a_store_is_given_up_is_no_error(store, monkeypatch):
    options = MqttOptions(inline_bytes=10, store_s=0.001)
    references = References(CODEC, BlobStore(store, keep_s=1.0), options=options, clock=time.monotonic)
    with hanging(monkeypatch, "put"):
        stowing = start(references.stow(ASK.new("b", Note(text="x" * 100))))
        await LoopTurn()
        assert references._limits
        time.sleep(0.01)  # noqa: ASYNC251 - the limit is to be over before anybody looks
        for _ in range(10):
            await LoopTurn()
            references.close()
        with pytest.raises(Closed):
            await stowing


@pytest.mark.parametrize("name", ["put", "get"])
async def test_a_bus_closes_though_its_store_hangs(url, store, monkeypatch, name):
    async with connect(url, store) as alice, connect(as_user(url, "bob"), store) as bob, bob.subscribe("b"):
        with hanging(monkeypatch, name):
            sending = [start(alice.publish(ASK.new("b", Note(text="x" * 50_000), key=key))) for key in ("k", "k", None)]
            slow = alice if name == "put" else bob
            await until(lambda: bool(slow._node.references._limits))
            async with asyncio.timeout(5.0):
                await slow.close()
                await alice.close()
            for task in sending:
                with pytest.raises((Closed, NoRoute)):
                    await task


async def test_a_broker_that_says_what_it_takes_needs_no_option(tmp_path, store):
    with running_mosquitto(tmp_path, f"{OPEN}\nmax_packet_size 10000") as broker:
        async with connect(broker.url("alice"), store, MqttOptions()) as bus, serve(bus, "b", echo):
            text = "x" * 15_000
            assert (await bus.request(ASK.new("b", Note(text=text)))).payload.content == text
            assert bus.statistics().stored == 2


async def test_what_is_longer_than_allowed_is_neither_stored_nor_fetched(store):
    long = ASK.new("b", Note(text="x" * 5_000))
    roomy = References(CODEC, BlobStore(store, keep_s=1.0), options=MqttOptions(inline_bytes=10), clock=time.monotonic)
    tight = MqttOptions(inline_bytes=10, max_stored_bytes=1_000)
    narrow = References(CODEC, BlobStore(store, keep_s=1.0), options=tight, clock=time.monotonic)
    with pytest.raises(Malformed, match=r"5,0\d\d bytes long, 1,000 are allowed \(max_stored_bytes\)"):
        await narrow.stow(long)
    with pytest.raises(NoPayload, match=r"5,0\d\d bytes long, 1,000 are allowed \(max_stored_bytes\)"):
        await narrow.redeem(await roomy.stow(long))
    assert await roomy.redeem(await roomy.stow(long)) == long


@pytest.mark.parametrize(
    ("packed", "said"),
    [
        (b"\xc1", "not a payload"),
        (CODEC.pack(Note(text="x"))[:-1], "not a payload"),
        (Codec({"note": Note}).pack(Note(text="x")), "of kind 'plan' refers to a 'note'"),
        (CODEC.pack(Stored(sha256="0" * 64, size=1)), "of kind 'plan' refers to a 'mas/stored'"),
    ],
)
async def test_a_reference_to_something_else_is_refused(store, packed, said):
    blobs = BlobStore(store, keep_s=1.0)
    reference = Stored(sha256=blobs.put(packed), size=len(packed))
    envelope = Envelope(id="1", kind="plan", source="a", target="b", payload=reference)
    with pytest.raises(Malformed, match=said):
        await References(CODEC, blobs, options=MqttOptions(), clock=time.monotonic).redeem(envelope)


@pytest.mark.parametrize("reference", [{"sha256": "../" * 21 + "x", "size": 1}, {"sha256": "0" * 64, "size": 0}])
def test_a_reference_that_is_none_does_not_come_out_of_a_frame(reference):
    lying = Stored.model_construct(**reference)
    envelope = Envelope(id="1", kind="note", source="a", target="b", payload=lying)
    with pytest.raises(Malformed, match="mas/stored"):
        CODEC.decode(CODEC.encode(Send("p", "t", 1, "request", None, False, envelope)))


@pytest.mark.parametrize("kind", ["stranger", "mas/stored"])
def test_a_reference_stands_for_a_known_kind(kind):
    envelope = Envelope(id="1", kind=kind, source="a", target="b", payload=Stored(sha256="0" * 64, size=1))
    with pytest.raises(Malformed, match=f"unknown kind '{kind}'"):
        CODEC.decode(CODEC.encode(AnswerFrame("p", "t", envelope)))


def test_no_part_of_an_answer_travels_by_reference():
    with pytest.raises(Malformed, match="a part of an answer travels by reference"):
        CODEC.decode(CODEC.encode(PartFrame("p", "t", 1, 1, 0, Stored(sha256="0" * 64, size=1))))


async def test_what_was_promised_and_whose_payload_is_gone_is_a_dead_letter_of_its_sender(url, store, place):
    async with connect(url, store, QUICK_SMALL) as sends:
        dies = await connect(url, store, QUICK_SMALL).__aenter__()
        dying = await dies.subscribe("b").__aenter__()
        await sends.publish(ASK.new("b", Note(text="x" * 50_000)))
        await dying.receive()
        for path in place.iterdir():
            path.unlink()
        async with connect(url, store, QUICK_SMALL) as stays, stays.subscribe("b"):
            await vanish(dies)
            await until(lambda: bool(sends.dead_letters()))
            (letter,) = sends.dead_letters()
        assert "has no" in letter.cause
        assert sends.statistics().outbox == 0
    await dies._local.close()
