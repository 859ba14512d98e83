"""Whatever comes from the broker, a process with a journal counts what is wrong, and goes on with what is right."""

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest
from between import QUICK, as_user, until
from mosquitto import needs_mosquitto
from test_mqtt_frames import mutated

from mas.bus.journal import Journal
from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.frames import (
    AnswerFrame,
    Cancel,
    Codec,
    Confirm,
    Failed,
    Frame,
    MessageState,
    PartFrame,
    Send,
    StateQuery,
    Status,
)
from mas.bus.mqtt.options import MqttOptions
from mas.bus.mqtt.presence import Presence, read_presence
from mas.bus.mqtt.topics import MOST_LETTERS, Peer, Topics
from mas.bus.serve import EnvelopeFactory, serve
from mas.core.errors import Malformed
from mas.core.messages import Envelope, Note, Payload

pytestmark = needs_mosquitto
CODEC = Codec()
X = Note(text="x")
FRAMES = 100_000
REMEMBERED = 500
OPTIONS = MqttOptions(absent_s=0.5, ack_s=0.2, remembered=REMEMBERED)


def said(frame: Frame, topics: Topics, me: Peer, sender: str = "bob") -> tuple[str, bytes]:
    """A frame where it belongs."""
    topic = topics.to(frame.envelope.target, sender) if isinstance(frame, Send) else topics.back(me, sender)
    return topic, CODEC.encode(frame)


def valid(topics: Topics, me: Peer) -> list[tuple[str, bytes]]:
    """One of every kind, from a process of bob's, and a presence."""
    note = Envelope(id="1", kind="note", source="a", target="b", payload=Note(text="x"), principal="bob", key="k")
    frames = [
        Send("p", "t", 1, "request", 9.0, True, note, is_streamed=True),
        Send("p", "u", 1, "publish", None, False, msgspec.structs.replace(note, target="n", deadline=None)),
        Send("p", "v", 3, "publish_nowait", None, False, msgspec.structs.replace(note, target="n", key=None), tries=2),
        StateQuery("p", [("t", 1), ("w", 2)]),
        Cancel("p", "t"),
        Confirm("p", ["t"]),
        Status("p", [MessageState("t", 1, "returned", 1, 0.5)]),
        AnswerFrame("p", "t", msgspec.structs.replace(note, target="a")),
        PartFrame("p", "t", 1, 1, 3, Note(text="x")),
        Failed("p", "t", "NoRoute", "nobody"),
    ]
    presence = Presence(since=1.0, addresses={"elsewhere": "bob"}, away_s=3.0)
    return [
        (topics.presence(Peer("bob", "p")), msgspec.json.encode(presence)),
        *(said(frame, topics, me) for frame in frames),
    ]


def is_wrong(topics: Topics, topic: str, payload: bytes) -> bool:
    """Whether what comes must be counted: as malformed, or as forged."""
    arrival = topics.arrival(topic)
    try:
        if arrival is None:
            return True
        if arrival.kind == "presence":
            read_presence(payload)
            return False
        frame = CODEC.decode(payload)
    except Malformed:
        return True
    if isinstance(frame, Send):
        envelope = frame.envelope
        return (arrival.kind, envelope.principal, envelope.target) != ("to", arrival.sender, arrival.address)
    return arrival.kind == "to" or (isinstance(frame, AnswerFrame) and frame.envelope.principal != arrival.sender)


async def test_a_hundred_thousand_malformed_frames_leave_a_living_bus_as_it_was(url: str, tmp_path: Path) -> None:
    """Seen: 3 to 5 s."""
    draw, handled, unhandled = random.Random(0), [], []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))

    async def keep(envelope: Envelope) -> Payload:
        handled.append(envelope)
        return envelope.payload

    begin = time.process_time()
    with Journal.open(tmp_path / "alice.sqlite", durability="async") as journal:
        async with (
            MqttBus.connect(url, options=OPTIONS, journal=journal) as bus,
            serve(bus, "b", keep),
            serve(bus, "n", keep),
            MqttBus.connect(as_user(url, "bob"), options=QUICK) as bob,
        ):
            topics, wrong = bus._node.topics, 0
            right = valid(topics, bus.me)
            for number in range(FRAMES):
                topic, payload = draw.choice(right)
                payload = mutated(payload, draw)
                if draw.random() < 0.1:
                    topic = mutated(topic.encode(), draw).decode(errors="replace")
                wrong += is_wrong(topics, topic, payload)
                bus._node.dispatcher.take(topic, payload)
                if number % 500 == 0:
                    await asyncio.sleep(0)
            counted = bus.statistics()
            assert counted.malformed + counted.forged == wrong
            assert wrong > FRAMES * 0.6
            await until(lambda: bus.statistics().held == 0 == bus.statistics().waiting)
            assert handled, "what is still right after a change is a message"
            for envelope in handled:
                assert envelope.principal == "bob"
                assert envelope.target in ("b", "n")
                assert CODEC.decode(CODEC.encode(AnswerFrame("p", "t", envelope))).envelope == envelope
            assert len(bus._node.receiver._messages) <= REMEMBERED
            assert len(bus.processes()) < 10

            notes = EnvelopeFactory("bob")
            assert (await bob.request(notes.new("b", Note(text="still")), timeout_s=5.0)).payload.content == "still"
            await bob.publish(notes.new("n", Note(text="here")))
            await until(lambda: handled[-1].payload.content == "here")
            await journal.flush()
            assert len(unhandled) == 0, unhandled
    assert time.process_time() - begin < 60


