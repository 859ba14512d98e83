"""A user's class of environments as a task: from Python, on the command line, in a notebook, and in a stored run."""

import json
import re
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any, ClassVar

import pytest
from conftest import Ran

import mas
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.config.problems import BRIDGES
from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError, EnvironmentFault, TrustError
from mas.core.team import RoleSpec
from mas.protocols import solo
from mas.scenarios import build_scenario
from mas.scenarios.bridges import PREFIX
from mas.scenarios.user_class import UserScenario, load_class
from mas.scenarios.world import RecordEnvironment
from mas.testing.environment import EnvironmentContract

EXAMPLE = Path(__file__).parents[2] / "examples" / "parity.py"
NAME = f"{EXAMPLE}:Parity"
SHORT = {"train.tasks_per_step": 2, "train.eval_tasks": 2, "algorithm.sampler.candidates": 2}


class Walk:
    """Go from 0 to a goal, a step at a time. `hint`: views say the way."""

    views = ("solo", "planner", "executor")
    max_turns = 6
    teams: Mapping[str, Any] = {"solo": solo(RoleSpec(type="executor", view="solo"))}

    def __init__(self, goal: int = 0, hint: bool = False, far: int = 3) -> None:
        self.goal, self.hint, self.far, self.at = goal, hint, far, 0

    def reset(self, random: Random) -> None:
        self.goal, self.noise = random.choice([-self.far, self.far]), random.randrange(10_000)

    def observe(self, view: str) -> dict[str, str]:
        way = {"way": self.answer()} if self.hint else {}
        return {"at": str(self.at), "goal": str(self.goal), "number": str(self.noise), **way}

    def legal(self) -> list[str]:
        return ["left", "right"]

    def answer(self) -> str:
        return "right" if self.goal > 0 else "left"

    def step(self, action: str) -> float:
        self.at += 1 if action == "right" else -1
        return 0.0

    def is_over(self) -> bool:
        return abs(self.at) >= self.far

    def success(self) -> bool:
        return self.at == self.goal


def scenario_of(name: str = NAME, **options: Any) -> UserScenario:
    found = build_scenario(ScenarioOptions(name=name, options=options))
    assert isinstance(found, UserScenario)
    return found


def tasks_of(name: str) -> list[Task]:
    found = scenario_of(name)
    return [found.task("train", 0), found.task("eval", 0)]


class TestParity(EnvironmentContract):
    privacy: ClassVar = {"planner": frozenset({"text"}), "executor": frozenset({"text"})}

    def make_environment(self) -> Environment:
        return scenario_of().environment()

    def task(self, number: int) -> Task:
        return scenario_of().task("train", number)


class TestWalk(EnvironmentContract):
    idle_fails = True

    def make_environment(self) -> Environment:
        return UserScenario(Walk, {}).environment()

    def task(self, number: int) -> Task:
        return UserScenario(Walk, {}).task("train", number)


def test_the_example_is_short_and_the_pages_show_it() -> None:
    text = EXAMPLE.read_text()
    assert len(text.splitlines()) <= 30
    shown = text[text.index("from random") :]
    assert f"```python\n{shown}```" in (EXAMPLE.parents[1] / "docs" / "scenarios.md").read_text()


def test_what_begins_as_a_bridges_id_is_no_code() -> None:
    assert set(BRIDGES) == set(PREFIX)


