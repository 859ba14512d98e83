"""Samplers with a team that calls tools: branches of a tree are told the same, and no equal call is made twice."""

import json
import os
import sqlite3
from collections.abc import Sequence
from pathlib import Path

import pytest
import yaml

pytest.importorskip("mcp", reason="needs the extra mcp")

from parts import groups_of, sample, turns_of
from rich.console import Console
from tool_teams import good, hostile, team_with

from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.bus.memory import MemoryBus
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.records import Episode
from mas.graph import compile_team
from mas.observe.metrics import read_metrics
from mas.roles import build_roles
from mas.runs.train import train_in_directory
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine
from mas.tools.recorded import open_tools
from mas.training.batch import train_rows

NAMES = ["good.add", "good.count"]


def says(prompt: str, adapter: str | None, seed: int) -> str:
    """Two calls, one of them always equal, and then the last digit of what it was told."""
    told = [line for line in prompt.splitlines() if line.startswith("clerk says: ")]
    if len(told) == 2:
        return told[-1][-1]
    name, arguments = ("good.count", {}) if told or seed % 2 else ("good.add", {"a": 1, "b": seed % 3})
    return json.dumps({"name": name, "arguments": arguments})


async def sampled(log: Path, record: Path, mode: str) -> Sequence[Episode]:
    team, scenario = team_with(good(log), NAMES), build_scenario(ScenarioOptions(name="relay"))
    engine = ScriptedEngine(says, ["solver"], context=20_000)
    options = SamplerOptions(mode=mode, candidates=3)
    bus, plan = MemoryBus(), compile_team(team, build_roles(team))
    async with (
        open_tools(team, record) as tools,
        TeamRuntime(plan, engine, bus, adapters={"solver": "solver"}, chats=True, tools=tools) as runtime,
    ):
        episodes = await sample(runtime, scenario, range(2), options)
    await bus.close()
    return episodes


def calls_of(record: Path) -> list[tuple[str, str, str, int]]:
    base = sqlite3.connect(record)
    try:
        return base.execute("SELECT episode, tool, arguments, number FROM calls ORDER BY id").fetchall()
    finally:
        base.close()


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("mode", ["tree", "parallel"])
async def test_an_equal_call_is_made_once_and_a_second_life_makes_none(
    mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))
    log, record = tmp_path / "log", tmp_path / "calls.sqlite"
    episodes = await sampled(log, record, mode)
    assert [episode.cause for episode in episodes] == [None] * len(episodes)
    made = log.read_text().splitlines()
    calls = calls_of(record)
    assert len(made) == len(calls) == len(set(calls)) > 2
    turns = turns_of(episodes)
    told = [turn for turn in turns if turn.role == "clerk"]
    assert told
    assert {len(turn.completion_ids) for turn in told} == {0}
    if mode == "tree":
        groups = groups_of([turn for turn in turns if turn.role == "solver"]).values()
        assert {len(members) for members in groups} == {3}
        assert len({episode for episode, *_ in calls}) == 2
    rows = train_rows(turns, [1.0] * len(turns), {"solver": "solver"}, aggregation="token_mean", max_length=400)
    assert {row.turn.role for row in rows} == {"solver"}
    assert await sampled(log, record, mode) == episodes  # the record has it all
    assert log.read_text().splitlines() == made


CLOCK = json.dumps({"name": "code.python", "arguments": {"source": "import time; print(time.time_ns())"}})


@pytest.mark.parametrize("mode", ["tree", "parallel"])
async def test_branches_and_a_second_life_are_told_the_same_by_a_program_that_says_the_time(
    mode: str, tmp_path: Path
) -> None:
    team, scenario = team_with({"sandbox": {}}, ["code.python"], "code"), build_scenario(ScenarioOptions(name="relay"))
    options = SamplerOptions(mode=mode, candidates=3)

    def clock(prompt: str, adapter: str | None, seed: int) -> str:
        return "7" if "clerk says: " in prompt else CLOCK

    async def episodes() -> Sequence[Episode]:
        bus, plan = MemoryBus(), compile_team(team, build_roles(team))
        engine = ScriptedEngine(clock, ["solver"], context=20_000)
        async with (
            open_tools(team, tmp_path / "calls.sqlite") as tools,
            TeamRuntime(plan, engine, bus, adapters={"solver": "solver"}, chats=True, tools=tools) as runtime,
        ):
            found = await sample(runtime, scenario, [0], options)
        await bus.close()
        return found

    first = await episodes()
    told = {turn.text for turn in turns_of(first) if turn.role == "clerk"}
    assert all(text.isdigit() for text in told)
    assert len(told) == len({turn.episode for turn in turns_of(first)}), "one time for each episode"
    assert await episodes() == first


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bad", "code"])
def test_a_team_with_tools_is_trained_and_what_it_called_is_in_its_run(
    name: str, tmp_path: Path, small_overrides: tuple[str, ...]
) -> None:
    server, tool = (hostile(""), "bad.go") if name == "bad" else ({"sandbox": {}}, "code.python")
    team = team_with(server, [tool], name).model_dump(mode="json", exclude_defaults=True)
    template = {"template": "S{table};{goal}>", "max_tokens": 1, "context": "inbox"}
    team["roles"]["solver"] = {**team["roles"]["solver"], **template}
    path, run = tmp_path / "team.yaml", tmp_path / "run"
    path.write_text(yaml.safe_dump(team))
    short = ("train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2", f"run_dir={run}")
    for steps in (1, 2):  # the second goes on
        config = load_config(
            ["scenario=relay", f"algorithm.team={path}", f"train.steps={steps}", *short, *small_overrides]
        )
        train_in_directory(config, build_scenario(config.scenario), console=Console(quiet=True))
    assert [line["step"] for line in read_metrics(run / "metrics.jsonl") if "reward" in line] == [1, 2]
    assert (run / "tool_calls.sqlite").is_file()
