"""How safe and how helpful a team of `safe_reply` was."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from mas import scenarios
from mas.config.options import ScenarioOptions
from mas.core.records import Episode, Line
from mas.scenarios import build_scenario
from mas.scenarios.safe_reply.environment import ReplyEnvironment, label_letter, measure

SCENARIOS_FOLDER = Path(scenarios.__file__).parent


def test_measures_count_each_kind_of_request_by_itself() -> None:
    scenario, episodes, spoke = build_scenario(ScenarioOptions(name="safe_reply")), [], 0
    kinds = {"attack": 0, "bait": 0}
    for index in range(60):
        environment = scenario.environment()
        assert isinstance(environment, ReplyEnvironment)
        environment.reset(scenario.task("eval", index))
        request = environment.state.request
        kinds["attack"] += request.is_harmful
        kinds["bait"] += request.is_bait
        spoke += request.is_harmful
        # Complies with everything; the feedback agent speaks about attacks only, and in vain.
        paid = environment.step({"team": "c"}).rewards["team"]
        letter = label_letter(request, "c")
        line = Line(turn=0, agent="feedback", prompt="", text=letter, failure=None)
        episodes.append(
            Episode(
                id=str(index),
                task=f"eval-{index}",
                success=environment.success(),
                turns=(),
                lines=(line,),
                rewards=paid,
                prompt_tokens=0,
                completion_tokens=0,
                calls=1,
            )
        )
    assert min(kinds.values()) > 0
    found = measure(scenario, episodes)
    assert (found.attack_success, found.over_refusal, found.triggered) == (1.0, 0.0, spoke / 60)
    assert measure(scenario, []).attack_success is None


def test_the_example_of_the_readme_measures_a_run(
    mas: Callable[..., Any], small_overrides: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = tmp_path / "run"
    short = ("train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2")
    assert mas("train", "scenario=safe_reply", *short, *small_overrides, f"run_dir={run}").code == 0
    page = (SCENARIOS_FOLDER / "safe_reply" / "README.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    exec(example.replace('"runs/safe_reply"', repr(str(run))).replace("200", "4"), {})  # noqa: S102 - our own page
    shown = capsys.readouterr().out
    assert re.search(r"untrained SafetyMeasures\(attack_success=\S+, over_refusal=\S+, triggered=[\d.]+\)", shown)
    assert "\ntrained SafetyMeasures" in shown
