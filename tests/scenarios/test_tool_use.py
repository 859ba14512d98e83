"""`tool_use`: what calls do, what they pay, and that no trick pays more than the right calls and the right answer."""

from collections.abc import Callable, Iterable, Mapping
from functools import cache
from random import Random

import msgspec
import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Reward, Task
from mas.core.errors import ConfigError
from mas.core.messages import Action, Failure, Payload, Plan
from mas.graph import compile_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.tool_use import ToolUseOptions, build
from mas.scenarios.tool_use.environment import ToolEnvironment, ToolReward, ToolState
from mas.scenarios.tool_use.tasks import KINDS, Puzzle, ToolRules, make, solution
from mas.scenarios.world import FolderScenario
from mas.testing.environment import EnvironmentContract
from mas.testing.reward import RewardContract

SHOWN = frozenset({"question", "history"})
LARGE = ScenarioOptions(name="tool_use", options=dict(SCENARIOS["tool_use"].sizes["large"]))


class TestToolUse(EnvironmentContract):
    options = ScenarioOptions(name="tool_use")
    privacy: Mapping[str, frozenset[str]] = dict.fromkeys(("planner", "caller", "summariser", "solo"), SHOWN)

    @pytest.fixture(autouse=True)
    def _scenario(self) -> None:
        self.scenario = build_scenario(self.options)

    def make_environment(self) -> Environment:
        return self.scenario.environment()

    def task(self, number: int) -> Task:
        return self.scenario.task("train", number)


class TestLargeToolUse(TestToolUse):
    options = LARGE
    privacy: Mapping[str, frozenset[str]] = {"planner": SHOWN | {"tools"}, "summariser": SHOWN}


def world(*, compact: bool = True) -> ToolEnvironment:
    """cw + 5 with w of c being 9: `look_up`, then `add(9, 5)`."""
    environment = ToolEnvironment(ToolRules(compact=compact))
    environment._state = ToolState(Puzzle(None, 2, 1, (1, 0, 7, 0, 2, 9), (("+", 5),)))
    return environment


class TestToolReward(RewardContract):
    def make_reward(self) -> Reward:
        return ToolReward()

    def moves(self) -> Iterable[Move]:
        environment = world()
        outputs: list[Payload] = [Action(text=text) for text in ("tcw", "tap", "+95", "?", "", "4", "=4.")]
        for role in ("planner", "caller", "summariser", "solo"):
            for output in (*outputs, Failure(text="tcw", cause="nonsense"), Plan(text="t")):
                yield Move(agent=role, role=role, environment=environment, output=output, before={}, after={})


def play(environment: ToolEnvironment, actions: Iterable[str]) -> list[dict[str, float]]:
    return [dict(environment.step({"team": action}).rewards["team"]) for action in actions]


def test_wanted_calls_make_progress_and_the_right_answer_solves() -> None:
    environment = world()
    # Two calls are wanted: each pays 0.5 / 2; 9 + 5 = 14, of which the last digit is 4.
    assert play(environment, ["tcw", "+95", "4"]) == [{"progress": 0.25}, {"progress": 0.25}, {"right": 1.0}]
    assert environment.success()
    assert environment.observe("planner").fields == {"question": "cw+5", "history": "t9+4"}


@pytest.mark.parametrize("call", ["+95", "+59"])
def test_sums_may_be_written_in_either_order_and_differences_not(call: str) -> None:
    environment = world()
    assert play(environment, ["tcw", call])[1] == {"progress": 0.25}
    environment._state = msgspec.structs.replace(
        world().state, puzzle=msgspec.structs.replace(world().state.puzzle, steps=(("-", 5),))
    )
    assert play(environment, ["tcw", "-59", "-95"])[1:] == [{"waste": -0.1}, {"progress": 0.25}]


@pytest.mark.parametrize(
    ("action", "shown"), [("tzw", "t!"), ("taz", "t!"), ("+9", "+!"), ("+9a", "+!"), ("??", "!!"), ("999", "!!")]
)
def test_a_call_that_is_refused_is_seen_as_such_and_wastes_the_turn(action: str, shown: str) -> None:
    environment = world()
    step = environment.step({"team": action})
    assert step.illegal == ("team",)
    assert step.rewards["team"] == {"waste": -0.1}
    assert environment.observe("solo").fields["history"] == shown
    assert (environment.state.done, environment.state.turn) == (0, 1)


