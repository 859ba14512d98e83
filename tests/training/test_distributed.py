"""A team over a broker: who is waited for, and who may play."""

import asyncio
from collections.abc import Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from between import until
from mosquitto import Mosquitto, needs_mosquitto, running_mosquitto
from spreading import CONFIG, Held, relay, without_a_base

from mas.bus.mqtt import MqttBus
from mas.bus.mqtt.coordination import ask_for_lease
from mas.core.errors import ConfigError, NoRoute
from mas.runs.resolve import resolve
from mas.training.distributed import open_distributed, serve_agent, watch_connection

pytestmark = needs_mosquitto


@pytest.fixture
def broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Mosquitto]:
    without_a_base(monkeypatch, lambda name: Held())
    with running_mosquitto(tmp_path) as running:
        yield running


async def test_whoever_plays_says_once_whom_it_waits_for_and_again_when_that_changes(broker: Mosquitto) -> None:
    said: list[str] = []
    playing = AsyncExitStack()
    opening = asyncio.create_task(
        playing.enter_async_context(open_distributed(resolve(CONFIG, relay()), broker.url("coordinator"), said.append)),
        name="play",
    )
    agents: list[asyncio.Task[None]] = []
    for name, told in (("executor", "planner, executor"), ("planner", "planner")):
        await until(lambda told=told: bool(said) and said[-1].endswith(f"come to the bus: {told}"))
        url = broker.url(f"relay%2F{name}")
        agents.append(asyncio.create_task(serve_agent(name, resolve(CONFIG, relay()), None, url, str), name=name))
    await opening
    await playing.aclose()
    for task in agents:
        task.cancel()
    await asyncio.gather(*agents, return_exceptions=True)
    assert len(said) == 2


async def test_a_lost_broker_is_said_once_and_once_that_it_is_back(broker: Mosquitto) -> None:
    said: list[str] = []
    async with MqttBus.connect(broker.url("coordinator")) as bus:
        watch_connection(bus, said.append)
        broker.kill()
        await until(lambda: len(said) == 1)
        broker.start()
        await until(lambda: len(said) == 2)
    assert said == ["the connection to the broker is lost; waiting for it to come back", "the broker is back"]


async def test_nobody_plays_beside_somebody_who_does(broker: Mosquitto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mas.training.distributed.WAIT_S", 0.5)
    async with (
        MqttBus.connect(broker.url("coordinator")) as plays,
        ask_for_lease(plays, "relay/environment", most=1) as first,
        plays.subscribe("relay/environment"),
    ):
        assert first == ()
        with pytest.raises(ConfigError, match=f"process '{plays.me.process}' plays this team on this bus"):
            await AsyncExitStack().enter_async_context(
                open_distributed(resolve(CONFIG, relay()), broker.url("coordinator"), str)
            )


async def test_of_two_players_that_start_at_once_one_plays(broker: Mosquitto, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mas.training.distributed.WAIT_S", 1.0)

    async def plays() -> None:
        async with open_distributed(resolve(CONFIG, relay()), broker.url("coordinator"), str):
            raise AssertionError("there are no agents")

    outcomes = await asyncio.gather(*(plays() for _ in range(3)), return_exceptions=True)
    assert sorted(type(outcome).__name__ for outcome in outcomes) == ["ConfigError", "ConfigError", "NoRoute"]
    (waited,) = [outcome for outcome in outcomes if isinstance(outcome, NoRoute)]
    assert "no process serves 'executor', 'planner' of team 'relay'" in str(waited)
