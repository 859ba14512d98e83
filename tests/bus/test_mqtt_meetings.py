"""Where promises meet: draining, stores, journals and refusals, with a real broker between processes."""

import asyncio
import contextlib
import math
import threading
import time
from pathlib import Path

import pytest
from between import ASK, QUICK, as_user, echo, processes, until
from mosquitto import needs_mosquitto
from process_lives import Slow, interrupted, lives, note

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.blobs import BlobStore
from mas.bus.mqtt.frames import Codec, MessageState, Status
from mas.bus.serve import serve
from mas.core.errors import Closed, NoRoute
from mas.core.messages import Envelope, Note, Payload
from mas.testing.bus_suite import next_text, start

pytestmark = needs_mosquitto
LONG = "x" * (QUICK.inline_bytes + 1)


async def test_an_answer_that_comes_before_it_is_asked_for_again_is_not_lost(process, other):
    slow = Slow()
    async with serve(other, "b", slow):
        sender = await process.begin()
        asking = start(sender.request(note("1")))
        await until(lambda: slow.begun)
        await process.die()
        await interrupted(asking)
        sender = await process.begin()
        slow.may_answer.set()
        await until(lambda: not other._node.receiver.is_confirmed)
        await sender.flush()
        await asyncio.sleep(0.1)  # what comes is confirmed 0.05 s later
        assert (await sender.request(note("1"), timeout_s=5.0)).payload.content == "answer to 1"
        assert slow.begun == ["1"]
        await until(lambda: other._node.receiver.is_confirmed)


async def test_a_life_with_a_store_knows_what_one_without_has_sent(url: str, tmp_path: Path) -> None:
    asked: list[str] = []

    async def short(envelope: Envelope) -> Payload:
        asked.append(envelope.id)
        return Note(text="short")

    store = f"file://{tmp_path}/payloads"
    async with (
        MqttBus.connect(as_user(url, "bob"), options=QUICK, store=store) as other,
        serve(other, "b", short),
        lives(url, tmp_path / "alice.sqlite") as process,
    ):
        for place in (None, store, None):
            process._store = place
            sender = await (process.begin() if process.bus is None else process.again())
            assert (await sender.request(note(LONG), timeout_s=5.0)).payload.content == "short"
    assert len(asked) == 1


async def test_a_process_that_drains_ends_when_its_last_answer_is_stored_and_heard(url, tmp_path, monkeypatch):
    async def long(_: Envelope) -> Payload:
        return Note(text=LONG)

    put = BlobStore.put

    def slow(self: BlobStore, content: bytes) -> str:
        time.sleep(0.5)
        return put(self, content)

    store = f"file://{tmp_path}/payloads"
    monkeypatch.setattr(BlobStore, "put", slow)
    async with MqttBus.connect(as_user(url, "bob"), options=QUICK, store=store) as asks:
        async with MqttBus.connect(url, options=QUICK, store=store) as bus, serve(bus, "b", long) as service:
            asked = start(asks.request(ASK.new("b", Note(text="x")), timeout_s=10.0))
            await until(lambda: bus.statistics().processed == 2)
            await service.drain()
        assert (await asked).payload.content == LONG


async def test_what_was_being_fetched_where_the_process_leaves_goes_to_another_one(url, tmp_path, monkeypatch):
    begun, may_go = threading.Event(), threading.Event()
    get = BlobStore.get

    def slow(self: BlobStore, name: str, size: int) -> bytes:
        if not begun.is_set():
            begun.set()
            may_go.wait(5.0)
        return get(self, name, size)

    store = f"file://{tmp_path}/payloads"
    monkeypatch.setattr(BlobStore, "get", slow)
    async with (
        MqttBus.connect(as_user(url, "bob"), options=QUICK, store=store) as sends,
        MqttBus.connect(url, options=QUICK, store=store) as stays,
    ):
        async with MqttBus.connect(url, options=QUICK, store=store) as leaves, leaves.subscribe("b"):
            await until(lambda: leaves.me in sends.processes())
            sent = start(sends.publish(ASK.new("b", Note(text=LONG))))
            await until(begun.is_set)
            inbox = await stays.subscribe("b").__aenter__()
        may_go.set()
        assert await next_text(inbox) == LONG
        await sent
        await inbox.__aexit__(None, None, None)


async def test_what_a_draining_process_has_not_begun_or_gives_back_goes_to_another_one(url):
    async with processes(url, 3) as (drains, stays, sends), drains.subscribe("b", credit=1) as first:
        await sends.publish(ASK.new("b", Note(text="1")))
        in_hand = await first.receive()
        waiting = [
            start(sends.publish(ASK.new("b", Note(text="2")))),
            start(sends.request(ASK.new("b", Note(text="3")))),
        ]
        await until(lambda: drains.statistics().waiting == 2)
        async with stays.subscribe("b") as second:
            await first.withdraw()
            texts = {await next_text(second)}
            request = await second.receive()
            texts.add(request.payload.content)
            assert texts == {"2", "3"}
            assert first.nack(in_hand)
            assert await next_text(second) == "1"
            counted = drains.statistics()
            assert (counted.waiting, counted.held) == (0, 0)
            assert counted.accepted == counted.delivered + counted.expired + counted.dropped + counted.dead
        for task in waiting:
            task.cancel()


@pytest.mark.parametrize("somebody_comes", [True, False])
async def test_what_only_a_draining_process_could_take_waits_until_it_has_ended(url, somebody_comes):
    async with processes(url, 3) as (drains, comes, sends):
        async with drains.subscribe("b", credit=1) as first:
            await sends.publish(ASK.new("b", Note(text="1")))
            in_hand = await first.receive()
            waiting = [start(sends.publish(ASK.new("b", Note(text="2"))))]
            await until(lambda: drains.statistics().waiting == 1)
            await first.withdraw()
            await until(lambda: not sends.processes()[drains.me].takes("b"))
            waiting.append(start(sends.publish(ASK.new("b", Note(text="3")))))
            done, _ = await asyncio.wait(waiting, timeout=2 * QUICK.absent_s)
            assert not done
            if somebody_comes:
                async with comes.subscribe("b") as second:
                    assert {await next_text(second), await next_text(second)} == {"2", "3"}
            first.done(in_hand)
        for task in waiting:
            with contextlib.nullcontext() if somebody_comes else pytest.raises(NoRoute):
                await task


async def test_a_request_that_is_done_without_an_answer_is_one_clear_error(url):
    async with processes(url, 2) as (serves, asks), serves.subscribe("b") as inbox:
        asked = start(asks.request(ASK.new("b", Note(text="x"))))
        await inbox.receive()
        (ticket,) = asks._node.sender._messages
        serves._node.writer.reply(asks.me, Codec().encode(Status(serves.me.process, [MessageState(ticket, 1, "done")])))
        with pytest.raises(Closed, match="has answered it, and keeps the answer no more"):
            await asked


@pytest.mark.parametrize("timeout_s", [1e12, math.inf])
async def test_a_deadline_beyond_what_mqtt_can_say_is_a_deadline(url, timeout_s):
    async with processes(url, 2) as (serves, asks), serve(serves, "b", echo):
        assert (await asks.request(ASK.new("b", Note(text="x")), timeout_s=timeout_s)).payload.content == "x"
