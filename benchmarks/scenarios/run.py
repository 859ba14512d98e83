"""Running `mas bench scenarios`: every scenario in turn, its operations interleaved."""

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace
from random import Random
from statistics import median

from benchmarks.machine import describe, load
from benchmarks.result import LEFT_OUT, Result, Row, Target
from benchmarks.rounds import Competitor, Timing, take_turns
from benchmarks.scenarios.options import (
    CALLS,
    CLONE,
    OPERATIONS,
    RESTORE,
    ROLLOUT,
    SNAPSHOT,
    STEP,
    Amounts,
    ScenariosBench,
)
from benchmarks.scenarios.rollout import Rollouts, open_rollouts
from benchmarks.scenarios.worlds import STATES, Operation, Walk
from mas.core.environment import random_script
from mas.core.errors import MissingPackage
from mas.core.scenario import Scenario
from mas.scenarios import build_scenario
from mas.scenarios.catalogue import sized
from mas.scenarios.world import expert_of

Tell = Callable[[str], None]
Timings = Mapping[str, Timing]

CPU = "cpu_us"
"""Measure: CPU microseconds of this process per operation or call, median over rounds."""
BYTES = "bytes"
"""Measure: length of a snapshot, median over states."""
OUTSIDE = "outside_engine"
"""Measure: share of a rollout's time in which no call of the engine was under way, median over rounds."""

STEPS_GOAL = 1000.0
CLONE_CPU_GOAL = 200.0
OUTSIDE_GOAL = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One scenario's operations, ready to run.

    Attributes:
        absent: row -> why it cannot run here.
        measures: row -> what else was found, by name with its unit in it.
    """

    competitors: tuple[Competitor, ...] = ()
    absent: Mapping[str, str] = field(default_factory=dict)
    measures: Mapping[str, Mapping[str, float]] = field(default_factory=dict)


async def bench_scenarios(options: ScenariosBench, tell: Tell) -> Result:
    """Measure every scenario.

    Raises:
        RunError: a rollout failed, so that its time means nothing.
    """
    load_before = load()
    rows: list[Row] = []
    targets: list[Target] = []
    for name in options.scenarios:
        tell(f"{name}:")
        async with _open_known(name, options) as held:
            timings = await take_turns(held.competitors, options.repeats, tell) if held.competitors else {}
            outside = _outside(held)
        rows += _rows(name, held, timings, outside)
        targets += _targets(name, held, timings, outside)
    return Result(
        bench="scenarios",
        machine=describe(load_before=load_before, threads=0, device="cpu", packages=("msgspec",)),
        workload={"scenarios": list(options.scenarios), "size": options.size} | asdict(options.amounts),
        rows=tuple(rows),
        targets=tuple(targets),
    )


@asynccontextmanager
async def _open_known(name: str, options: ScenariosBench) -> AsyncIterator[Field]:
    """As `open_field`; nothing can be measured of a scenario whose package is not installed."""
    try:
        scenario = build_scenario(sized(name, options.size))
        scenario.task("train", 0)
    except MissingPackage as error:
        yield Field(absent=dict.fromkeys((STEP, CLONE, SNAPSHOT, RESTORE, ROLLOUT), str(error)))
        return
    async with open_field(scenario, options) as held:
        yield held


@asynccontextmanager
async def open_field(scenario: Scenario, options: ScenariosBench) -> AsyncIterator[Field]:
    """What can be measured of a scenario."""
    environment = scenario.environment()
    environment.reset(scenario.task("train", 0))
    is_listed = random_script(environment, Random(0)) is not None
    policy = random_script if is_listed else expert_of(scenario)
    if policy is None:
        why = "its actions cannot be listed, and it has no expert"
        worlds = Field(absent=dict.fromkeys((STEP, CLONE, SNAPSHOT, RESTORE), why))
    else:
        worlds = _operations(Walk(scenario, policy), options.amounts)
    if ROLLOUT in options.without:
        yield worlds
    elif len(environment.spec.seats) > 1:
        yield replace(worlds, absent={**worlds.absent, ROLLOUT: "several seats, and a rollout plays one"})
    else:
        async with open_rollouts(scenario, options.amounts) as rollouts:
            yield replace(worlds, competitors=(*worlds.competitors, rollouts))


def _operations(walk: Walk, amounts: Amounts) -> Field:
    """What environments do, each on states that the walk came to."""
    states = walk.states()
    snapshots = [state.snapshot() for state in states]
    restored = states[0].clone()
    operations = (
        Operation(STEP, amounts, walk.step),
        Operation(CLONE, amounts, lambda number: states[number % STATES].clone()),
        Operation(SNAPSHOT, amounts, lambda number: states[number % STATES].snapshot()),
        Operation(RESTORE, amounts, lambda number: restored.restore(snapshots[number % STATES])),
    )
    return Field(competitors=operations, measures={SNAPSHOT: {BYTES: median(map(len, snapshots))}})


def _outside(held: Field) -> float | None:
    """The share of its rollouts that no call was under way, the warm-up left out; None: there was none."""
    rollouts = [one for one in held.competitors if isinstance(one, Rollouts)]
    return median(rollouts[0].outside[1:]) if rollouts else None


def _rows(scenario: str, held: Field, timings: Timings, outside: float | None) -> list[Row]:
    """A row per operation, ratios to the first."""
    first = next(iter(timings.values()), None)
    rows = [
        Row.measured(
            name,
            scenario,
            0,
            timing,
            first or timing,
            {CPU: timing.cpu_us}
            | dict(held.measures.get(name, {}))
            | ({OUTSIDE: outside} if name == ROLLOUT and outside is not None else {}),
            CALLS if name == ROLLOUT else OPERATIONS,
        )
        for name, timing in timings.items()
    ]
    return [
        *rows,
        *(Row(name=name, size=scenario, parameters=0, note=why, unit=OPERATIONS) for name, why in held.absent.items()),
    ]


def _targets(scenario: str, held: Field, timings: Timings, outside: float | None) -> list[Target]:
    """What is promised of every environment, measured or not."""
    steps = median(timings[STEP].rates) if STEP in timings else None
    clone = timings[CLONE].cpu_us if CLONE in timings else None
    why = {name: "" if name in timings else held.absent.get(name, LEFT_OUT) for name in (STEP, CLONE, ROLLOUT)}
    return [
        Target.at_least(f"{scenario}: steps a second", steps, STEPS_GOAL, why[STEP]),
        Target.at_most(f"{scenario}: clone, CPU µs", clone, CLONE_CPU_GOAL, why[CLONE]),
        Target.at_most(f"{scenario}: rollout outside the engine, share", outside, OUTSIDE_GOAL, why[ROLLOUT]),
    ]
