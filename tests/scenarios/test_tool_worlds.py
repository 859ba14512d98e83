"""Environments with tools that change something: the contract, and what a user's own class with tools does."""

import importlib.util
import json
from functools import cache
from pathlib import Path
from random import Random
from types import ModuleType
from typing import Any, ClassVar

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Caller, CountedCall, Environment, Task, Tooled, ToolWorld
from mas.core.errors import ConfigError, EnvironmentFault
from mas.core.role import View
from mas.core.scenario import Scenario
from mas.roles import build_roles
from mas.scenarios import build_scenario
from mas.scenarios.tool_class import ToolPlay
from mas.scenarios.tool_use.environment import ToolEnvironment, ToolState
from mas.scenarios.tool_use.tasks import ToolRules
from mas.scenarios.user_class import UserScenario, UserWorld
from mas.testing.tool_world import ANSWER, ToolWorldContract

EXAMPLES = Path(__file__).parents[2] / "examples"
SHELF = ScenarioOptions(name=f"{EXAMPLES / 'shelf.py'}:Shelf")
ROWS = [{"goal": number} for number in range(1, 80)]
CLASS = '''
class Orders:
    """You keep a list of orders."""

    def reset(self, goal):
        self.orders, self.goal = [], goal
        return f"Order {goal} bolts."

    def order(self, item: str, count: int) -> str:
        """Order so many of an item."""
        self.orders.append((item, count))
        return f"order {len(self.orders)}"

    def cancel(self, number: int) -> str:
        """Cancel an order."""
        del self.orders[number - 1]
        return "cancelled"

    def get_reward(self):
        return float(sum(count for _, count in self.orders) == self.goal)
'''


def call(name: str, **arguments: object) -> str:
    return json.dumps({"name": name, "arguments": arguments})


@cache
def scenario_of(options: str) -> Scenario:
    return build_scenario(ScenarioOptions.model_validate_json(options))


def tool_world(environment: Environment) -> ToolWorld:
    assert isinstance(environment, ToolWorld)
    return environment


class TestTableOfToolUse(ToolWorldContract):
    options = ScenarioOptions(name="tool_use", options={"kinds": "store", "calls": "json", "numbers": 99})

    def make_environment(self) -> ToolWorld:
        return tool_world(scenario_of(self.options.model_dump_json()).environment())

    def task(self, number: int) -> Task:
        return scenario_of(self.options.model_dump_json()).task("train", number)

    def calls(self, world: ToolWorld) -> tuple[str, ...]:
        place = {"item": "bolt", "unit": "weight"}
        return call("store", **place, value=1000), call("look_up", **place), call("store", **place, value=-1)

    def tool_state(self, world: ToolWorld) -> object:
        assert isinstance(world, ToolEnvironment)
        return world.state.table


class TestShelf(ToolWorldContract):
    options = SHELF

    def make_environment(self) -> ToolWorld:
        return tool_world(scenario_of(self.options.model_dump_json()).environment())

    def task(self, number: int) -> Task:
        return scenario_of(self.options.model_dump_json()).task("train", number)

    def calls(self, world: ToolWorld) -> tuple[str, ...]:
        moves = [call("move", thing=thing, shelf=shelf) for thing in ("lamp", "vase") for shelf in "AB"]
        return call("look", shelf="A"), *moves

    def tool_state(self, world: ToolWorld) -> object:
        made = world._running()  # type: ignore[attr-defined]
        assert isinstance(made, UserWorld)
        return dict(made.made.places)


class TestClassOfTrl(ToolWorldContract):
    options: ClassVar[ScenarioOptions]

    @pytest.fixture(autouse=True)
    def _files(self, tmp_path: Path) -> None:
        (tmp_path / "orders.py").write_text(CLASS)
        (tmp_path / "rows.jsonl").write_text("\n".join(map(json.dumps, ROWS)))
        rows = {"rows": str(tmp_path / "rows.jsonl")}
        type(self).options = ScenarioOptions(name=f"{tmp_path / 'orders.py'}:Orders", options=rows)

    def make_environment(self) -> ToolWorld:
        return tool_world(scenario_of(self.options.model_dump_json()).environment())

    def task(self, number: int) -> Task:
        return scenario_of(self.options.model_dump_json()).task("train", number)

    def calls(self, world: ToolWorld) -> tuple[str, ...]:
        return call(
            "order", item="bolt", count=3
        ), f"I order.<tool_call>{call('order', item='nut', count=1)}</tool_call>"

    def tool_state(self, world: ToolWorld) -> object:
        made = world._running()  # type: ignore[attr-defined]
        assert isinstance(made, ToolPlay)
        return list(made._made.orders)