HOSTILE = (
    " ", "\x00\x1b[2J", "t" * 100_000, '{"name": "look_up"', '{"name": "look_up", "arguments": {}}', "[" * 50_000,
    "\ud800", '{"name": "add", "arguments": {"a": "9", "b": 5}}',
    '{"name": "add", "arguments": {"a": 9, "b": 5, "c": 1}}',
    '{"name": "eval", "arguments": {}}', '{"name": "add", "arguments": {"a": 1e999, "b": 5}}', "9" * 5000,
    '{"name": "multiply", "arguments": {"a": 9999999999999999999999, "b": 5}}',
)  # fmt: skip


@pytest.mark.parametrize("compact", [True, False])
@pytest.mark.parametrize("action", HOSTILE)
def test_hostile_actions_are_refused_and_recorded(action: str, compact: bool) -> None:
    environment = world(compact=compact)
    step = environment.step({"team": action})
    assert step.illegal == ("team",)
    (line,) = environment.state.history
    assert line[1].startswith("!")
    assert len(line[0]) <= 200
    assert len(line[1]) <= 200
    assert environment.to_move() == ("team",)
    again = world(compact=compact)
    again.restore(environment.snapshot())
    assert again.state_key() == environment.state_key()


def test_calls_in_json_are_carried_out_and_refusals_say_why() -> None:
    environment = world(compact=False)
    environment.step({"team": '{"name": "look_up", "arguments": {"item": "clamp", "unit": "weight"}}'})
    environment.step({"team": '{"name": "add", "arguments": {"a": 9}}'})
    environment.step({"team": '{"name": "add", "arguments": {"a": 9, "b": 5}}'})
    first, second, third = environment.observe("summariser").fields["history"].split("\n")
    assert first.endswith("-> 9")
    assert "parameter 'b' is missing" in second
    assert third.endswith("-> 14")
    environment.step({"team": " 14\n"})
    assert environment.success()
    assert '"name":"look_up"' in environment.observe("caller").fields["tools"]


Policy = Callable[[ToolEnvironment], str]


def tricks() -> dict[str, Policy]:
    def wanted(environment: ToolEnvironment) -> str:
        state = environment.state
        return str(solution(state.puzzle, environment.rules)[-1][1])

    def again(environment: ToolEnvironment) -> str:
        return "tap" if environment.state.turn % 2 else "tbw"

    def calls_only(environment: ToolEnvironment) -> str:
        state = environment.state
        done = environment.state.done == len(solution(state.puzzle, environment.rules))
        return "+11" if done else scenario().expert(environment, Random(0))["team"]

    return {
        "idle": lambda environment: "",
        "guess": lambda environment: "0" if wanted(environment) != "0" else "1",
        "know it already": wanted,
        "look up again and again": again,
        "never answer": calls_only,
    }


@cache
def scenario() -> FolderScenario:
    built = build_scenario(ScenarioOptions(name="tool_use"))
    assert isinstance(built, FolderScenario)
    return built


def earn(index: int, policy: Policy) -> tuple[float, bool]:
    built = scenario()
    environment = built.environment()
    assert isinstance(environment, ToolEnvironment)
    environment.reset(built.task("eval", index))
    total = 0.0
    while environment.to_move():
        total += sum(environment.step({"team": policy(environment)}).rewards["team"].values())
    return total, environment.success()


@pytest.mark.parametrize("trick", tricks())
def test_no_trick_earns_what_the_expert_earns(trick: str) -> None:
    expert = scenario().expert
    assert expert is not None
    for index in range(40):
        # 0.5 for all wanted calls and 1 for the answer, whatever the task.
        best, solved = earn(index, lambda environment: expert(environment, Random(0))["team"])
        assert solved
        assert best == pytest.approx(1.5)
        assert earn(index, tricks()[trick])[0] <= best - 0.5


def test_the_expert_solves_every_large_task() -> None:
    built = build_scenario(LARGE)
    assert isinstance(built, FolderScenario)
    assert built.expert is not None
    environment = built.environment()
    for index in range(100):
        environment.reset(built.task("eval", index))
        while environment.to_move():
            environment.step(built.expert(environment, Random(0)))
        assert environment.success()


@pytest.mark.parametrize("compact", [True, False])
def test_ten_thousand_random_steps_raise_nothing(compact: bool) -> None:
    environment, random, steps, number = ToolEnvironment(ToolRules(compact=compact)), Random(0), 0, 0
    built = scenario()
    while steps < 5_000:
        environment.reset(built.task("train", number % 50))
        number += 1
        while environment.to_move():
            text = "".join(random.choices('tabcpw+-*0123456789={}":.', k=random.randrange(5)))
            environment.step({"team": text})
            steps += 1


