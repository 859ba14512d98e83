"""A team whose roles have constraints plays over a broker: the agents' processes restrict what is drawn."""

from pathlib import Path

import pytest
import yaml
from conftest import BaseFor
from mosquitto import needs_mosquitto, running_mosquitto
from parts import SKILLED
from spreading import CONFIG, TEAM, relay, serving, without_a_base

from mas.algorithms.parts.options import AlgorithmOptions
from mas.runs.resolve import resolve
from mas.serving.transformers_engine import TransformersEngine
from mas.training.distributed import open_distributed
from mas.training.evaluate import evaluate

pytestmark = needs_mosquitto
PLANS = ("b", "c")


@pytest.mark.parametrize("is_constrained", [True, False])
async def test_over_a_broker_every_output_is_one_that_its_constraint_allows(
    tmp_path: Path, base_for: BaseFor, monkeypatch: pytest.MonkeyPatch, is_constrained: bool
) -> None:
    base, engines = base_for("relay", SKILLED), list[TransformersEngine]()

    def engine(name: str) -> TransformersEngine:
        engines.append(TransformersEngine(base))
        return engines[-1]

    team = yaml.safe_load(TEAM.read_text())
    limits = {"planner": {"one_of": list(PLANS)}, "executor": {"regex": "[0-9]"}}
    for name, constraint in limits.items():  # so hot that hardly any output would parse by itself
        team["roles"][name] |= {"temperature": 5.0, "max_tokens": 3}
        if is_constrained:
            team["roles"][name]["constraint"] = constraint
    (tmp_path / "team.yaml").write_text(yaml.safe_dump(team))
    config = CONFIG.model_copy(update={"algorithm": AlgorithmOptions(team=str(tmp_path / "team.yaml"))})
    without_a_base(monkeypatch, engine)
    monkeypatch.setattr("mas.training.distributed.model_text", lambda model: base.text)
    with running_mosquitto(tmp_path) as broker:
        async with (
            serving("planner", broker, config),
            serving("executor", broker, config),
            open_distributed(resolve(config, relay()), broker.url("coordinator"), str) as session,
        ):
            played = await evaluate(session.runtime, session.scenario, 8, temperature=None)
    for one in engines:
        await one.close()
    assert len(engines) == 2, "each agent uses an engine of its own"
    assert played.unplayed == 0
    assert (played.failures == 0) == is_constrained
    if is_constrained:
        lines = [line for episode in played.episodes for line in episode.lines]
        said = {name: {line.text.strip() for line in lines if line.agent == name} for name in limits}
        assert said["planner"] == set(PLANS)
        assert said["executor"] <= set("0123456789")