def loaded(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def shelf(number: int = 0) -> tuple[Environment, Any]:
    scenario = scenario_of(SHELF.model_dump_json())
    environment = scenario.environment()
    environment.reset(scenario.task("train", number))
    return environment, environment._running().made  # type: ignore[attr-defined]


def test_a_users_class_is_solved_by_calls_and_an_answer() -> None:
    environment, made = shelf()
    for thing, place in made.wanted.items():
        if made.places[thing] != place:
            step = environment.step({"team": call("move", thing=thing, shelf=place)})
            assert (step.rewards, step.illegal) == ({"team": {"reward": 0.0}}, ())
    assert environment.to_move() == ("team",), "a class without is_over() is over behind an answer, not behind a call"
    assert environment.step({"team": "done"}).rewards == {"team": {"reward": 1.0}}
    assert environment.to_move() == ()
    assert environment.success()


def test_what_a_tool_refuses_or_raises_is_told_and_the_turn_is_spent() -> None:
    environment, made = shelf()
    assert isinstance(environment, Tooled)
    before = dict(made.places)
    wrong = call("move", thing="lamp")
    assert environment.is_failed_call(wrong)
    assert environment.step({"team": wrong}).illegal == ("team",)
    assert environment.step({"team": call("move", thing="cup", shelf="A")}).illegal == ()
    history = environment.observe("solo").fields["history"]
    assert "result: error: tool 'move': parameter 'shelf' is missing" in history
    assert "result: error: there is no cup or no shelf A" in history
    assert environment.observe("solo").fields["tools"].count('"description"') >= 2
    assert made.places == before


def test_the_ready_made_teams_are_told_of_the_tools() -> None:
    environment, _ = shelf()
    team = scenario_of(SHELF.model_dump_json()).teams["solo"]
    role = build_roles(team)["solo"]
    system, user = role.chat(View(observation=environment.observe("solo")))
    assert system.startswith("You put things on the shelves")
    assert '"name": "move"' in user
    assert "Call one tool" in user


def test_the_example_is_short_and_a_class_as_any_other() -> None:
    lines = (EXAMPLES / "shelf.py").read_text().splitlines()
    assert len(lines) < 50
    kind = loaded(EXAMPLES / "shelf.py").Shelf
    assert isinstance(UserScenario(kind, {}).environment(), ToolWorld)


class Misspelt:
    tools = ("put",)

    def reset(self, random: Random) -> None:
        self.number = random.random()

    def observe(self, view: str) -> str:
        return str(self.number)

    def step(self, action: str) -> float:
        return 0.0


class Silent(Misspelt):
    def put(self, what: str) -> str:
        return what


@pytest.mark.parametrize(
    ("kind", "why"),
    [(Misspelt, "Misspelt names the tool 'put', and has no such method"), (Silent, "put has no docstring; say what")],
)
def test_tools_that_are_none_are_refused_at_once(kind: type, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        UserScenario(kind, {})


def test_a_record_in_which_a_denied_call_was_made_cannot_be_played_again_as_another() -> None:
    """The denials of a branch are a part of its state: without them the game would go another way."""
    environment, _ = shelf()
    world = tool_world(environment)
    world.step_as({"team": call("look", shelf="A")}, {"team": Caller("solo", ANSWER)})
    whole = json.loads(world.snapshot())
    assert whole["counted"] == {"0": {"agent": "solo", "denied": ANSWER}}
    del whole["counted"]
    with pytest.raises(EnvironmentFault, match="played again showed something else"):
        environment.restore(json.dumps(whole).encode())


def test_a_task_of_the_kind_store_is_solved_by_the_right_table_and_the_right_answer() -> None:
    options = TestTableOfToolUse.options
    scenario = build_scenario(options)
    environment = scenario.environment()
    expert = scenario.expert
    for number in range(10):
        environment.reset(scenario.task("train", number))
        assert isinstance(environment, ToolEnvironment)
        actions = []
        spoilt = environment.clone()
        while environment.to_move():
            actions.append(expert(environment, Random(0))["team"])
            environment.step({"team": actions[-1]})
        assert environment.success()
        assert '"store"' in actions[-2]
        for action in (*actions[:-2], call("store", item="axle", unit="price", value=12345), *actions[-2:]):
            spoilt.step({"team": action})
        changed_again = "axle" in actions[-2] and "price" in actions[-2]
        assert spoilt.success() == changed_again, "what nobody asked for was changed, too"


def test_in_compact_form_a_denied_call_reads_as_a_refused_one() -> None:
    scenario = build_scenario(ScenarioOptions(name="tool_use"))
    world = tool_world(scenario.environment())
    world.reset(scenario.task("train", 0))
    world.step_as({"team": "+34"}, {"team": Caller("caller", ANSWER)})
    assert world.observe("caller").fields["history"] == "+!"


@pytest.mark.parametrize("calls", ["compact", "words"])
def test_the_kind_store_needs_calls_in_json(calls: str) -> None:
    with pytest.raises(ConfigError, match=f"kinds=store has a tool that calls={calls} cannot write: set calls=json"):
        build_scenario(ScenarioOptions(name="tool_use", options={"kinds": "store", "calls": calls}))


class Shared(ToolEnvironment):
    """Its table is one for all clones."""

    def clone(self) -> "Shared":
        return self


class Deaf(ToolEnvironment):
    """It makes the calls that are denied."""

    def denied(self, state: ToolState, action: str, answer: str) -> tuple[ToolState, dict[str, float]]:
        after, terms, _ = self.act(state, action)
        return after, terms


class Forgetful(ToolEnvironment):
    """It does not count."""

    def counted_calls(self) -> tuple[CountedCall, ...]:
        return ()


@pytest.mark.parametrize(
    ("kind", "test"),
    [
        (Shared, "test_a_call_changes_its_own_clone_and_the_committed_one_changes_the_original"),
        (Deaf, "test_a_denied_call_is_not_made_and_its_caller_is_answered"),
        (Forgetful, "test_counted_calls_are_a_part_of_the_state"),
    ],
)
def test_the_suite_notices_worlds_that_break_the_contract(kind: type[ToolEnvironment], test: str) -> None:
    class Broken(TestTableOfToolUse):
        def make_environment(self) -> ToolWorld:
            return kind(ToolRules(compact=False, kinds=("store",)))

    with pytest.raises(AssertionError):
        getattr(Broken(), test)()