EMPTY, LONG = "", "y" * (MOST_LETTERS + 1)


@pytest.mark.parametrize("name", [EMPTY, LONG], ids=["empty", "long"])
async def test_nobody_is_answered_or_asked_whose_name_is_no_level_of_a_topic(url: str, name: str) -> None:
    """An answer could not be sent there, and asking whether it lives would stop this process's looking after."""
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    async with MqttBus.connect(url, options=QUICK) as bus, bus.subscribe("b"):
        topics = bus._node.topics
        message = Envelope(id="1", kind="note", source="a", target="b", payload=Note(text="x"), principal="bob")
        presence = msgspec.json.encode(Presence(since=1.0, addresses={}))
        bus._node.dispatcher.take(
            topics.to("b", "bob"), CODEC.encode(Send(name, "t", 1, "publish", None, True, message))
        )
        bus._node.dispatcher.take(f"{topics.root}/presence/bob/{name}", presence)
        bus._node.dispatcher.take(f"{topics.root}/presence/bob/{name}", b"")
        bus._node.dispatcher.take(f"{topics.root}/back/alice/p/{name}", CODEC.encode(StateQuery("p", [("t", 1)])))
        await asyncio.sleep(0.1)  # it looks after what is due every 0.05 s
        assert bus.statistics().malformed == 4
        assert len(bus.processes()) == 1
        assert not bus._node._checking.done()
    assert unhandled == []


async def test_a_message_goes_nowhere_else_than_where_the_broker_let_it(url: str) -> None:
    async with MqttBus.connect(url, options=QUICK) as bus, bus.subscribe("b"), bus.subscribe("private"):
        topics = bus._node.topics
        hidden = Envelope(id="1", kind="note", source="a", target="private", payload=Note(text="x"), principal="bob")
        bus._node.dispatcher.take(topics.to("b", "bob"), CODEC.encode(Send("p", "t", 1, "publish", None, True, hidden)))
        assert (bus.statistics().forged, bus.statistics().accepted) == (1, 0)


@pytest.mark.parametrize("changed", [{"attempt": 2**63}, {"tries": 2**63}, {"attempt": -1}])
async def test_numbers_that_no_journal_can_hold_stop_none(process, other, changed: dict[str, int]) -> None:
    bus = await process.begin()
    async with bus.subscribe("b") as inbox:
        named = {"attempt": 1, "tries": 0} | changed
        message = Envelope(id="1", kind="note", source="a", target="b", payload=Note(text="x"), principal="bob")
        for envelope in (message, msgspec.structs.replace(message, attempt=2**63)):
            frame = Send("p", "t", named["attempt"], "publish", None, True, envelope, named["tries"])
            bus._node.dispatcher.take(bus._node.topics.to("b", "bob"), CODEC.encode(frame))
        assert bus.statistics().malformed == 2
        await other.publish(msgspec.structs.replace(message, principal=None))
        inbox.done(await inbox.receive())
        await process.journal.flush()


async def test_an_error_of_this_program_on_what_came_is_shown_and_the_connection_made_again(url, other, monkeypatch):
    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    async with MqttBus.connect(url, options=QUICK) as bus, bus.subscribe("b") as inbox:
        with monkeypatch.context() as patch:
            patch.setattr(bus._node.connection._client, "_receive", lambda topic, payload: {}[topic])
            await until(lambda: bus.me in other.processes())
            sent = asyncio.create_task(other.publish(Envelope(id="1", kind="note", source="a", target="b", payload=X)))
            await until(lambda: unhandled)
        assert isinstance(unhandled[0]["exception"], KeyError)
        assert (await inbox.receive()).payload == X
        await sent
        assert bus.statistics().reconnects >= 1
