"""The benchmark at its smallest: everybody does what was asked, and targets follow from what was measured."""

import asyncio
import subprocess
import sys
from importlib.util import find_spec

import pytest
from mosquitto import needs_mosquitto

from benchmarks.bus import field, run
from benchmarks.bus.agents import Agents
from benchmarks.bus.field import Field
from benchmarks.bus.graph import EPISODE, FLOW, check_digit, say
from benchmarks.bus.messages import OURS, Arrivals, check_echo, open_fan_out, open_requests
from benchmarks.bus.mqtt import OVER_MQTT
from benchmarks.bus.options import AIOMQTT, AUTOGEN, LANGGRAPH, WORKLOADS, Amounts, BusBench
from benchmarks.bus.rollout import PLAIN, ROLLOUT, open_rollouts
from benchmarks.result import Result
from benchmarks.rounds import Timing
from mas.core.errors import RunError
from mas.core.messages import Action

pytestmark = pytest.mark.nightly

SMALL = Amounts(
    requests=8, in_flight=4, messages=8, receivers=2, payload_bytes=16, runs=3, agents=(2, 4), tasks=2, call_s=0.001
)
HERE = tuple(name for name in WORKLOADS if name not in run.MQTT)
CALLS = 2 * (1 + 4 + 1)
"""Of two tasks: the planner's question, the executor once per distinct plan (four keys), the executor's question."""


