"""What the engine decodes together depends on the seed alone: requests come well before it stops waiting for more."""

import asyncio

from conftest import BaseFor

from mas.config.load import load_config
from mas.runs.resolve import resolve
from mas.scenarios import build_scenario
from mas.serving.transformers_engine import SETTLE_ROUNDS, TransformersEngine
from mas.training.evaluate import evaluate
from mas.training.session import open_team


def test_a_teams_next_request_comes_long_before_the_engine_stops_waiting(base_for: BaseFor) -> None:
    config = load_config(["scenario=plan_path"])
    scenario, base = build_scenario(config.scenario), base_for("plan_path")

    async def play() -> int:
        engine = TransformersEngine(base)
        async with open_team(
            resolve(config, scenario), base, {}, dict.fromkeys(scenario.teams["team"].roles), engine=engine
        ) as crew:
            await evaluate(crew.runtime, scenario, 6, temperature=None)
        await engine.close()
        return engine.longest_pause

    pause = asyncio.run(play())
    assert 0 < pause <= SETTLE_ROUNDS // 3