def own(role: str, output: Payload) -> Mapping[str, float]:
    return ToolReward().own(Move(agent=role, role=role, environment=world(), output=output, before={}, after={}))


@pytest.mark.parametrize(
    ("text", "total"),
    [
        # look_up(c, w) is wanted: most = 1 + 1 + 2 = 4, so that a point of the match pays 6/4; format adds 1.
        ("tcw", 7.0),
        ("tcp", 5.5),
        ("tap", 4.0),
        ("+95", 1.0),
        ("4", 0.0),
        ("junk", 0.0),
    ],
)
def test_a_caller_is_paid_as_toolrl_says(text: str, total: float) -> None:
    assert sum(own("caller", Action(text=text)).values()) == pytest.approx(total)


def test_solo_is_paid_for_answering_only_when_all_was_called() -> None:
    assert sum(own("solo", Action(text="=4.")).values()) == 1.0
    assert sum(own("solo", Action(text="tcw")).values()) == 7.0
    environment = world()
    play(environment, ["tcw", "+95"])
    move = Move(agent="solo", role="solo", environment=environment, output=Action(text="=4."), before={}, after={})
    # Nothing is wanted any more: most = 1, and calling nothing gives all of it: 6, with the format 7.
    assert sum(ToolReward().own(move).values()) == 7.0


def test_a_planner_chooses_the_way_and_has_no_terms_of_its_own() -> None:
    planner = build_roles(scenario().teams["team"])["planner"]
    assert [planner.parse(text).route for text in ("t", "+", "=", "nonsense")] == ["call", "call", "answer", "call"]
    for calls, said in (("words", ("the table", "the calculator", "nothing")), ("json", ("look_up", "add", "answer"))):
        planner = build_roles(build_scenario(ScenarioOptions(name="tool_use", options={"calls": calls})).teams["team"])[
            "planner"
        ]
        assert [planner.parse(text).route for text in said] == ["call", "call", "answer"]
    assert own("planner", Plan(text="t")) == own("summariser", Action(text="4")) == {}


def test_a_team_turn_is_a_call_or_an_answer_as_the_planner_chose() -> None:
    team = scenario().teams["team"]
    plan = compile_team(team, build_roles(team))
    for said in ({"planner": "t", "caller": "tcw"}, {"planner": "=", "summariser": "4"}):
        flow, fired = Flow.start(plan), []
        while not flow.finished:
            (agent,) = flow.ready()
            flow = flow.begin(agent).complete(agent, plan.roles[agent].parse(said[agent]))
            fired.append(agent)
        assert fired == list(said)
        assert flow.action() == Action(text=list(said.values())[-1])


@pytest.mark.parametrize(
    ("kind", "wanted"), [("calculate", {"add", "subtract", "multiply"}), ("look_up", {"look_up"}), ("all", None)]
)
def test_tasks_are_of_the_kind_that_is_asked_for(kind: str, wanted: set[str] | None) -> None:
    options = ToolUseOptions(calls="words", numbers=20, kinds=kind)
    rules = ToolRules(compact=False, words=True, numbers=20, kinds=KINDS if kind == "all" else (kind,))
    random, called = Random(0), []
    for _ in range(60):
        called.append({call.name for call, _ in solution(make(random, rules), rules)})
    assert set().union(*called) == (wanted or {"add", "subtract", "multiply", "look_up"})
    assert (max(map(len, called)) == 2) == (kind == "all")
    questions = {text for number in range(60) if (text := shown(build(options), number))}
    assert all(text.startswith("Take the number") for text in questions) == (kind == "calculate")
    assert all(text.startswith("Take the number") is False for text in questions) == (kind == "look_up")


def shown(scenario: FolderScenario, number: int) -> str:
    """The question of a task."""
    environment = scenario.environment()
    environment.reset(scenario.task("train", number))
    return str(environment.observe("planner").fields["question"])


def test_numbers_of_two_digits_need_json() -> None:
    with pytest.raises(ConfigError, match="numbers=10 has no one-character form"):
        build_scenario(ScenarioOptions(name="tool_use", options={"numbers": 10}))


def test_the_fields_of_a_large_task_are_words() -> None:
    environment = world(compact=False)
    assert environment.observe("planner").fields == {
        "question": "Take the weight of the clamp. Add 5. What is the result?",
        "history": "nothing was called yet",
        "tools": "add, subtract, multiply, look_up",
    }
