"""A team plays the same over a broker as in one process."""

from pathlib import Path

from mosquitto import needs_mosquitto, running_mosquitto

import mas.scenarios.relay
from mas.bus.memory import MemoryBus
from mas.bus.mqtt import MqttBus
from mas.config.options import ScenarioOptions
from mas.core.bus import Bus
from mas.core.environment import Task
from mas.core.messages import Payload
from mas.core.seeds import derive_seed
from mas.graph.load import load_team
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.payloads import TEAM_PAYLOADS, Candidate
from mas.runtime.play import DecisionPoint
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine

pytestmark = needs_mosquitto


async def played(bus: Bus, episodes: int) -> list[tuple[str, tuple[Candidate, ...], object]]:
    """Everything that the agents said and the environment paid, in order."""
    spec = load_team(Path(mas.scenarios.relay.__file__).with_name("team.yaml"))
    plan = compile_team(spec, build_roles(spec))
    engine = ScriptedEngine(lambda prompt, _, seed: str(derive_seed(prompt, seed) % 10))
    happened: list[tuple[str, tuple[Candidate, ...], object]] = []
    async with TeamRuntime(plan, engine, bus, adapters={}, timeout_s=60.0) as runtime:
        for number in range(episodes):
            environment = build_scenario(ScenarioOptions(name="relay")).environment()
            environment.reset(Task(id=f"train-{number}", seed=number))

            async def decide(point: DecisionPoint, number: int = number) -> Payload:
                candidates = await runtime.ask(point, (number, number + 1), episode=f"e{number}")
                happened.append((point.agent, candidates, point.observations))
                return candidates[0].payload

            await runtime.play(
                f"e{number}", environment, decide, lambda turn, flow, step: happened.append(("paid", (), step))
            )
    return happened


async def test_a_team_plays_over_a_broker_what_it_plays_in_one_process(tmp_path: Path) -> None:
    expected = await played(MemoryBus(), episodes=4)
    with running_mosquitto(tmp_path) as broker:
        async with MqttBus.connect(broker.url("team"), payloads=TEAM_PAYLOADS) as bus:
            assert await played(bus, episodes=4) == expected
            assert bus.statistics().malformed == 0
    assert len({agent for agent, _, _ in expected}) > 2
