"""The learning test: on `relay` a team learns to speak, and one member alone cannot.

The base is warm-started on random signals and half a skill of looking them up, so no signal means anything at first.
Without a message the best guess is right with 1/4.
"""

import pytest
from conftest import BaseFor

from mas.config.load import load_config
from mas.config.options import Config, ModelOptions
from mas.core.records import Episode
from mas.core.scenario import Scenario
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.scenarios.world import FolderScenario
from mas.serving.model import BaseModel
from mas.training.evaluate import Evaluation
from mas.training.trainer import Trainer

STEPS = 60


class Successes:
    """Greedy held-out success by step."""

    def __init__(self) -> None:
        self.greedy: dict[int, float] = {}

    def on_resume(self, step: int) -> None:
        pass

    def on_step(self, step: int, metrics: dict[str, object], episodes: tuple[Episode, ...]) -> None:
        pass

    def on_note(self, step: int, note: object) -> None:
        """Only editors leave notes."""

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        if name == "greedy":
            self.greedy[step] = evaluation.success


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", ModelOptions())


async def learn(
    scenario: Scenario, base: BaseModel, seed: int, steps: int = STEPS, staleness: int = 0
) -> dict[int, float]:
    words = (f"train.seed={seed}", f"train.steps={steps}", f"train.staleness={staleness}")
    config = load_config(["scenario=relay", *words])
    successes = Successes()
    await Trainer(resolve_training(config, scenario), base).run(successes)
    return successes.greedy


@pytest.mark.slow
@pytest.mark.matrix("seed", range(5), default=[0])
async def test_a_team_learns_a_code_of_its_own(base: BaseModel, seed: int) -> None:
    greedy = await learn(build_scenario(Config().scenario.model_copy(update={"name": "relay"})), base, seed)
    assert greedy[0] < 0.5
    assert greedy[max(greedy)] >= 0.95


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("staleness", [1, 2])
@pytest.mark.parametrize("seed", range(3))
async def test_a_team_learns_it_from_samples_of_older_adapters(base: BaseModel, seed: int, staleness: int) -> None:
    scenario = build_scenario(Config().scenario.model_copy(update={"name": "relay"}))
    greedy = await learn(scenario, base, seed, steps=80, staleness=staleness)
    assert greedy[0] < 0.5
    assert greedy[max(greedy)] >= 0.9


@pytest.mark.slow
@pytest.mark.nightly
@pytest.mark.parametrize("frozen", ["planner"])
async def test_an_executor_cannot_learn_what_nobody_tells_it(base: BaseModel, frozen: str) -> None:
    scenario = build_scenario(Config().scenario.model_copy(update={"name": "relay"}))
    assert isinstance(scenario, FolderScenario)
    team = scenario.teams["team"]
    roles = dict(team.roles) | {frozen: team.roles[frozen].model_copy(update={"trainable": False})}
    object.__setattr__(scenario, "teams", {**scenario.teams, "team": team.model_copy(update={"roles": roles})})
    greedy = await learn(scenario, base, 0, steps=40)
    assert greedy[max(greedy)] < 0.5
