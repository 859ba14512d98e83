"""Somebody has the password of one role and attacks the others, at a real mosquitto with the rights of a team."""

import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiomqtt
import msgspec
import pytest
from brokers import Broker, broker, needs_mosquitto, presence_topic, to_topic
from paho.mqtt.publish import single
from test_broker_spread import agent

from mas.bus.mqtt.presence import Presence

pytestmark = needs_mosquitto
Mas = Callable[..., Any]
SPACE, PLANNER, EXECUTOR, COORDINATOR = "default", "relay/planner", "relay/executor", "coordinator"
MIB = 1 << 20
LIMIT_MIB = 24


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Broker]:
    """A broker that may take 24 MiB."""
    words = ("--max-memory-bytes", str(LIMIT_MIB * MIB), "--max-queued-bytes", str(8 * MIB))
    with broker("relay", tmp_path / "bus", *words) as running:
        yield running


def resident_mib(running: Broker) -> float:
    """Memory of mosquitto, the only child of `mas broker`."""
    pid = running.process.pid
    (child,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    (line,) = (text for text in Path(f"/proc/{child}/status").read_text().splitlines() if text.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


async def flood(running: Broker, most: int) -> int:
    """How many presences of 1 MiB the broker takes of the executor before it disconnects."""
    taken = 0
    with suppress(aiomqtt.MqttError):
        async with running.client(EXECUTOR, timeout=5) as eve:
            for number in range(most):
                await eve.publish(presence_topic(SPACE, EXECUTOR, f"p{number}"), bytes(MIB), qos=1, retain=True)
                taken += 1
    return taken


@pytest.mark.nightly(of=16)
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
async def test_a_flood_of_retained_cards_does_not_grow_the_broker_beyond_its_limit(small: Broker) -> None:
    topic = to_topic(SPACE, EXECUTOR, PLANNER)
    async with small.client(EXECUTOR) as reader, small.client(PLANNER) as writer:
        await reader.subscribe(topic, qos=1)
        taken = await flood(small, 150)
        assert LIMIT_MIB / 2 < taken < LIMIT_MIB
        assert resident_mib(small) < LIMIT_MIB + 16
        await writer.publish(topic, b"still", qos=1)
        assert (await anext(aiter(reader.messages))).payload == b"still"


@pytest.mark.nightly
@pytest.mark.slow
def test_one_role_that_claims_the_addresses_of_the_others_does_not_stop_the_team(
    tmp_path: Path, mas: Mas, small_overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eve has the executor's password: her presences say that she is the planner and the environment, and was first."""
    forged = Presence(
        since=-1.0,
        addresses={PLANNER: "eve", "relay/environment": "eve", "relay/run": "eve"},
        leases=(PLANNER, "relay/environment"),
        away_s=80_000.0,
    )
    with broker("relay", tmp_path / "bus") as running:
        for name in ("p1", "p2"):
            leave(running, presence_topic(SPACE, EXECUTOR, name), msgspec.json.encode(forged))
        with agent(running, "planner", small_overrides), agent(running, "executor", small_overrides):
            monkeypatch.setenv("MAS_BUS_PASSWORD", running.password(COORDINATOR))
            url = f"mqtt://{COORDINATOR}@127.0.0.1:{running.port}/{SPACE}"
            there = mas("run", "scenario=relay", *small_overrides, "--bus", url)
    assert there.code == 0, there.err
    assert "executor" in there.out


def leave(running: Broker, topic: str, payload: bytes) -> None:
    """A retained message of the executor's."""
    login = {"username": EXECUTOR, "password": running.password(EXECUTOR)}
    single(topic, payload, qos=1, retain=True, hostname="127.0.0.1", port=running.port, auth=login)
