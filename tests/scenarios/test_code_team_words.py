"""`code_team` in words: functions of every kind, and programs of people who would rather not write them."""

import json
from collections.abc import Mapping
from functools import cache
from random import Random
from typing import Any

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Move, Task
from mas.core.errors import SandboxError
from mas.core.messages import Action, joint_action
from mas.core.scenario import Scenario
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.sandbox.mechanism import probe
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.code_team import CodeEnvironment, CodeReward, CodeState, expert
from mas.scenarios.code_team.language import HOLDS, CodeAnswer, Function
from mas.scenarios.code_team.worded import EDGES, KINDS, LONGEST, Worded, applied, draw_input, golden_of, judged
from mas.testing.environment import EnvironmentContract

LARGE = SCENARIOS["code_team"].sizes["large"]
GOLDEN = ("[]", "[4]", "[1, 2, 3]", "[5, 6]")
FUNCTION = Function(kind="list", steps=(("reverse", 0), ("drop", 1)), spec="reverse, drop one", golden=GOLDEN)
RIGHT = "def f(x):\n    return x[::-1][1:]"
WRONG = "def f(x):\n    return x[1:]"
RIGHT_TEST = '{"input": [1, 2, 3], "output": [2, 1]}'
HOSTILE = {
    "ends well before a test runs": "import os\nos._exit(0)",
    "exits": "raise SystemExit(0)",
    "is no Python": "I cannot write this.",
    "prints what a test would": "def f(x):\n    print('passed', [True] * 9)",
    "equals everything": "class Sly(list):\n    def __eq__(self, other): return True\ndef f(x): return Sly()",
    "eats memory": "x = bytearray(1 << 33)",
    "makes processes": "import os\nwhile True: os.fork()",
    "recurses": "def f(x): return f(x)",
    "floods": "while True: print('x' * 9999)",
    "reads files": "open('/etc/passwd').read()",
    "looks for the answers": (
        "import sys\ndef f(x):\n"
        "    frame = sys._getframe(1)\n"
        "    while frame:\n"
        "        for value in frame.f_locals.values():\n"
        "            if isinstance(value, list) and value and value != x: return value\n"
        "        frame = frame.f_back"
    ),
}


@cache
def missing() -> str:
    """Why there is no sandbox; empty where there is one."""
    try:
        probe()
    except SandboxError as error:
        return str(error)
    return ""


@pytest.fixture(autouse=True)
def sandboxed() -> None:
    """Every test here needs one."""
    if missing():
        pytest.skip(missing())


@cache
def scenario_of(**options: Any) -> Scenario:
    return build_scenario(ScenarioOptions(name="code_team", options=options))


def world(turns: int = 2) -> CodeEnvironment:
    environment = CodeEnvironment(Worded(2), turns)
    environment._state = CodeState(function=FUNCTION)
    return environment


def act(environment: CodeEnvironment, **said: str) -> float:
    step = environment.step({"team": joint_action(said)})
    assert step.illegal == ()
    return step.rewards["team"]["passed"]