@pytest.mark.parametrize("given", ["class", "name"])
def test_a_class_is_trained_and_the_run_does_all_that_a_run_can_do(
    given: str, tmp_path: Path, small_overrides: tuple[str, ...]
) -> None:
    task: Any = load_class(NAME) if given == "class" else NAME
    tiny = {key: json.loads(value) for key, _, value in (word.partition("=") for word in small_overrides)}
    if given == "class":
        task.__module__ = "examples_parity"
        sys.modules["examples_parity"] = sys.modules[load_class(NAME).reset.__module__]
    options = {**SHORT, **tiny, "scenario.options.length": 4}
    run = mas.train("team", task, steps=1, run_dir=tmp_path / "run", options=options, quiet=True)
    assert run.config().scenario == ScenarioOptions(name=NAME, options={"length": 4})
    assert set(run.evaluate(tasks=2)) == {"untrained", "trained"}
    assert len(run.play(task=1).episode.lines) >= 2
    assert isinstance(run.ask({"text": "01"}), str)
    assert run.curves().svg
    assert set(run.export(tmp_path / "out")) == {"planner", "executor"}
    assert "Parity" in run.report().read_text()
    again = mas.train(run.config(["train.steps=2"]), quiet=True)
    assert again.steps == 2


def test_the_command_trains_it_and_says_what_is_wrong(
    tmp_path: Path, mas: Callable[..., Ran], small_overrides: tuple[str, ...]
) -> None:
    short = [f"{key}={value}" for key, value in SHORT.items()]
    words = ["train", f"scenario={NAME}", *short, *small_overrides, "train.steps=1", f"run_dir={tmp_path / 'run'}"]
    assert mas(*words).code == 0
    known = mas("scenarios", NAME, "--measure")
    assert known.code == 0
    assert "is the number of ones even or odd?" in known.out
    assert "expert" in known.out
    wrong = mas(*words, "scenario.options.lenght=3")
    assert (wrong.code, "scenario.options.lenght" in wrong.err, "Did you mean 'length'" in wrong.err) == (2, True, True)
    assert "options.length" in mas(*words, "scenario.options.length=many").err


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("class Mine: pass", "Mine has no reset, observe, step; an environment needs .* and may have is_over"),
        ("class Other: pass", "has no class 'Mine'. .*'Other'"),
        ("1 / 0", "cannot be imported: ZeroDivisionError"),
        ("BASE\n    def reset(self, random): 1 / 0", "cannot be made: EnvironmentFault: Mine.reset raised ZeroDiv"),
        ("BASE\n    def observe(self, view): return 3", r"observe\('planner'\) returned 3: return a text"),
        ("BASE\n    def observe(self, view): import os; return os.urandom(8).hex()", "shows two tasks of one seed"),
        ("BASE\n    def __init__(self, *sizes): pass", "its options are arguments with names"),
        ("BASE", "no task for the split 'eval'"),
    ],
)  # fmt: skip
def test_what_is_wrong_with_a_class_is_said_at_the_start(tmp_path: Path, text: str, said: str) -> None:
    base = (
        "class Base:\n    def reset(self, random): pass\n    def observe(self, view): return 'same'\n"
        "    def step(self, action): return 1.0\nclass Mine(Base):\n    pass\n"
    )
    (tmp_path / "mine.py").write_text(text.replace("BASE", base))
    with pytest.raises(ConfigError, match=said):
        tasks_of(f"{tmp_path / 'mine.py'}:Mine")


def test_a_step_that_pays_no_number_and_a_class_that_cannot_teach_are_said() -> None:
    silent = type("Silent", (Walk,), {"legal": None, "answer": None, "observe": lambda self, view: str(self.noise)})
    for name in ("legal", "answer"):
        setattr(silent, name, lambda self: None)
    with pytest.raises(ConfigError, match="neither answer\\(\\) nor legal\\(\\)"):
        next(UserScenario(silent, {}).demonstrations(0, expert=True))
    wrong = UserScenario(type("Wrong", (Walk,), {"step": lambda self, action: float("nan")}), {})
    environment = wrong.environment()
    environment.reset(wrong.task("train", 0))
    with pytest.raises(EnvironmentFault, match="return what the team is paid, a finite number"):
        environment.step({"team": "left"})


def contents(scenario: UserScenario, split: Any, number: int = 150) -> set[str]:
    """What the tasks of a split are when nothing but their number is shown."""
    plain, found = UserScenario(Walk, {}), set()
    for index in range(number):
        found.add(plain.content_of(scenario.task(split, index)))
    return found


