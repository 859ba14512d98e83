"""`mas bench scale`: what is played and counted, targets, what cannot be asked, and the command."""

import asyncio
import json
import os
import sys
import time
from collections.abc import AsyncIterator, Callable
from itertools import islice
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import msgspec
import pytest

from benchmarks.result import Result
from benchmarks.rounds import Timing
from benchmarks.scale import run
from benchmarks.scale.options import Amounts, ScaleBench
from benchmarks.scale.processes import found_by_workers
from benchmarks.scale.rollouts import (
    ONE_PROCESS,
    ONE_WORKER,
    ORDERS,
    PROCESSES,
    STEPS,
    Steps,
    WorkerCpu,
    check,
    orders_of,
)
from benchmarks.scale.worker import ScriptedSetup, ScriptedWorker, make, open_player, say
from mas.config.load import load_config
from mas.core.errors import MissingPackage, RunError
from mas.core.records import Episode
from mas.runtime.team import TeamRuntime
from mas.training.rollout import Rollout

Mas = Callable[..., Any]
SMALL = Amounts(steps=1, turns=1, tasks=2, orders=2, bases=0)
SETUP = ScriptedSetup(config=load_config(("scenario=relay", "train.tasks_per_step=2")).model_dump_json(), call_s=0.001)


@pytest.fixture
async def player() -> AsyncIterator[tuple[Rollout, TeamRuntime]]:
    async with open_player(SETUP) as opened:
        yield opened


@pytest.fixture(scope="module")
def result() -> Result:
    options = ScaleBench(kinds=("local",), workers=(1, 2), latency_ms=1, repeats=1, amounts=SMALL)
    return asyncio.run(run.bench_scale(options, lambda text: None))


@pytest.mark.nightly(of=16)
def test_workers_play_what_one_process_plays_and_as_many_orders_as_there_are_workers(result: Result) -> None:
    assert [(row.size, row.name, row.tokens) for row in result.rows] == [
        (f"local, {STEPS}", ONE_PROCESS, 2),
        (f"local, {STEPS}", ONE_WORKER, 2),
        (f"local, {ORDERS}", "workers: 1", 2),
        (f"local, {ORDERS}", "workers: 2", 4),
        (f"local, {PROCESSES}", "scripted engine", 0),
    ]
    *played, processes = result.rows
    assert all(row.measures[run.CPU] > 0 for row in played)
    assert [run.WORKER_CPU in row.measures for row in played] == [False, True, False, False]
    assert set(processes.measures) == {"open_s", "first_s", "next_1_s", "rss_mib"}
    assert 20 < processes.measures["rss_mib"] < 200, "a worker without weights loads no tensor library"
    assert processes.measures["open_s"] < processes.measures["first_s"]
    assert [target.name for target in result.targets] == [
        "local: overhead of one worker beside one process",
        "local: 2 workers, orders per second / linear",
    ]
    assert all(target.met is not None for target in result.targets)


def test_a_target_is_met_or_missed_by_what_was_measured() -> None:
    # One process takes 1 s for 10 tasks, a worker 1.05 s; 8 workers make 7.2 times as many orders a second as one.
    timings = {
        ONE_PROCESS: Timing((10,), (1.0,)),
        ONE_WORKER: Timing((10,), (1.05,)),
        "workers: 1": Timing((10,), (1.0,)),
        "workers: 8": Timing((72,), (1.0,)),
    }
    options = ScaleBench(workers=(1, 8))
    overhead, scaling = run._targets("local", options, timings)
    assert overhead.value == pytest.approx(0.05)
    assert scaling.value == pytest.approx(0.9)
    assert overhead.met
    overhead, scaling = run._targets(
        "local", options, timings | {ONE_WORKER: Timing((10,), (1.2,)), "workers: 8": Timing((70,), (1.0,))}
    )
    assert (overhead.met, scaling.met) == (False, False)
    assert len(run._targets("local", ScaleBench(workers=(1,)), timings)) == 1


def test_a_kind_that_is_not_installed_is_not_measured_and_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(options: object, logs: object) -> None:
        raise MissingPackage("kind=ray needs the package 'ray'")

    monkeypatch.setattr(run, "open_cluster", missing)
    result = asyncio.run(run.bench_scale(ScaleBench(kinds=("ray",), amounts=SMALL), lambda text: None))
    assert {row.note for row in result.rows} == {"not installed: kind=ray needs the package 'ray'"}
    assert [(target.met, target.note) for target in result.targets] == [(None, "not installed")] * 2
    assert result.exit_code == 0


