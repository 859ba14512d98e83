"""A user's class of environments as a task: from Python, on the command line, in a notebook, and in a stored run."""

import inspect
import json
import re
import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from pathlib import Path
from random import Random
from threading import Barrier
from typing import Any, ClassVar

import numpy as np
import pytest
from conftest import Ran

import mas
from mas.api.train import class_name
from mas.config.checks import BRIDGES
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.config.tasks import TaskOptions
from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError, EnvironmentFault, TrustError
from mas.core.role import RoleSpec
from mas.protocols import plan_execute_verify, solo
from mas.scenarios import build_scenario
from mas.scenarios.bridges import PREFIX
from mas.scenarios.user_class import UserScenario, load_class, options_of
from mas.scenarios.world import RecordEnvironment
from mas.testing.environment import EnvironmentContract
from mas.training.tasks.plan import build_arms

EXAMPLE = Path(__file__).parents[2] / "examples" / "largest.py"
NAME = f"{EXAMPLE}:Largest"
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

    def content(self) -> str:
        return f"{self.goal} {self.noise}"

    def step(self, action: str) -> float:
        self.at += 1 if action == "right" else -1
        return 0.0

    def is_over(self) -> bool:
        return abs(self.at) >= self.far

    def success(self) -> bool:
        return self.at == self.goal


class Silent:
    """Bits and a number, which `hint` shows twice; nothing says which tasks are equal under other options."""

    def __init__(self, length: int = 3, hint: bool = False) -> None:
        self.length, self.hint = length, hint

    def reset(self, random: Random) -> None:
        self.bits = "".join(random.choice("01") for _ in range(self.length))
        self.number = random.randrange(8)

    def observe(self, view: str) -> str:
        return f"{self.bits} {self.number}" + f" {self.number}" * self.hint

    def answer(self) -> int:
        return self.number

    def step(self, action: str) -> float:
        return float(action == str(self.number))


class Bits(Silent):
    def content(self) -> str:
        return f"{self.bits} {self.number}"


class LongBits(Bits):
    def __init__(self, length: int = 9) -> None:
        super().__init__(length)


class LongSilent(Silent):
    pass


def scenario_of(name: str = NAME, **options: Any) -> UserScenario:
    found = build_scenario(ScenarioOptions(name=name, options=options))
    assert isinstance(found, UserScenario)
    return found


def tasks_of(name: str) -> list[Task]:
    found = scenario_of(name)
    return [found.task("train", 0), found.task("eval", 0)]


class TestLargest(EnvironmentContract):
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
        task.__module__ = "examples_largest"
        sys.modules["examples_largest"] = sys.modules[load_class(NAME).reset.__module__]
    options = {**SHORT, **tiny, "scenario.options.length": 2}
    run = mas.train("team", task, steps=1, run_dir=tmp_path / "run", options=options, quiet=True)
    assert run.config().scenario == ScenarioOptions(name=NAME, options={"length": 2})
    assert set(run.evaluate(tasks=2)) == {"untrained", "trained"}
    assert len(run.play(task=1).episode.lines) >= 2
    assert isinstance(run.ask({"text": "01"}), str)
    assert run.curves().svg
    assert set(run.export(tmp_path / "out")) == {"planner", "executor"}
    assert "Largest" in run.report().read_text()
    for words, on in ((["scenario.options.length=6"], ""), ([], NAME)):
        with pytest.raises(ConfigError, match=r"was trained with .*'length': 2.*Largest has no content\(\)"):
            mas.evaluate(tmp_path / "run", words, on=on, quiet=True)
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
    assert "which digit is the largest?" in known.out
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


def contents(scenario: UserScenario, split: Any) -> set[str]:
    return {scenario.content_of(scenario.task(split, index)) for index in range(150)}


@pytest.mark.parametrize(
    "scenarios",
    [
        [(Walk, {}), (Walk, {"hint": True}), (Walk, {"far": 4, "hint": True})],
        [(Bits, {"length": 9}), (Bits, {"length": 9, "hint": True}), (LongBits, {})],
    ],
    ids=["Walk", "Bits"],
)
def test_no_task_that_was_trained_on_is_held_out_under_other_options(scenarios: list[tuple[type, Any]]) -> None:
    kinds = [UserScenario(kind, options) for kind, options in scenarios]
    trained, held_out = ([contents(one, split) for one in kinds] for split in ("train", "eval"))
    for train in trained:
        for other in held_out:
            assert not train & other
    assert all(len(found) > 100 for found in (*trained, *held_out))
    assert {one.why_not_apart(other) for one in kinds for other in kinds} == {None}


def test_options_and_derived_classes_that_nothing_keeps_apart_are_no_arms() -> None:
    own, arms = UserScenario(Silent, {}), TaskOptions.model_validate({"source": "mixture", "arms": {"a": {}, "b": {}}})

    def armed(one: UserScenario, other: UserScenario) -> None:
        build_arms(arms, ScenarioOptions(name="x"), "team", one, lambda _: other)

    armed(own, UserScenario(Silent, {}))
    armed(own, UserScenario(type("Other", (Walk,), {"teams": own.teams}), {}))
    for other in (UserScenario(Silent, {"length": 2}), UserScenario(LongSilent, {}), UserScenario(Bits, {})):
        for pair in ((own, other), (other, own)):
            with pytest.raises(ConfigError, match=r"arms\.a: Silent has no content\(\), a text that is equal"):
                armed(*pair)


