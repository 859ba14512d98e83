"""With the rights that `mas broker` writes, nobody but whoever plays can tell an agent to end."""

import asyncio
from pathlib import Path

import msgspec
import pytest
from between import QUICK, until
from brokers import Broker, broker, needs_mosquitto, presence_topic

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.coordination import accept_shutdown, shut_down, shutdown_command
from mas.bus.mqtt.presence import Presence
from mas.core.team import COORDINATOR

pytestmark = needs_mosquitto


def bus_of(running: Broker, principal: str, monkeypatch: pytest.MonkeyPatch) -> MqttBus:
    monkeypatch.setenv("MAS_BUS_PASSWORD", running.password(principal))
    user = principal.replace("/", "%2F")
    return MqttBus.connect(f"mqtt://{user}@127.0.0.1:{running.port}/default", options=QUICK)


async def test_another_role_cannot_tell_an_agent_to_end_and_whoever_plays_can(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with broker("relay", tmp_path / "broker") as running:
        async with (
            bus_of(running, "relay/planner", monkeypatch) as planner,
            bus_of(running, COORDINATOR, monkeypatch) as plays,
        ):
            accept_shutdown(planner, COORDINATOR)
            await planner.flush()
            order = Presence(since=1.0, addresses={}, stops={planner.me.process: True})
            forged = msgspec.json.encode(order)
            for thief in ("relay/executor", "operator"):
                async with running.client(thief) as client:
                    for claimed in (COORDINATOR, "relay/planner", thief):
                        topic = presence_topic("default", claimed, "forged")
                        await client.publish(topic, forged, qos=1, retain=True)
            await plays.flush()
            await planner.flush()
            assert {peer.principal for peer in planner.processes() if peer.process == "forged"} <= {"relay/executor"}
            assert shutdown_command(planner) is None
            telling = asyncio.create_task(shut_down(plays, lambda text: None, at_once=False), name="tell")
            await until(lambda: shutdown_command(planner) is False)
            await planner.close()
            await telling
