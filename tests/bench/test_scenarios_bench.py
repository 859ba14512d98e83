"""`mas bench scenarios`: what is counted, what cannot be measured and why, targets, and the command."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from bidding import Bidding
from installed import INSTALLED

from benchmarks.result import Result
from benchmarks.rounds import Timing
from benchmarks.scenarios import run
from benchmarks.scenarios.options import CLONE, RESTORE, ROLLOUT, SNAPSHOT, STEP, Amounts, ScenariosBench
from benchmarks.scenarios.rollout import open_rollouts
from benchmarks.scenarios.worlds import STATES, Operation, Walk
from mas.core.environment import Environment, Task, random_script
from mas.core.errors import ConfigError, MissingPackage, RunError
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.catalogue import sized
from mas.scenarios.world import FolderScenario

pytestmark = pytest.mark.nightly

Mas = Callable[..., Any]
SMALL = Amounts(batch=3, seconds=0.0, tasks=1, call_s=0.001)
WORLDS = (STEP, CLONE, SNAPSHOT, RESTORE)


def made(environment: Callable[[], Environment]) -> FolderScenario:
    """relay's teams and tasks around another environment."""
    scenario = build_scenario(sized("relay"))
    assert isinstance(scenario, FolderScenario)
    return replace(scenario, make_environment=environment, content=lambda random: str(random.random()), expert=None)


@pytest.fixture(scope="module")
def result() -> Result:
    options = ScenariosBench(scenarios=("relay",), repeats=1, amounts=SMALL)
    return asyncio.run(run.bench_scenarios(options, lambda text: None))


def test_every_operation_is_counted(result: Result) -> None:
    counted = {(row.size, row.name): row.tokens for row in result.rows}
    # The planner's question, the executor once per distinct plan (at most four letters), the executor's question.
    assert 3 <= counted.pop(("relay", ROLLOUT)) <= 6
    assert counted == {("relay", row): 3 for row in WORLDS}


def test_rows_hold_costs_lengths_and_the_share_outside_the_engine(result: Result) -> None:
    for row in result.rows:
        assert row.measures["cpu_us"] > 0
        assert ("bytes" in row.measures) is (row.name == SNAPSHOT)
        assert ("outside_engine" in row.measures) is (row.name == ROLLOUT)
        assert 0 < row.measures.get("outside_engine", 0.5) < 1
    length = next(row.measures["bytes"] for row in result.rows if row.name == SNAPSHOT)
    assert 20 < length < 60


def test_targets_are_promised_of_each(result: Result) -> None:
    assert [(target.name, target.goal) for target in result.targets] == [
        ("relay: steps a second", 1000.0),
        ("relay: clone, CPU µs", 200.0),
        ("relay: rollout outside the engine, share", 0.1),
    ]


def test_a_target_is_met_or_missed_by_what_was_measured() -> None:
    # 100 operations in 1 s are 100 a second and, with 1 s of CPU, 10,000 µs each.
    slow = Timing((100,), (1.0,), (1.0,))
    steps, clone, outside = run._targets("x", run.Field(), {STEP: slow, CLONE: slow}, 0.2)
    assert (steps.value, steps.met) == (100.0, False)
    assert (clone.value, clone.met) == (10_000.0, False)
    assert (outside.value, outside.met) == (0.2, False)
    absent = run.Field(absent={STEP: "no list", ROLLOUT: "several seats"})
    unmeasured = run._targets("x", absent, {}, None)
    assert [(target.met, target.note) for target in unmeasured] == [
        (None, "no list"),
        (None, "left out"),
        (None, "several seats"),
    ]


async def test_a_rollout_of_every_scenario_runs_and_says_how_much_is_the_engines() -> None:
    for name in INSTALLED:
        scenario = build_scenario(sized(name))
        if len(scenario.environment().spec.seats) > 1:
            continue
        async with open_rollouts(scenario, SMALL) as rollouts:
            assert await rollouts.run(0) > 1
            assert 0 < rollouts.outside[0] < 1


async def test_the_time_of_calls_that_overlap_counts_once() -> None:
    async with open_rollouts(build_scenario(sized("relay")), replace(SMALL, call_s=0.02)) as rollouts:
        calls = await rollouts.run(0)
        engine = rollouts._engine
        # The planner's call, the executor's for each plan at once, the executor's: three waves of 20 ms.
        assert calls > 3
        assert 3 * 0.02 <= engine.busy_s < calls * 0.02


async def test_where_actions_cannot_be_listed_nothing_but_the_rollout_is_measured() -> None:
    scenario = made(lambda: Bidding(is_listed=False, views=("planner", "executor")))
    async with run.open_field(scenario, ScenariosBench(amounts=SMALL)) as held:
        assert held.competitors == ()
        why = "its actions cannot be listed, and it has no expert"
        assert dict(held.absent) == dict.fromkeys(WORLDS, why) | {ROLLOUT: "several seats, and a rollout plays one"}
        rows = run._rows("x", held, {}, None)
        assert [(row.name, row.note) for row in rows] == list(held.absent.items())