@pytest.fixture(scope="module")
def result() -> Result:
    """A run of all that needs no broker, without the others."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(field, "find_spec", lambda name: None)
        return asyncio.run(run.bench_bus(BusBench(workloads=HERE, repeats=2, amounts=SMALL), lambda text: None))


def test_every_workload_counts_what_was_done(result: Result) -> None:
    ran = {(row.size, row.name): row.tokens for row in result.rows if not row.note}
    calls = ran.pop(("rollout", ROLLOUT))
    assert ran.pop(("rollout", PLAIN)) == calls
    assert 2 * 2 < calls <= CALLS
    assert ran == {
        ("request", OURS): 8,
        ("one_by_one", OURS): 8,
        ("fan_out", OURS): 16,
        ("graph", FLOW): 3,
        ("graph", EPISODE): 3,
        ("agents", "mas, 2 agents"): 4,
        ("agents", "mas, 4 agents"): 4,
    }
    assert {row.size: row.unit for row in result.rows} == {name: WORKLOADS[name] for name in HERE}


def test_who_is_missing_is_said_with_the_line_that_installs_it(result: Result) -> None:
    missing = {(row.size, row.name): row.note for row in result.rows if row.note}
    rows = [("request", AUTOGEN), ("one_by_one", AUTOGEN), ("fan_out", AUTOGEN), ("graph", LANGGRAPH)]
    assert missing == dict.fromkeys(rows, "not installed: pip install 'mas[bench]'")


def test_rows_hold_cpu_time_and_agents_their_memory(result: Result) -> None:
    for row in result.rows:
        if not row.note:
            assert row.measures["cpu_us"] > 0
            assert ("bytes" in row.measures) is (row.size == "agents")
    assert all(row.measures["bytes"] > 1000 for row in result.rows if row.size == "agents")


def test_without_the_others_what_is_promised_beside_them_is_not_measured(result: Result) -> None:
    absent = [(target.name, target.goal, target.met, target.note) for target in result.targets if target.value is None]
    assert absent == [
        (name, goal, None, "not installed: pip install 'mas[bench]'")
        for name, goal in (
            (f"request: {OURS} / {AUTOGEN}", 5.0),
            (f"one_by_one: {OURS} / {AUTOGEN}", 5.0),
            (f"graph: {FLOW} / {LANGGRAPH}", 8.0),
        )
    ]
    assert [(target.name, target.goal) for target in result.targets if target.value is not None] == [
        (f"request: {OURS}, CPU µs each", 25.0),
        (f"graph: {FLOW}, CPU µs each", 60.0),
        ("agents: mas, 4 agents / mas, 2 agents, time of one", 1.5),
        ("agents: mas, 4 agents / mas, 2 agents, memory of one", 1.5),
        (f"rollout: time beyond the {PLAIN}'s, share", 0.05),
    ]


@needs_mosquitto
async def test_bus_and_bare_clients_do_the_same_work_over_one_broker() -> None:
    result = await run.bench_bus(BusBench(workloads=run.MQTT, repeats=1, amounts=SMALL), lambda text: None)
    assert {(row.size, row.name): row.tokens for row in result.rows} == {
        (size, name): 8 for size in run.MQTT for name in (OVER_MQTT, AIOMQTT)
    }
    assert [(target.name, target.goal) for target in result.targets] == [
        (f"{size}: {OVER_MQTT} / {AIOMQTT}", 0.85) for size in run.MQTT
    ]


async def test_without_a_broker_its_rows_say_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "mosquitto", lambda: None)
    result = await run.bench_bus(BusBench(workloads=run.MQTT, repeats=1, amounts=SMALL), lambda text: None)
    assert [(row.size, row.name, row.note) for row in result.rows] == [
        (size, name, "needs mosquitto: make mosquitto") for size in run.MQTT for name in (OVER_MQTT, AIOMQTT)
    ]
    assert [(target.value, target.note) for target in result.targets] == [(None, "needs mosquitto: make mosquitto")] * 2
    assert result.exit_code == 0


def test_left_out_is_not_missing() -> None:
    without = BusBench(without=frozenset({"autogen"}))
    assert field.absent_rows(AUTOGEN, without) == {}
    assert field.why_absent(AUTOGEN, without) == ""
    _, times = run._targets("request", Field(competitors=()), {OURS: timing(1.0)})
    assert (times.value, times.met, times.note) == (None, None, "left out")


def timing(seconds: float, cpu_s: float = 1.0) -> Timing:
    return Timing((100,), (seconds,), (cpu_s,))


@pytest.mark.parametrize(("seconds", "is_met"), [(1.04, True), (1.06, False), (0.9, True)])
def test_the_overhead_is_what_a_rollout_takes_beyond_the_plain_loop(seconds: float, is_met: bool) -> None:
    timings = {ROLLOUT: timing(seconds), PLAIN: timing(1.0)}
    (target,) = run._targets("rollout", Field(competitors=()), timings)
    assert target.value == pytest.approx(seconds - 1)
    assert target.met is is_met


def test_growth_compares_the_most_agents_with_the_next_fewer() -> None:
    few, many = Agents(2, 4), Agents(4, 4)
    measures = {Agents(1, 4).name: {"bytes": 1.0}, few.name: {"bytes": 1000.0}, many.name: {"bytes": 1600.0}}
    held = Field(competitors=(Agents(1, 4), few, many), measures=measures)
    time, memory = run._targets("agents", held, {few.name: timing(2.0), many.name: timing(2.5)})
    assert (time.value, time.met) == (1.25, True)
    assert (memory.value, memory.met) == (1.6, False)


def test_ratios_to_others_are_targets_where_they_ran() -> None:
    # 100 units in 1 s of CPU are 10,000 µs each.
    timings = {OURS: timing(1.0), AUTOGEN: timing(6.0)}
    cpu, times = run._targets("request", Field(competitors=()), timings)
    assert (cpu.value, cpu.met) == (10_000.0, False)
    assert (times.name, times.value, times.met) == (f"request: {OURS} / {AUTOGEN}", 6.0, True)
    assert run._targets("fan_out", Field(competitors=()), timings) == []
    graph = run._targets("graph", Field(competitors=()), {FLOW: timing(1.0), LANGGRAPH: timing(7.0)})
    assert (graph[1].value, graph[1].goal, graph[1].met) == (7.0, 8.0, False)


async def test_the_plain_loop_makes_the_calls_of_the_rollout_with_the_same_ones_together() -> None:
    async with open_rollouts(SMALL) as (rollouts, plain):
        await rollouts.run(1)
        waves = [sorted(request.prompt_ids for request in wave) for wave in rollouts._engine.waves]
        assert [len(wave) for wave in waves][::3] == [1, 1]
        assert await plain.run(1) == sum(len(wave) for wave in waves)
        again = [sorted(request.prompt_ids for request in wave) for wave in plain._engine.waves]
        assert again == waves


def test_the_script_solves_the_task() -> None:
    assert say("PB>", None, 0) == "b"
    assert say("E0123;b>", None, 0) == "1"


def test_a_wrong_answer_voids_the_measurement() -> None:
    check_echo("same", "same")
    with pytest.raises(RunError, match="an answer of 3 characters came to a request of 4"):
        check_echo("sam", "same")
    check_digit(Action(text="1"), "1")
    for action in (None, Action(text="2")):
        with pytest.raises(RunError, match="instead of '1'"):
            check_digit(action, "1")


async def test_deliveries_are_counted_and_none_too_many() -> None:
    arrivals = Arrivals(3)
    arrivals.expect(2)
    arrivals.count("abc")
    with pytest.raises(RunError, match="not sent like this"):
        arrivals.count("ab")
    arrivals.count("abc")
    await arrivals.all_here()
    with pytest.raises(RunError, match="not sent like this"):
        arrivals.count("abc")


async def test_requests_and_messages_go_through_the_bus() -> None:
    async with open_requests(SMALL, 4) as requests, open_fan_out(SMALL) as fan_out:
        await requests.run(0)
        await fan_out.run(0)
        # A request is a message and its answer.
        assert requests._bus.statistics().delivered == 16
        assert fan_out._bus.statistics().delivered == 16


@pytest.mark.skipif(find_spec("autogen_core") is None, reason="autogen-core is not installed")
async def test_autogen_does_the_same_work() -> None:
    async with run.open_field("request", BusBench(amounts=SMALL)) as requests:
        assert [await one.run(0) for one in requests.competitors] == [8, 8]
    async with run.open_field("fan_out", BusBench(amounts=SMALL)) as fan_out:
        assert [await one.run(0) for one in fan_out.competitors] == [16, 16]


@pytest.mark.skipif(find_spec("langgraph") is None, reason="langgraph is not installed")
async def test_langgraph_does_the_same_work() -> None:
    async with run.open_field("graph", BusBench(amounts=SMALL)) as graph:
        assert [await one.run(0) for one in graph.competitors] == [3, 3, 3]


def test_nothing_of_it_loads_a_tensor_library() -> None:
    code = (
        "import asyncio, sys\n"
        "from benchmarks.bus.options import Amounts, BusBench\n"
        "from benchmarks.bus.run import bench_bus\n"
        "small = Amounts(requests=4, in_flight=4, messages=4, runs=1, agents=(1, 2), tasks=1, call_s=0.001)\n"
        "options = BusBench(repeats=1, without=frozenset({'autogen', 'langgraph'}), amounts=small)\n"
        "asyncio.run(bench_bus(options, lambda text: None))\n"
        "print(*sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert not {"torch", "transformers", "peft"} & set(done.stdout.split())
