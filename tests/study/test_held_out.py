"""Validation and test tasks are held-out tasks that have no content in common."""

import pytest

from mas.config.options import ScenarioOptions
from mas.core.errors import ConfigError
from mas.core.scenario import Finite, SplitByContent
from mas.scenarios import build_scenario
from mas.study.held_out import HeldOutPart


@pytest.mark.parametrize("name", ["relay", "plan_path", "tool_use", "shop"])
def test_training_validation_and_test_tasks_share_no_content(name: str) -> None:
    scenario = build_scenario(ScenarioOptions(name=name))
    assert isinstance(scenario, SplitByContent)
    contents = {}
    for part in ("validation", "test"):
        own = HeldOutPart(scenario, part)
        tasks = [own.task("eval", index) for index in range(20)]
        assert all(scenario.holds_out(scenario.content_of(task)) for task in tasks)
        contents[part] = {scenario.content_of(task) for task in tasks}
        assert len(contents[part]) == 20, "every content once"
        assert own.task("eval", 7) == tasks[7]
        assert own.task("train", 3) == scenario.task("train", 3)
    contents["train"] = {scenario.content_of(scenario.task("train", index)) for index in range(200)}
    assert not contents["validation"] & contents["test"]
    assert not contents["train"] & (contents["validation"] | contents["test"])


def test_the_parts_of_a_data_set_are_all_of_its_held_out_questions() -> None:
    scenario = build_scenario(ScenarioOptions(name="questions"))
    assert isinstance(scenario, Finite)
    parts = [HeldOutPart(scenario, part) for part in ("validation", "test")]
    assert all(isinstance(part, Finite) for part in parts)
    assert sum(part.size("eval") for part in parts) == scenario.size("eval")
    assert parts[0].size("train") == scenario.size("train")
    assert not isinstance(HeldOutPart(build_scenario(ScenarioOptions(name="relay")), "test"), Finite)


def test_more_tasks_than_there_are_different_ones_are_refused() -> None:
    scenario = build_scenario(ScenarioOptions(name="plan_path", options={"size": 3, "walls": 0}))
    with pytest.raises(ConfigError, match=r"has only \d+ different tasks for the test part .* and 5000 are wanted"):
        HeldOutPart(scenario, "test").task("eval", 4999)


def test_a_scenario_whose_tasks_are_not_split_by_content_is_refused() -> None:
    class Plain:
        name = "plain"

    with pytest.raises(ConfigError, match="'plain' does not split its tasks by content"):
        HeldOutPart(Plain(), "test")  # type: ignore[arg-type]