@pytest.mark.parametrize("answer", [3, "3"])
def test_a_verifier_accepts_the_right_answer_whatever_its_type(answer: Any) -> None:
    team = plan_execute_verify()
    kind = type("Mine", (Silent,), {"answer": lambda self: answer, "teams": {"team": team}})
    shown = UserScenario(kind, {}).demonstrations(0, expert=True)
    said = {text for _, text in (next(shown) for _ in range(12))}
    assert said == {"3<eos>", team.roles["verifier"].accept_text + "<eos>"}


def test_attributes_with_the_names_of_methods_are_none() -> None:
    class Mine(Silent):
        legal = success = is_over = ()

        def reset(self, random: Random) -> None:
            super().reset(random)
            self.content = self.render = "a text"

    scenario = UserScenario(Mine, {})
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    assert environment.legal("team") is None
    assert environment.render() == environment.observe("solo").fields["text"]
    environment.step({"team": "x"})
    assert environment.to_move() == ()
    assert environment.success() is False


def test_a_constructor_that_raises_is_named() -> None:
    class Mine(Silent):
        def __init__(self, length: int = 0) -> None:
            super().__init__(9 // length)

    with pytest.raises(ConfigError, match="Mine cannot be made: EnvironmentFault: the constructor raised ZeroDiv"):
        UserScenario(Mine, {"length": 0})
    assert UserScenario(Mine, {"length": 1}).task("eval", 0), "its defaults are not needed"


def test_a_class_with_several_seats_teaches_no_tiny_base() -> None:
    two = build_scenario(ScenarioOptions(name="two_player"))

    class Mine(type(two.environment())):  # type: ignore[misc]
        teams = two.teams

        def __init__(self) -> None:
            self.__dict__.update(two.environment().__dict__)

    with pytest.raises(ConfigError, match="Mine has several seats, so that the tiny base cannot be taught"):
        next(UserScenario(Mine, {}).demonstrations(0, expert=True))


def test_any_annotation_is_an_option_and_names_that_cannot_be_one_are_refused() -> None:
    class Mine(Silent):
        def __init__(self, length: int = 3, lock: Barrier | None = None) -> None:
            super().__init__(length)

    assert options_of(Mine)(length=4).model_dump() == {"length": 4, "lock": None}
    with pytest.raises(ValueError, match="valid integer"):
        options_of(Mine)(length="many")
    made = (lambda self, _x=3: None, lambda self, copy=3: None, lambda self, model_dump=3: None)
    for name, function in zip(("_x", "copy", "model_dump"), made, strict=True):
        with pytest.raises(ConfigError, match=rf"Mine\({name}=3\): an option cannot have this name"):
            options_of(type("Mine", (Silent,), {"__init__": function}))


@pytest.mark.parametrize("paid", [np.float32(0.5), np.int64(1), np.bool_(True), np.array(0.5)])
def test_numbers_of_numpy_are_pay(paid: Any) -> None:
    scenario = UserScenario(type("Mine", (Silent,), {"step": lambda self, action: paid}), {})
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    assert environment.step({"team": "x"}).rewards == {"team": {"reward": float(paid)}}


@pytest.mark.parametrize("paid", [None, "1", b"1", [1.0], float("inf"), np.zeros(2), 1j])
def test_what_is_no_number_is_no_pay(paid: Any) -> None:
    scenario = UserScenario(type("Mine", (Silent,), {"step": lambda self, action: paid}), {})
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    with pytest.raises(EnvironmentFault, match="return what the team is paid, a finite number"):
        environment.step({"team": "x"})


def test_tenths_that_add_up_to_one_are_a_success() -> None:
    kind = type("Mine", (Silent,), {"is_over": lambda self: False, "step": lambda self, action: 0.1})
    scenario = UserScenario(kind, {})
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    for turn in range(10):
        assert not environment.success(), turn
        environment.step({"team": "x"})
    assert sum([0.1] * 10) < 1
    assert environment.success()


def test_code_of_a_package_is_named_by_its_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "mas_user_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "base.py").write_text(inspect.getsource(Silent).replace("random: Random", "random"))
    (package / "task.py").write_text(
        "from .base import Silent\nclass Mine(Silent):\n    pass\ndef score(said, row):\n    return 1.0\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    task = import_module("mas_user_package.task")
    assert class_name(task.Mine) == "mas_user_package.task:Mine"
    assert load_class(class_name(task.Mine)) is task.Mine
    assert mas.questions("a.jsonl", reward=task.score).options["reward"] == "mas_user_package.task:score"


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
    (run / "config.yaml").write_text(json.dumps({"scenario": {"name": name}}))
    with pytest.raises(TrustError, match=rf"import {re.escape(name)}"):  # even where another class is played instead
        mas.evaluate(run, [f"scenario.name='{NAME}'"], quiet=True)
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