def test_no_task_that_was_trained_on_is_held_out_under_other_options() -> None:
    kinds: list[dict[str, Any]] = [{}, {"hint": True}, {"far": 4, "hint": True}]
    trained = [contents(UserScenario(Walk, options), "train") for options in kinds]
    held_out = [contents(UserScenario(Walk, options), "eval") for options in kinds]
    for train in trained:
        for other in held_out:
            assert not train & other
    assert all(len(found) > 100 for found in (*trained, *held_out))


def test_a_class_that_is_an_environment_already_is_used_as_it_is(tmp_path: Path) -> None:
    text = (
        "from mas.config.options import ScenarioOptions\nfrom mas.scenarios import build_scenario\n"
        "relay = build_scenario(ScenarioOptions(name='relay'))\n"
        "class Mine(type(relay.environment())):\n    teams = relay.teams\n"
    )
    (tmp_path / "mine.py").write_text(text)
    found = scenario_of(f"{tmp_path / 'mine.py'}:Mine")
    assert isinstance(found.environment(), RecordEnvironment)
    assert found.holds_out(found.content_of(found.task("eval", 0)))
    prompt, _ = next(found.demonstrations(0, expert=False))
    assert prompt[0] in "PES"


def test_a_stored_class_is_not_imported_without_consent(tmp_path: Path) -> None:
    (tmp_path / "evil.py").write_text(f"open({str(tmp_path / 'owned')!r}, 'w')\nclass Mine: pass\n")
    run = tmp_path / "run"
    run.mkdir()
    name = f"{tmp_path / 'evil.py'}:Mine"
    arms = {"source": "mixture", "arms": {"a": {"scenario": name}, "b": {}}}
    for stored in ({"scenario": {"name": name}}, {"train": {"tasks": arms}}):
        (run / "config.yaml").write_text(json.dumps(stored))
        with pytest.raises(
            TrustError, match=rf"import {re.escape(name)}   \((scenario.name|train.tasks.arms.a.scenario)"
        ):
            mas.load_run_config(run)
    assert not (tmp_path / "owned").exists()


def test_a_class_of_a_notebook_is_trained_there_and_elsewhere_the_reason_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small_overrides: tuple[str, ...]
) -> None:
    main = sys.modules["__main__"]
    cell = type("Cell", (load_class(NAME),), {"__module__": "__main__", "__doc__": "Of a cell."})
    monkeypatch.delattr(main, "__file__", raising=False)
    monkeypatch.setattr(main, "Cell", cell, raising=False)
    tiny = {key: json.loads(value) for key, _, value in (word.partition("=") for word in small_overrides)}
    run = mas.train("team", cell, steps=1, run_dir=tmp_path / "run", options={**SHORT, **tiny}, quiet=True)
    assert run.config().scenario.name == "__main__:Cell"
    assert run.play().episode.lines
    monkeypatch.delattr(main, "Cell")
    with pytest.raises(
        ConfigError, match="the class stood in a notebook or a prompt, and this process does not have it"
    ):
        run.play()
    assert run.curves().svg, "what needs no class goes on"

    def inside() -> type:
        class Local(cell):  # type: ignore[misc, valid-type]
            pass

        return Local

    with pytest.raises(ConfigError, match="is not a class at the top of a file or a notebook"):
        mas.train("team", inside())


def test_a_name_that_is_none_is_one_error() -> None:
    with pytest.raises(ConfigError, match=r"write path/file\.py:CLASS"):
        scenario_of("mine.py:")
    with pytest.raises(ConfigError, match="the module 'open_spil' cannot be imported"):
        scenario_of("open_spil:kuhn_poker")
    with pytest.raises(ConfigError, match="is the id of a bridge"):
        load_config(["scenario=open_spiel:kuhn_poker"])