async def test_the_rollout_can_be_left_out() -> None:
    scenario = build_scenario(sized("relay"))
    options = ScenariosBench(without=frozenset({ROLLOUT}), amounts=SMALL)
    async with run.open_field(scenario, options) as held:
        assert [one.name for one in held.competitors] == list(WORLDS)
        assert held.absent == {}


async def test_an_operation_goes_on_until_its_time_is_over() -> None:
    numbers: list[int] = []
    assert await Operation("x", SMALL, numbers.append).run(1) == 3
    assert numbers == [0, 1, 2]
    longer = replace(SMALL, seconds=0.01)
    count = await Operation("x", longer, numbers.append).run(1)
    assert count % 3 == 0
    assert count > 3


def test_a_walk_goes_from_task_to_task_and_its_states_differ() -> None:
    states = Walk(build_scenario(sized("plan_path")), random_script).states()
    assert len(states) == STATES
    assert len({state.state_key() for state in states}) == STATES
    with pytest.raises(RunError, match="the actions of relay cannot be listed"):
        Walk(made(lambda: Bidding(is_listed=False)), random_script).step(0)


async def test_a_rollout_that_fails_voids_the_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    async with open_rollouts(build_scenario(sized("relay")), SMALL) as rollouts:
        monkeypatch.setattr(rollouts._environment, "reset", broken)
        with pytest.raises(RunError, match="rollout 0 of relay recorded nothing: ConfigError: broken"):
            await rollouts.run(0)


def broken(task: Task) -> None:
    raise ConfigError("broken")


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, result: Result) -> list[ScenariosBench]:
    """What the benchmark was asked."""
    seen: list[ScenariosBench] = []

    async def found(options: ScenariosBench, tell: Callable[[str], None]) -> Result:
        seen.append(options)
        return result

    monkeypatch.setattr(run, "bench_scenarios", found)
    return seen


def test_options_arrive_and_files_are_written(asked: list[ScenariosBench], mas: Mas, tmp_path: Path) -> None:
    mas("bench", "scenarios")
    path = tmp_path / "found.json"
    words = ("--scenario", "plan_path", "--scenario", "plan_path", "--size", "medium", "--repeats", "2")
    out = mas("bench", "scenarios", *words, "--without", "rollout", "--json", str(path)).out
    assert asked[0] == ScenariosBench(scenarios=tuple(SCENARIOS), repeats=3)
    left_out = frozenset({"rollout"})
    assert asked[1] == ScenariosBench(scenarios=("plan_path",), size="medium", repeats=2, without=left_out)
    assert json.loads(path.read_text())["bench"] == "scenarios"
    assert "outside engine" in out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--scenario", "plan_pth"), "no scenario 'plan_pth'. Did you mean 'plan_path'?"),
        (("--scenario", "relay", "--size", "medium"), "scenario 'relay' has no size 'medium'"),
        (("--without", "rollouts"), "--without rollouts: nothing to leave out. Did you mean 'rollout'?"),
        (("--json", "none/found.json"), "none/found.json cannot be written"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    asked: list[ScenariosBench], words: tuple[str, ...], text: str, mas: Mas
) -> None:
    ran = mas("bench", "scenarios", *words)
    assert ran.code == 2
    assert text in ran.err
    assert ran.err.count("\n") == 1
    assert asked == []


def test_nothing_of_it_loads_a_tensor_library() -> None:
    code = (
        "import asyncio, sys\n"
        "from benchmarks.scenarios.options import Amounts, ScenariosBench\n"
        "from benchmarks.scenarios.run import bench_scenarios\n"
        "small = Amounts(batch=1, seconds=0.0, call_s=0.001)\n"
        "options = ScenariosBench(scenarios=('relay',), repeats=1, amounts=small)\n"
        "asyncio.run(bench_scenarios(options, lambda text: None))\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not {"torch", "transformers", "peft"} & set(done.stdout.split())


def test_a_scenario_that_cannot_be_built_without_its_package_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(options: object) -> None:
        raise MissingPackage("this needs the extra 'open-spiel'")

    monkeypatch.setattr(run, "build_scenario", missing)
    result = asyncio.run(run.bench_scenarios(ScenariosBench(scenarios=("two_player",)), lambda text: None))
    assert {row.name for row in result.rows} == {STEP, CLONE, SNAPSHOT, RESTORE, ROLLOUT}
    assert {row.note for row in result.rows} == {"this needs the extra 'open-spiel'"}
    assert [target.met for target in result.targets] == [None, None, None]
    assert result.exit_code == 0
