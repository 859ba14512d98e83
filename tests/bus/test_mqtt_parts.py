"""Parts of answers between processes, with a real broker between them and a wire that loses some."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import aiomqtt
import msgspec
import pytest
from between import ASK, QUICK, as_user, processes, until, vanish
from mosquitto import needs_mosquitto

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.dispatcher import Dispatcher
from mas.bus.mqtt.frames import AnswerFrame, Codec, PartFrame
from mas.bus.mqtt.options import MqttOptions
from mas.bus.mqtt.topics import Topics
from mas.bus.parts import PartStream
from mas.bus.serve import serve
from mas.core.bus import Gap, Restart
from mas.core.errors import Malformed
from mas.core.messages import Envelope, Note, Payload
from mas.testing.bus_parts import as_told, rest, send_parts
from mas.testing.bus_suite import answer_to

pytestmark = needs_mosquitto


@asynccontextmanager
async def reading(url: str, texts: str) -> AsyncIterator[tuple[MqttBus, MqttBus, PartStream]]:
    """Bob answers alice one character at a time; his bus, hers, and her stream."""

    async def spell(envelope: Envelope) -> Payload:
        send_parts(bob, envelope, texts)
        return Note(text=texts)

    async with (
        MqttBus.connect(url) as alice,
        MqttBus.connect(as_user(url, "bob")) as bob,
        serve(bob, "b", spell),
        alice.stream(ASK.new("b", Note(text="?"))) as stream,
    ):
        yield bob, alice, stream


async def test_parts_travel_as_their_sender_and_both_ends_count_them(url):
    async with reading(url, "abc") as (bob, alice, stream):
        parts = [part async for part in stream]
        assert [part.principal for part in parts] == ["bob"] * 3
        assert (await stream.answer()).payload.content == "abc"
        sent, read = bob.statistics().parts, alice.statistics().parts
    assert (sent.accepted, sent.passed) == (3, 3)
    assert (read.accepted, read.delivered, read.missing) == (3, 3, 0)


async def test_what_the_wire_loses_or_turns_round_is_a_gap(url, monkeypatch):
    hear = Dispatcher.take
    held: list[tuple[str, bytes]] = []
    codec = Codec()

    def lossy(dispatcher, topic: str, payload: bytes) -> None:
        frame = codec.decode(payload) if "/back/alice/" in topic else None
        match frame:
            case PartFrame(sequence=2):
                return
            case PartFrame(sequence=4):
                held.append((topic, payload))
                return
            case AnswerFrame():
                for late in held:
                    hear(dispatcher, *late)
        hear(dispatcher, topic, payload)
        if isinstance(frame, PartFrame):
            hear(dispatcher, topic, payload)

    monkeypatch.setattr(Dispatcher, "take", lossy)
    async with reading(url, "abcdefg") as (_, alice, stream):
        assert await rest(stream) == ["a", "b", Gap(2, 2), "d", Gap(4, 4), "f", "g"]
        assert (await stream.answer()).payload.content == "abcdefg"
        assert (alice.statistics().parts.missing, alice.statistics().parts.dropped) == (2, 6)


async def test_another_process_that_takes_over_begins_anew(url):
    async with processes(url, 2) as (stays, asks):
        dies = await MqttBus.connect(url, options=QUICK).__aenter__()
        dying = await dies.subscribe("b").__aenter__()
        async with asks.stream(ASK.new("b", Note(text="?"))) as stream:
            parts = aiter(stream)
            send_parts(dies, await dying.receive(), "abc")
            assert [as_told(await anext(parts)) for _ in range(3)] == ["a", "b", "c"]
            async with stays.subscribe("b") as inbox:
                await vanish(dies)
                again = await inbox.receive()
                send_parts(stays, again, "xy")
                await stays.reply(again, answer_to(again, "xy"))
                assert await rest(stream) == [Restart(), "x", "y"]
                inbox.done(again)
        await dies._local.close()


async def test_a_stranger_cannot_speak_into_a_stream(url, broker):
    topics, codec = Topics(space=url.rpartition("/")[2]), Codec()
    async with (
        MqttBus.connect(url) as alice,
        MqttBus.connect(as_user(url, "bob")) as bob,
        bob.subscribe("b") as inbox,
        aiomqtt.Client("127.0.0.1", broker.port, protocol=aiomqtt.ProtocolVersion.V5) as mallory,
        alice.stream(ASK.new("b", Note(text="?"), key="k")) as stream,  # with a key the holder says so at once
    ):
        request = await inbox.receive()
        (post,) = alice._node.sender._messages.values()
        await until(lambda: post.holder is not None)
        true = PartFrame("p", post.ticket, post.attempt, 1, 0, Note(text="lie"))
        forged = (
            true,
            msgspec.structs.replace(true, process=bob.me.process),
            msgspec.structs.replace(true, ticket="no such"),
            msgspec.structs.replace(true, attempt=2),
        )
        for lie in forged:
            await mallory.publish(topics.back(alice.me, "mallory"), codec.encode(lie), qos=1)
        await until(lambda: alice.statistics().parts.dropped == len(forged))
        send_parts(bob, request, "a")
        await bob.reply(request, answer_to(request))
        assert await rest(stream) == ["a"]
        inbox.done(request)


async def test_a_part_that_cannot_travel_is_its_handlers_error(url):
    async def much(envelope: Envelope) -> Payload:
        bob.part(envelope, Note(text="x" * 10_000))
        return envelope.payload

    async with (
        MqttBus.connect(url) as alice,
        MqttBus.connect(as_user(url, "bob"), options=MqttOptions(max_frame_bytes=4096)) as bob,
        serve(bob, "b", much),
        alice.stream(ASK.new("b", Note(text="?"))) as stream,
    ):
        with pytest.raises(Malformed, match=r"part 0 of kind 'note' of an answer is 10,\d\d\d bytes long"):
            await rest(stream)
        assert bob.statistics().parts.dropped == 1


async def test_a_connection_that_is_behind_drops_parts_and_no_answer(url):
    texts = "x" * 3_000
    async with reading(url, texts) as (bob, alice, stream):
        assert (await stream.answer()).payload.content == texts
        sent = bob.statistics().parts
        assert 0 < sent.passed < sent.accepted == 3_000
        assert sent.dropped == sent.accepted - sent.passed
        told = [item async for item in stream]
        counts = alice.statistics().parts
    assert counts.delivered + counts.missing == 3_000
    assert isinstance(told[-1], Gap)
    assert told[-1].last == 2_999


async def test_a_broker_that_breaks_costs_parts_and_no_answer(broker, url):
    async with (
        processes(url, 2) as (answers, asks),
        answers.subscribe("b") as inbox,
        asks.stream(ASK.new("b", Note(text="?"))) as stream,
    ):
        request = await inbox.receive()
        send_parts(answers, request, "ab")
        assert as_told(await anext(aiter(stream))) == "a"
        await asyncio.to_thread(broker.kill)
        await until(lambda: not answers._node.connection.is_up)
        send_parts(answers, request, "cd")
        assert answers.statistics().parts.dropped == 2
        await answers.reply(request, answer_to(request, "whole"))
        inbox.done(request)
        await asyncio.to_thread(broker.start)
        assert (await stream.answer()).payload.content == "whole"
        assert await rest(stream) == ["b", Gap(2, 3)]