class TestWords(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = dict.fromkeys(
        ("coder", "tester", "solo"), frozenset({"task", "program", "test", "outcome"})
    )

    def make_environment(self) -> Environment:
        return scenario_of(**LARGE).environment()

    def task(self, number: int) -> Task:
        return scenario_of(**LARGE).task("train", number)


@pytest.mark.parametrize("size", ["medium", "large"])
def test_the_expert_writes_programs_that_do_what_the_reference_does(size: str) -> None:
    scenario, kinds = scenario_of(**SCENARIOS["code_team"].sizes[size]), set()
    for index in range(40):
        environment = scenario.environment()
        assert isinstance(environment, CodeEnvironment)
        environment.reset(scenario.task("eval", index))
        kinds.add(environment.state.function.kind)
        assert environment.step(expert(environment, Random(index))).rewards["team"] == {"passed": 1.0}
        assert (environment.success(), environment.state.outcome, environment.state.rights) == (True, HOLDS, 1)
    assert kinds == set(KINDS)


@pytest.mark.parametrize("kind", KINDS)
def test_every_step_s_code_is_its_reference(kind: str) -> None:
    random = Random(0)
    inputs = [*EDGES[kind], *(draw_input(kind, random) for _ in range(10))]
    for name, step in KINDS[kind].items():
        for k in {step.low, step.high}:
            cases = tuple((given, applied(kind, ((name, k),), given)) for given in inputs)
            program = f"def f(x):\n    {step.code.replace('{k}', str(k))}\n    return x"
            assert judged(program, cases) == ("ok", (True,) * len(cases)), name


def test_golden_tests_tell_the_function_from_a_constant_and_from_nothing() -> None:
    for seed in range(150):
        golden = golden_of(Worded(2).make(Random(seed)))
        outputs = [json.dumps(wanted) for _, wanted in golden]
        assert max(map(outputs.count, outputs)) < len(outputs)
        assert any(given != wanted for given, wanted in golden)


@pytest.mark.parametrize("hostile", HOSTILE)
def test_hostile_programs_pass_no_test_that_tells_and_harm_nobody(hostile: str) -> None:
    environment = world()
    # Of the golden tests two have the output [], which is what the sly list is not: it is of another type.
    assert act(environment, coder=HOSTILE[hostile], tester=RIGHT_TEST) == 0.0
    assert environment.state.outcome not in ("", HOLDS)
    assert act(environment, coder=RIGHT) == 1.0
    assert environment.success()


def test_a_program_that_does_not_end_is_wrong_and_costs_its_time_once() -> None:
    endless = "def f(x):\n    while len(x) != 1: pass\n    return []"
    environment, twin = world(), world()
    # [] does not end, and costs the tests after it.
    assert act(environment, coder=endless, tester=RIGHT_TEST) == 0.0
    assert environment.state.outcome == "The program does not end in time."
    assert act(twin, coder=endless, tester=RIGHT_TEST) == 0.0
    assert twin.snapshot() == environment.snapshot()


def test_a_mismatch_is_seen_by_all_and_may_be_mended() -> None:
    environment = world()
    # x[1:] is right for [] and [4] alone
    assert act(environment, coder=f"Here:\n```python\n{WRONG}\n```\nDone.", tester=f"By hand.\n{RIGHT_TEST}") == 0.5
    for view in ("coder", "tester", "solo"):
        fields = environment.observe(view).fields
        assert (fields["program"], fields["test"]) == (WRONG, RIGHT_TEST)
        assert fields["outcome"] == "The program does not give this output."
        assert "golden" not in "".join(fields.values())
    assert act(environment, coder=f"```\n{RIGHT}\n```") == 0.5
    assert environment.measures() == {"first_share": 0.5, "right_tests": 1.0}


@pytest.mark.parametrize(
    ("text", "right"),
    [
        (RIGHT_TEST, True),
        ('first {"input": [], "output": [1]} or rather\n```json\n{"output": [], "input": []}\n```', True),
        ('{"input": [4], "output": []} no: {"input": [4]}', True),
        ('{"input": [1, 2, 3], "output": [2, 1.0]}', False),
        ('{"input": [1, 2, 3], "output": [true, 1]}', False),
        ('{"input": [1, 2, 3], "output": null}', False),
        ('{"input": "abc", "output": "b"}', False),
        ('{"input": [1000], "output": []}', False),
        ('{"input": [true], "output": []}', False),
        ('{"input": [1e999], "output": NaN}', False),
        ('{"input": ' + "[" * 3000 + "}", False),
        ('{"input": [' + "9" * 3900 + '], "output": 1}', False),
        ('{"input": "\\ud800", "output": "\\ud800"}', False),
        ("f([1, 2, 3]) == [2, 1]", False),
        ("", False),
    ],
)
def test_a_test_is_right_when_the_reference_agrees_whatever_the_program_does(text: str, right: bool) -> None:
    move = Move(agent="tester", role="tester", environment=world(), output=Action(text=text), before={}, after={})
    assert CodeReward().own(move) == {"test": float(right)}
    environment = world()
    act(environment, coder=RIGHT, tester=text)
    assert environment.success()
    assert (environment.state.outcome == HOLDS) is right
    other = world()
    other.restore(environment.snapshot())
    assert other.state_key() == environment.state_key()


@pytest.mark.parametrize("team", ["team", "solo"])
def test_what_members_write_reaches_the_world_as_they_wrote_it(team: str) -> None:
    program, test = f"I reverse it.\n```python\n{RIGHT}\n```\n", f"By hand: [2, 1].\n{RIGHT_TEST}\n"
    texts = {"coder": program, "tester": test, "solo": program + test}
    spec = scenario_of(**LARGE).teams[team]
    roles, flow = build_roles(spec), Flow.start(compile_team(spec, build_roles(spec)))
    for agent in flow.ready():
        flow = flow.begin(agent).complete(agent, roles[agent].parse(texts[agent]))
    action = flow.action()
    assert action is not None
    assert world().heard(action.content) == (CodeAnswer(RIGHT, RIGHT_TEST), True)


def test_one_agent_writes_both_in_one_text() -> None:
    both = f"The function:\n```python\n{RIGHT}\n```\nA test:\n{RIGHT_TEST}"
    environment = world()
    assert environment.heard(both) == (CodeAnswer(RIGHT, RIGHT_TEST), True)
    assert environment.step({"team": both}).rewards["team"] == {"passed": 1.0}
    assert environment.to_move() == ()


@pytest.mark.parametrize("text", ["x" * (LONGEST + 1), "def f(x):\x00", "\ud800"])
def test_what_no_program_looks_like_spends_the_turn_alone(text: str) -> None:
    environment = world()
    step = environment.step({"team": text})
    assert (step.illegal, step.rewards["team"]) == (("team",), {"passed": 0.0})
    assert environment.state == CodeState(function=FUNCTION, turn=1)


def test_a_tester_pays_for_what_is_wrong_by_the_reference_even_where_the_program_agrees() -> None:
    environment = world()
    assert act(environment, coder=WRONG, tester='{"input": [1, 2, 3], "output": [2, 3]}') == 0.5
    assert environment.to_move() == ()
    assert not environment.success()
    assert environment.measures() == {"first_share": 0.5, "right_tests": 0.0}
