"""A process that comes back from its journal, whose payloads travel by reference."""

from pathlib import Path

from between import QUICK, as_user, until
from mosquitto import needs_mosquitto
from process_lives import lives, note

from mas.bus.mqtt import MqttBus
from mas.bus.serve import serve
from mas.core.messages import Envelope, Payload

pytestmark = needs_mosquitto
LONG = "x" * (QUICK.inline_bytes + 1)


async def test_long_payloads_and_long_answers_survive_their_sender(url: str, tmp_path: Path) -> None:
    handled: list[str] = []

    async def echo(envelope: Envelope) -> Payload:
        handled.append(envelope.payload.content)
        return envelope.payload

    store = f"file://{tmp_path}/payloads"
    async with (
        MqttBus.connect(as_user(url, "bob"), options=QUICK, store=store) as other,
        lives(url, tmp_path / "alice.sqlite", store=store) as process,
    ):
        async with other.subscribe("b") as inbox:
            sender = await process.begin()
            await sender.publish(note(f"{LONG}1"))
            sender = await process.again()
            message = await inbox.receive()
            assert message.payload.content == f"{LONG}1"
            inbox.done(message)
            await until(lambda: sender.statistics().outbox == 0)
            await sender.publish(note(f"{LONG}1"))  # its program does not know
            assert other.statistics().accepted == 1
        async with serve(other, "b", echo):
            assert (await sender.request(note(f"{LONG}2"))).payload.content == f"{LONG}2"
            sender = await process.again()
            assert (await sender.request(note(f"{LONG}2"))).payload.content == f"{LONG}2"
        assert handled == [f"{LONG}2"]
