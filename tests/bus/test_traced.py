"""Messages carry the trace of who sends them to who handles them, in one process and between two."""

import asyncio
import sys
from pathlib import Path

import msgspec
import pytest
from mosquitto import needs_mosquitto
from opentelemetry.semconv._incubating.attributes import messaging_attributes as names
from spans import one, spans_in, tree_of
from traced_worker import answer

from mas.bus.memory import MemoryBus
from mas.bus.mqtt import MqttBus
from mas.bus.serve import EnvelopeFactory, serve
from mas.bus.traced import TracedSender, traced_handler
from mas.bus.wire import decode, encode
from mas.core.errors import RemoteError
from mas.core.messages import Beat, Envelope, Note, Payload
from mas.core.tracing import phase
from mas.observe.tracing import open_tracing

ASK = EnvelopeFactory("asker", episode="e")
WORKER = Path(__file__).with_name("traced_worker.py")


def test_a_handler_is_the_same_where_nothing_is_traced() -> None:
    assert traced_handler("work", answer) is answer


def test_the_wire_carries_the_trace_context() -> None:
    envelope = msgspec.structs.replace(ASK.new("work", Note(text="x")), traceparent="00-a-b-01")
    assert decode(encode(envelope)) == envelope


async def test_a_handler_goes_on_with_the_trace_of_the_message(tmp_path: Path) -> None:
    with open_tracing(tmp_path, process="p", most=99) as tracer:
        bus = MemoryBus()
        sender = TracedSender(bus, tracer)
        async with serve(bus, "work", answer):
            with tracer.span("asking"):
                reply = await sender.request(ASK.new("work", Note(text="hello")))
            with pytest.raises(RemoteError):
                await sender.request(ASK.new("work", Note(text="fail")))
            await bus.request(ASK.new("work", Note(text="of no trace")))
        await bus.close()
    assert tree_of(tmp_path) == [
        *("asking", "  send work", "    process work", "      inside"),
        *("send work", "  process work", "    inside"),
        *("process work", "  inside"),
    ]
    assert reply.payload == Note(text="hello")
    sent, handled = [
        [span for span in spans_in(tmp_path) if span.name == name] for name in ("send work", "process work")
    ]
    assert [span.error for span in sent] == [None, "RemoteError"]
    assert [span.error for span in handled] == [None, "ValueError", None]
    assert sent[0].attributes == {
        names.MESSAGING_SYSTEM: "mas",
        names.MESSAGING_OPERATION_NAME: "send",
        names.MESSAGING_OPERATION_TYPE: names.MessagingOperationTypeValues.SEND.value,
        names.MESSAGING_DESTINATION_NAME: "work",
        names.MESSAGING_MESSAGE_ID: handled[0].attributes[names.MESSAGING_MESSAGE_ID],
        "gen_ai.conversation.id": "e",
        "mas.message.kind": "note",
    }
    assert handled[0].attributes[names.MESSAGING_OPERATION_TYPE] == names.MessagingOperationTypeValues.PROCESS.value
    assert "hello" not in (tmp_path / "spans.jsonl").read_text()


async def test_an_answer_in_parts_is_one_span_until_it_is_read(tmp_path: Path) -> None:
    bus = MemoryBus()

    async def speak(envelope: Envelope) -> Payload:
        bus.part(envelope, Note(text="secret"))
        return await answer(envelope)

    with open_tracing(tmp_path, process="p", most=99) as tracer:
        sender = TracedSender(bus, tracer)
        async with serve(bus, "work", speak):
            with tracer.span("asking"):
                async with sender.stream(ASK.new("work", Note(text="whole"))) as stream:
                    parts = [part.payload.content async for part in stream if isinstance(part, Envelope)]
                    with phase("reading"):
                        whole = await stream.answer()
            with pytest.raises(RemoteError):
                async with sender.stream(ASK.new("work", Note(text="fail"))) as stream:
                    await stream.answer()
    await bus.close()
    assert (parts, whole.payload) == (["secret"], Note(text="whole"))
    assert tree_of(tmp_path)[:5] == [
        *("asking", "  send work", "    process work", "      inside", "    reading"),
    ]
    spans = spans_in(tmp_path)
    assert [span.error for span in spans if span.name == "send work"] == [None, "RemoteError"]
    assert "secret" not in (tmp_path / "spans.jsonl").read_text()


async def test_signs_of_life_are_not_traced(tmp_path: Path) -> None:
    beat, note = Beat(number=0), Note(text="x")

    async def take(envelope: Envelope) -> None:
        """Nothing."""

    with open_tracing(tmp_path, process="p", most=99):
        handler = traced_handler("run", take)
        await handler(ASK.new("run", beat))
        assert tree_of(tmp_path) == []
        await handler(ASK.new("run", note))
    assert tree_of(tmp_path) == ["process run"]


@needs_mosquitto
async def test_two_processes_make_one_trace(url: str, tmp_path: Path) -> None:
    command = [sys.executable, str(WORKER), url.replace("alice", "worker"), str(tmp_path / "there")]
    pipe = asyncio.subprocess.PIPE
    worker = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe)
    try:
        assert worker.stdout is not None
        assert await worker.stdout.readline() == b"ready\n"
        with open_tracing(tmp_path / "here", process="here", most=99) as tracer, phase("run"):
            async with MqttBus.connect(url) as bus:
                sender = TracedSender(bus, tracer)
                await sender.request(ASK.new("work", Note(text="hello")), timeout_s=20)
                with tracer.silent():
                    await sender.request(ASK.new("work", Note(text="not recorded")), timeout_s=20)
                await sender.publish(ASK.new("work", Note(text="one way")))
        await worker.communicate(b"\n")
    finally:
        if worker.returncode is None:
            worker.kill()
            await worker.wait()
    assert tree_of(tmp_path / "here", tmp_path / "there") == [
        *("run", "  send work", "    process work", "      inside", "  send work", "    process work", "      inside"),
    ]
    there = spans_in(tmp_path / "there")
    assert {span.process.partition("-")[0] for span in there} == {"worker"}
    assert {span.trace for span in there} == {one(spans_in(tmp_path / "here"), "run").trace}
