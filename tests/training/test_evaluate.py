"""An evaluation that played nothing is no result."""

import io
from collections.abc import Mapping
from typing import Any

import msgspec
import pytest
from conftest import BaseFor
from rich.console import Console

from mas.config.load import load_config
from mas.core.environment import mean_measures
from mas.core.errors import RunError
from mas.core.records import Episode
from mas.runs.evaluate import print_results
from mas.runs.resolve import resolve
from mas.scenarios import build_scenario
from mas.scenarios.relay import RelayEnvironment
from mas.serving.transformers_engine import TransformersEngine
from mas.training.evaluate import check_played, evaluate, summarise
from mas.training.session import open_team


class MeasuredRelay(RelayEnvironment):
    """Tells beside its rewards whether anything was said at all."""

    def measures(self) -> Mapping[str, float]:
        return {"answered": float(not self.to_move())}


def test_the_mean_of_a_measure_is_over_the_episodes_that_have_it() -> None:
    assert mean_measures([{"a": 1.0, "b": 0.5}, {}, {"a": 0.0}]) == {"a": 0.5, "b": 0.5}


def test_a_cause_with_the_text_of_a_model_is_printed_as_it_is() -> None:
    episode = Episode(
        id="e", task="t", success=False, turns=(), lines=(), rewards={}, length=1, prompt_tokens=0,
        completion_tokens=0, calls=0, status="failed", cause="'x [/INST]\x1b[2J' is refused",
    )  # fmt: skip
    output = io.StringIO()
    console = Console(file=output, width=200)
    print_results({"planner[/b]": summarise([episode])}, "games/[/b].py", console)
    printed = output.getvalue()
    assert all(text in printed for text in ("planner[/b]", "games/[/b].py", r"'x [/INST]\x1b[2J' is refused"))


async def test_what_an_environment_measures_is_in_the_evaluation_and_in_no_reward(
    base_for: BaseFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = load_config(["scenario=relay"])
    scenario, base = build_scenario(config.scenario), base_for("relay")
    engine = TransformersEngine(base)
    bare = dict.fromkeys(scenario.teams["team"].roles)
    async with open_team(resolve(config, scenario), base, {}, bare, engine=engine) as crew:
        plain = await evaluate(crew.runtime, scenario, 3)
        object.__setattr__(scenario, "make_environment", MeasuredRelay)
        told = await evaluate(crew.runtime, scenario, 3)
    await engine.close()
    assert "measures" not in plain.metrics()
    assert told.metrics() == {**plain.metrics(), "measures": {"answered": 1.0}}
    assert [episode.rewards for episode in told.episodes] == [episode.rewards for episode in plain.episodes]


async def test_when_no_task_can_be_played_the_rest_is_not_tried_and_the_cause_is_said(
    base_for: BaseFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mas.training.evaluate._TOGETHER", 3)
    config = load_config(["scenario=relay"])
    scenario, base = build_scenario(config.scenario), base_for("relay")
    engine = TransformersEngine(base)
    bare = dict.fromkeys(scenario.teams["team"].roles)
    async with open_team(resolve(config, scenario), base, {}, bare, engine=engine) as crew:
        done = list[tuple[int, int]]()
        whole = await evaluate(crew.runtime, scenario, 7, progress=lambda *told: done.append(told))
        assert done == [(number, 7) for number in range(1, 8)], "told after every task, over all that go together"
        assert len(whole.episodes) == 7
        check_played(whole)

        async def fail(*_: Any) -> Any:
            raise RuntimeError("gone")

        monkeypatch.setattr(engine, "generate", fail)
        nothing = await evaluate(crew.runtime, scenario, 7)
    await engine.close()
    assert (len(nothing.episodes), nothing.unplayed) == (3, 3)
    with pytest.raises(RunError, match=r"none of 3 tasks could be played: .*gone"):
        check_played(nothing)
    check_played(msgspec.structs.replace(nothing, unplayed=2))
