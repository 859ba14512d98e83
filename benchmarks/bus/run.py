"""Running `mas bench bus`: every workload in turn, its competitors side by side."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import asdict

from benchmarks.bus.agents import Agents
from benchmarks.bus.field import Field, absent_rows, why_absent
from benchmarks.bus.graph import FLOW, TokenFlow, open_episode
from benchmarks.bus.messages import OURS, open_fan_out, open_requests
from benchmarks.bus.mosquitto import mosquitto, open_mosquitto
from benchmarks.bus.mqtt import (
    OVER_MQTT,
    open_bare_one_way,
    open_bare_requests,
    open_mqtt_one_way,
    open_mqtt_requests,
)
from benchmarks.bus.options import AIOMQTT, AUTOGEN, LANGGRAPH, WORKLOADS, Amounts, BusBench
from benchmarks.bus.rollout import PLAIN, ROLLOUT, open_rollouts
from benchmarks.machine import describe, load
from benchmarks.result import LEFT_OUT, Result, Row, Target
from benchmarks.rounds import Competitor, Timing, ratio, take_turns

Tell = Callable[[str], None]
Timings = Mapping[str, Timing]

MQTT = ("mqtt_request", "mqtt_one_way")
CPU = "cpu_us"
"""Measure: CPU microseconds of this process per unit of work, median over rounds."""
BYTES = "bytes"
"""Measure: memory allocated by Python per agent."""

REQUEST_CPU_GOAL = 25.0
AUTOGEN_GOAL = 5.0
GRAPH_CPU_GOAL = 60.0
LANGGRAPH_GOAL = 8.0
AIOMQTT_GOAL = 0.85
GROWTH_GOAL = 1.5
"""An agent among the most / one among a tenth as many: time, and memory."""
OVERHEAD_GOAL = 0.05


async def bench_bus(options: BusBench, tell: Tell) -> Result:
    """Measure every workload.

    Raises:
        RunError: somebody's answers were wrong, so that its speed means nothing.
    """
    load_before = load()
    rows: list[Row] = []
    targets: list[Target] = []
    for name in options.workloads:
        tell(f"{name}:")
        async with open_field(name, options) as field:
            timings = await take_turns(field.competitors, options.repeats, tell) if field.competitors else {}
        rows += _rows(name, field, timings)
        targets += _targets(name, field, timings)
    return Result(
        bench="bus",
        machine=describe(load_before=load_before, threads=0, device="cpu", packages=(AUTOGEN, LANGGRAPH, AIOMQTT)),
        workload={"workloads": list(options.workloads)} | asdict(options.amounts),
        rows=tuple(rows),
        targets=tuple(targets),
    )


@asynccontextmanager
async def open_field(workload: str, options: BusBench) -> AsyncIterator[Field]:
    """Everybody who takes part in a workload, ready to run."""
    amounts = options.amounts
    async with AsyncExitStack() as stack:
        if workload == "agents":
            yield await _agents(amounts)
        elif workload == "rollout":
            yield Field(competitors=await stack.enter_async_context(open_rollouts(amounts)))
        elif workload == "graph":
            yield await _graph(options, stack)
        elif workload in MQTT:
            yield await _mqtt(workload, amounts, stack)
        else:
            yield await _messages(workload, options, stack)


async def _messages(workload: str, options: BusBench, stack: AsyncExitStack) -> Field:
    amounts = options.amounts
    in_flight = 1 if workload == "one_by_one" else amounts.in_flight
    is_fan_out = workload == "fan_out"
    found: list[Competitor] = [
        await stack.enter_async_context(open_fan_out(amounts) if is_fan_out else open_requests(amounts, in_flight))
    ]
    if why_absent(AUTOGEN, options) is None:
        from benchmarks.bus.autogen import open_autogen_fan_out, open_autogen_requests

        other = open_autogen_fan_out(amounts) if is_fan_out else open_autogen_requests(amounts, in_flight)
        found.append(await stack.enter_async_context(other))
    return Field(competitors=found, absent=absent_rows(AUTOGEN, options))


async def _mqtt(workload: str, amounts: Amounts, stack: AsyncExitStack) -> Field:
    path = mosquitto()
    if path is None:
        return Field(competitors=(), absent=dict.fromkeys((OVER_MQTT, AIOMQTT), "needs mosquitto: make mosquitto"))
    port = await stack.enter_async_context(open_mosquitto(path))
    openings: tuple[AbstractAsyncContextManager[Competitor], ...] = (
        (open_mqtt_requests(amounts, port), open_bare_requests(amounts, port))
        if workload == "mqtt_request"
        else (open_mqtt_one_way(amounts, port), open_bare_one_way(amounts, port))
    )
    return Field(competitors=[await stack.enter_async_context(opening) for opening in openings])


async def _graph(options: BusBench, stack: AsyncExitStack) -> Field:
    runs = options.amounts.runs
    found: list[Competitor] = [TokenFlow(runs), await stack.enter_async_context(open_episode(runs))]
    if why_absent(LANGGRAPH, options) is None:
        from benchmarks.bus.langgraph import LanggraphRuns

        found.append(LanggraphRuns(runs))
    return Field(competitors=found, absent=absent_rows(LANGGRAPH, options))


async def _agents(amounts: Amounts) -> Field:
    points = [Agents(count, max(amounts.agents)) for count in amounts.agents]
    return Field(competitors=points, measures={one.name: {BYTES: await one.bytes_each()} for one in points})


def _rows(workload: str, field: Field, timings: Timings) -> list[Row]:
    """Everybody who was asked for; ratios are to the first."""
    unit = WORKLOADS[workload]
    ran = [
        Row.measured(
            name,
            workload,
            0,
            timing,
            timings[field.competitors[0].name],
            {CPU: timing.cpu_us} | dict(field.measures.get(name, {})),
            unit,
        )
        for name, timing in timings.items()
    ]
    return [
        *ran,
        *(Row(name=name, size=workload, parameters=0, note=why, unit=unit) for name, why in field.absent.items()),
    ]


def _targets(workload: str, field: Field, timings: Timings) -> list[Target]:
    """What is promised of one workload; what is promised beside others is not measured without them."""
    if workload == "rollout":
        overhead = ratio(timings[PLAIN], timings[ROLLOUT]) - 1
        return [Target.at_most(f"rollout: time beyond the {PLAIN}'s, share", overhead, OVERHEAD_GOAL)]
    if workload == "agents":
        return _growth(field, timings)
    if workload in MQTT:
        return [_times(workload, OVER_MQTT, AIOMQTT, field, timings, AIOMQTT_GOAL)]
    found = []
    if workload == "request":
        found.append(_cpu(workload, OURS, timings, REQUEST_CPU_GOAL))
    if workload == "graph":
        found.append(_cpu(workload, FLOW, timings, GRAPH_CPU_GOAL))
        found.append(_times(workload, FLOW, LANGGRAPH, field, timings, LANGGRAPH_GOAL))
    elif workload != "fan_out":
        found.append(_times(workload, OURS, AUTOGEN, field, timings, AUTOGEN_GOAL))
    return found


def _growth(field: Field, timings: Timings) -> list[Target]:
    """The largest number of agents against the one before it."""
    if len(field.competitors) < 2:
        return []
    few, many = (one.name for one in field.competitors[-2:])
    memory = field.measures[many][BYTES] / field.measures[few][BYTES]
    return [
        Target.at_most(f"agents: {many} / {few}, time of one", ratio(timings[few], timings[many]), GROWTH_GOAL),
        Target.at_most(f"agents: {many} / {few}, memory of one", memory, GROWTH_GOAL),
    ]


def _cpu(workload: str, row: str, timings: Timings, goal: float) -> Target:
    return Target.at_most(f"{workload}: {row}, CPU µs each", timings[row].cpu_us, goal)


def _times(workload: str, row: str, other: str, field: Field, timings: Timings, goal: float) -> Target:
    name = f"{workload}: {row} / {other}"
    if other not in timings:
        return Target.at_least(name, None, goal, field.absent.get(other, LEFT_OUT))
    return Target.at_least(name, ratio(timings[row], timings[other]), goal)