async def test_a_worker_plays_an_order_as_this_process_does(player: tuple[Rollout, TeamRuntime]) -> None:
    rollout, runtime = player
    order = next(orders_of(rollout, 1))
    worker = await make(msgspec.json.encode(SETUP))
    assert isinstance(worker, ScriptedWorker)
    played = await worker.play(msgspec.json.encode(order))
    await worker.close()
    here = await rollout.play_order(runtime, order)
    assert msgspec.msgpack.decode(played, type=list[Episode]) == list(here)
    (episode,) = here
    assert len({turn.completion_ids for turn in episode.turns}) > 2, "candidates differ"


async def test_orders_of_two_rounds_differ(player: tuple[Rollout, TeamRuntime]) -> None:
    first, second = (list(islice(orders_of(player[0], number), 5)) for number in (0, 1))
    assert len({(order.pick, order.seed) for order in (*first, *second)}) == 10


async def test_a_task_that_records_nothing_voids_the_measurement(player: tuple[Rollout, TeamRuntime]) -> None:
    rollout, runtime = player
    assert await Steps("x", rollout, runtime, 2).run(0) == 4
    (episode,) = await rollout.play_order(runtime, next(orders_of(rollout, 0)))
    with pytest.raises(RunError, match="recorded nothing: broken"):
        check([msgspec.structs.replace(episode, status="failed", cause="broken")])


def test_cpu_time_of_a_worker_is_that_of_its_process() -> None:
    class Here:
        pid = os.getpid()

    class Gone:
        pid = None

    assert WorkerCpu([Here(), Gone()]).seconds() == pytest.approx(time.process_time(), abs=0.1)  # type: ignore[list-item]  # stand-ins for handles


def test_the_script_says_what_the_roles_may_say() -> None:
    assert {say("PB>", None, seed) for seed in range(40)} == set("abcd")
    assert {say("E4071;b>", None, seed) for seed in range(40)} == set("4071")


def test_workers_find_the_benchmarks_and_the_path_is_as_before() -> None:
    before = list(sys.path)
    with found_by_workers():
        assert (Path(sys.path[0]) / "benchmarks" / "scale").is_dir()
    assert sys.path == before


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch, result: Result) -> list[ScaleBench]:
    """What the benchmark was asked."""
    seen: list[ScaleBench] = []

    async def found(options: ScaleBench, tell: Callable[[str], None]) -> Result:
        seen.append(options)
        return msgspec.structs.replace(result, targets=())

    monkeypatch.setattr(run, "bench_scale", found)
    return seen


@pytest.mark.nightly
def test_options_arrive_and_files_are_written(asked: list[ScaleBench], mas: Mas, tmp_path: Path) -> None:
    mas("bench", "scale")
    path = tmp_path / "found.json"
    words = ("--kinds", "ray", "--workers", "1, 3", "--latency-ms", "5", "--repeats", "2", "--json", str(path))
    out = mas("bench", "scale", *words).out
    assert asked == [ScaleBench(), ScaleBench(kinds=("ray",), workers=(1, 3), latency_ms=5, repeats=2)]
    assert asked[0].kinds == ("local", "ray")
    assert json.loads(path.read_text())["bench"] == "scale"
    assert "rss mib" in out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--kinds", "lokal"), "--kinds lokal: there is no such kind of cluster. Did you mean 'local'?"),
        (("--kinds", "ray,ray"), "--kinds ray,ray: give each kind once, of local, ray"),
        (("--kinds", ","), "give each kind once"),
        (("--workers", "2,4"), "--workers 2,4: give different numbers, 1 among them"),
        (("--workers", "0,1"), "--workers 0,1: give different numbers, 1 among them"),
        (("--workers", "1,two"), "--workers 1,two: give whole numbers with commas between"),
        (("--latency-ms", "0"), "--latency-ms 0: give milliseconds above 0"),
        (("--json", "none/found.json"), "none/found.json cannot be written"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(
    words: tuple[str, ...], text: str, mas: Mas, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "bench_scale", bench := AsyncMock())
    ran = mas("bench", "scale", *words)
    assert ran.code == 2
    assert text in ran.err
    assert ran.err.count("\n") == 1
    assert not bench.called
