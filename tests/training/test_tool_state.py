"""Tools of an environment that change it, in all samplers, after a kill and in workers: states are those of the calls
that were committed, and the rules of roles hold in every branch."""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from parts import runtime_of, sample
from run_processes import started
from test_in_flight import EXACT, Steps

from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.bus.journal import Journal
from mas.bus.memory import MemoryBus
from mas.config.options import Config, ScenarioOptions
from mas.core.environment import Caller, Environment, ToolWorld
from mas.core.errors import ConfigError, GraphError, RunError
from mas.core.messages import Payload
from mas.core.records import Episode
from mas.core.scenario import Scenario
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.graph import compile_team, load_team
from mas.graph.load import find_team
from mas.roles import build_roles
from mas.runs.resolve import resolve_training
from mas.runtime.play import DecisionPoint
from mas.runtime.replay_log import ReplayLog
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine
from mas.training.trainer import Trainer

SHELF = str(Path(__file__).parents[2] / "examples" / "shelf.py") + ":Shelf"
THINGS = ("lamp", "book", "vase", "clock")
MOST, WRONG = "Two moves are enough.", "denied: 'solo' may not call 'environment.look' so: the argument 'shelf' is 'B'"
RULES: dict[str, Any] = {
    "environment.move": {"most": 2, "arguments": {"thing": {"enum": ["lamp", "book", "vase"]}}, "instead": MOST},
    "environment.look": {"arguments": {"shelf": "A"}},
}


def team(tools: Sequence[str] = ("move", "look"), rules: Mapping[str, Any] = RULES, **more: Any) -> TeamSpec:
    solo = {
        "type": "executor",
        "view": "solo",
        "max_tokens": 200,
        "tools": [f"environment.{tool}" for tool in tools],
        "privileges": {name: rule for name, rule in rules.items() if name.partition(".")[2] in tools},
        **more,
    }
    return load_team({"name": "shelf", "protocol": "solo", "roles": {"solo": solo}})


def call(name: str, **arguments: object) -> str:
    return json.dumps({"name": name, "arguments": arguments})


def says(prompt: str, adapter: str | None, seed: int) -> str:
    """Any call, by the seed; often one that is denied."""
    draw = derive_seed("says", prompt, seed)
    if draw % 7 == 0:
        return "done"
    thing, shelf = THINGS[draw // 7 % 4], "AB"[draw // 28 % 2]
    return call("look", shelf=shelf) if draw // 56 % 4 == 0 else call("move", thing=thing, shelf=shelf)


@pytest.fixture(scope="module")
def scenario() -> Scenario:
    return build_scenario(ScenarioOptions(name=SHELF))


def replayed(scenario: Scenario, task: int, actions: Sequence[str]) -> tuple[ToolWorld, int]:
    """The world after these actions of the agent solo with its rules, worked out anew; and how many were denied."""
    world = scenario.environment()
    assert isinstance(world, ToolWorld)
    world.reset(scenario.task("train", task))
    moves = denials = 0
    for action in actions:
        called, denied = world.call_of(action), None
        if called is not None and called.name == "move":
            denied = MOST if moves == 2 or called.arguments["thing"] == "clock" else None
            moves += denied is None
        elif called is not None and called.arguments["shelf"] == "B":
            denied = f"{WRONG} and must match A"
        denials += denied is not None
        world.step_as({"team": action}, {"team": Caller("solo", denied)} if called is not None else {})
    return world, denials


class Seen:
    """Every world that a sampler has played to its end, by what was done in it."""

    def __init__(self, scenario: Scenario) -> None:
        self.worlds: list[Environment] = []
        self._scenario = scenario

    def environment(self) -> Environment:
        self.worlds.append(self._scenario.environment())
        return self.worlds[-1]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._scenario, name)


def committed(episode: Episode) -> list[str]:
    return [line.text for line in episode.lines if line.agent == "solo"]


@pytest.mark.parametrize("mode", ["tree", "parallel", "entropy_tree"])
async def test_the_world_is_what_the_committed_calls_made_of_it(scenario: Scenario, mode: str) -> None:
    seen = Seen(scenario)
    options = SamplerOptions(mode=mode, candidates=3, lookahead="episode" if mode == "tree" else "action")
    async with runtime_of(team(), ScriptedEngine(says, context=20_000)) as runtime:
        episodes = await sample(runtime, seen, range(3), options)  # type: ignore[arg-type]
        again = await sample(runtime, scenario, range(3), options)
    assert [episode.cause for episode in episodes] == [None] * len(episodes)
    assert again == episodes
    denied = Counter[bool]()
    for episode in episodes:
        task = int(episode.task.partition("-")[2])
        world, denials = replayed(scenario, task, committed(episode))
        assert episode.measures["denied_calls"] == denials
        told = [line.text for line in episode.lines if line.agent == "environment"]
        assert len(told) == denials
        assert set(told) <= {MOST, f"{WRONG} and must match A"}
        denied[denials > 0] += 1
        assert episode.success == world.success()
        if mode == "tree":
            assert seen.worlds[task].state_key() == world.state_key()
            assert seen.worlds[task].snapshot() == world.snapshot()
    assert denied[True] > 0


def made_of(world: Any) -> Any:
    """The shelf behind the environment."""
    return world._running().made


async def test_candidates_are_scored_in_worlds_of_their_own(scenario: Scenario) -> None:
    """Candidates put what is wrong on the right shelf or on the wrong one."""
    world = scenario.environment()
    world.reset(scenario.task("train", 0))
    made = made_of(world)
    wrong = [thing for thing in THINGS if made.places[thing] != made.wanted[thing]]

    def script(prompt: str, adapter: str | None, seed: int) -> str:
        left = [thing for thing in wrong if f"the {thing} stands on {made.wanted[thing]}" not in prompt]
        if not left:
            return "done"
        shelf = made.wanted[left[0]]
        return call("move", thing=left[0], shelf=shelf if seed % 2 else "AB".replace(shelf, ""))

    free = team(rules={})
    async with runtime_of(free, ScriptedEngine(script, context=20_000)) as runtime:
        options = SamplerOptions(mode="tree", candidates=8, lookahead="action")
        (episode,) = await sample(runtime, scenario, [0], options)
    assert episode.success
    finals = [turn for turn in episode.turns if turn.text == "done"]
    assert {turn.rewards["team.reward"] for turn in finals} == {1.0}
    assert episode.measures["denied_calls"] == 0


MODES: dict[str, dict[str, Any]] = {
    "tree": {"lookahead": "episode"},
    "full_tree": {},
    "parallel": {},
    "entropy_tree": {"branch": {"chains": 1, "expand": 1}},
}


@pytest.mark.parametrize("mode", MODES)
async def test_a_call_is_denied_in_every_clone_and_paid_as_one(scenario: Scenario, mode: str) -> None:
    """Every output moves one more thing to its place. With one move too few, what is said last is paid nothing."""
    world = scenario.environment()
    world.reset(scenario.task("train", 2))
    made = made_of(world)
    wrong = [thing for thing in THINGS if made.places[thing] != made.wanted[thing]]
    assert len(wrong) == 2

    def script(prompt: str, adapter: str | None, seed: int) -> str:
        said = prompt.count("result: ")
        left = wrong[said] if said < len(wrong) else None
        return "done" if left is None else call("move", thing=left, shelf=made.wanted[left]) + " " * (seed % 2)

    options = SamplerOptions.model_validate({"mode": mode, "candidates": 2, **MODES[mode]})
    for most, paid in ((len(wrong) - 1, 0.0), (len(wrong), 1.0)):
        rule = {"environment.move": {"most": most, "instead": MOST}}
        async with runtime_of(team(rules=rule), ScriptedEngine(script, context=20_000)) as runtime:
            episodes = await sample(runtime, scenario, [2], options)
        assert [episode.cause for episode in episodes] == [None] * len(episodes)
        turns = [turn for episode in episodes for turn in episode.turns]
        assert {turn.turn for turn in turns} == set(range(len(wrong) + 1))
        assert {turn.rewards["team.reward"] for turn in turns} == {paid}
        assert {episode.success for episode in episodes} == {paid == 1.0}
        assert {episode.measures["denied_calls"] for episode in episodes} == {len(wrong) - most}


PLAN = (
    call("move", thing="lamp", shelf="A"),
    call("move", thing="clock", shelf="A"),  # denied: not the clock
    call("look", shelf="B"),  # denied: not shelf B
    call("move", thing="lamp", shelf="B"),
    call("move", thing="vase", shelf="A"),  # denied: the third
    "done",
)


class Killed(Exception):
    """The process ends here."""


async def play(scenario: Scenario, world: Environment, journal: Path, lives: int | None) -> list[str]:
    """An episode with a log; `lives`: how many decisions are made before the process ends. Its actions."""
    said: list[str] = []
    asked = 0

    def script(prompt: str, adapter: str | None, seed: int) -> str:
        nonlocal asked
        asked += 1
        if lives is not None and asked > lives:
            raise Killed
        return PLAN[prompt.count("result: ")]

    plan, bus = compile_team(team(), build_roles(team())), MemoryBus()
    world.reset(scenario.task("train", 1))
    with Journal.open(journal) as log:
        engine = ScriptedEngine(script, context=20_000)
        async with TeamRuntime(plan, engine, bus, adapters={}, chats=False, log=ReplayLog(log)) as runtime:

            async def decide(point: DecisionPoint) -> Payload:
                (candidate,) = await runtime.ask(point, (5,), episode="e")
                said.append(candidate.text)
                return candidate.payload

            await runtime.play("e", world, decide, lambda turn, flow, step: None, settings={"seed": 5})
    await bus.close()
    return said


@pytest.mark.parametrize("lives", [1, 3])
async def test_a_play_that_goes_on_after_a_kill_ends_in_the_same_state(
    scenario: Scenario, tmp_path: Path, lives: int
) -> None:
    whole, first, second = (scenario.environment() for _ in range(3))
    actions = await play(scenario, whole, tmp_path / "whole", None)
    with pytest.raises(Exception, match="Killed"):
        await play(scenario, first, tmp_path / "killed", lives)
    assert await play(scenario, second, tmp_path / "killed", None) == actions
    assert (second.state_key(), second.snapshot()) == (whole.state_key(), whole.snapshot())
    assert isinstance(second, ToolWorld)
    assert actions == list(PLAN)
    denied = [one.is_denied for one in second.counted_calls()]
    assert denied == [False, True, True, False, True]


def written(tmp_path: Path, spec: Mapping[str, Any]) -> str:
    path = tmp_path / "team.yaml"
    path.write_text(yaml.safe_dump(spec))
    return str(path)


def solo_with(**solo: Any) -> dict[str, Any]:
    return {"name": "t", "protocol": "solo", "roles": {"solo": {"type": "executor", "view": "solo", **solo}}}


def test_a_tool_that_the_environment_does_not_have_is_refused(scenario: Scenario, tmp_path: Path) -> None:
    name = written(tmp_path, solo_with(tools=["environment.put"]))
    with pytest.raises(
        ConfigError, match=r"role 'solo' has the tool environment\.put; the environment has no such tool"
    ):
        find_team(scenario, name)
    other = build_scenario(ScenarioOptions(name="relay"))
    with pytest.raises(ConfigError, match=r"the environment of 'relay' has no tools that a role could have rules for"):
        find_team(other, name)


def test_who_does_not_act_has_no_tools_of_the_environment(tmp_path: Path) -> None:
    spec = load_team(
        {
            "name": "t",
            "roles": {"planner": {"tools": ["environment.move"]}, "executor": {"type": "executor"}},
            "edges": ["start -> planner", "planner -> executor", "executor -> done"],
            "output": "executor",
        }
    )
    with pytest.raises(GraphError, match=r"agent 'planner' has tools of the environment, and its output is never"):
        compile_team(spec, build_roles(spec))
    with pytest.raises(GraphError, match=r"has a description, which the environment gives: list its name alone"):
        load_team(solo_with(tools={"environment.move": "Moves."}))


async def test_a_world_without_tools_is_refused_when_it_is_played() -> None:
    other = build_scenario(ScenarioOptions(name="relay"))
    async with runtime_of(team(), ScriptedEngine(lambda *_: "U", context=20_000)) as runtime:
        (episode,) = await sample(runtime, other, [0], SamplerOptions(mode="tree", candidates=2))
    assert episode.status == "failed"
    assert RunError.__name__ in (episode.cause or "")
    assert "'relay', as it is played here, has none that can be denied" in (episode.cause or "")


def test_a_role_without_tools_of_the_environment_is_written_as_before() -> None:
    spec = load_team(solo_with())
    assert compile_team(spec, build_roles(spec)).roles["solo"].routes == ()
    assert compile_team(team(), build_roles(team())).roles["solo"].routes == ()


@pytest.mark.nightly
async def test_workers_play_what_one_process_plays_also_with_rules(base_for: Any, tmp_path: Path) -> None:
    """The tiny base calls the tools of `tool_use` in their compact form."""
    shipped = yaml.safe_load((Path(build_scenario.__code__.co_filename).parent / "tool_use" / "team.yaml").read_text())
    caller = shipped["roles"]["caller"]
    caller["tools"] = ["environment.look_up", "environment.add"]
    caller["privileges"] = {"environment.look_up": {"most": 1}, "environment.add": {"arguments": {"a": "[0-4]"}}}
    config = Config.model_validate(
        {
            "scenario": {"name": "tool_use"},
            "model": EXACT.model_dump(),
            "algorithm": {"team": written(tmp_path, shipped), "sampler": {"candidates": 3}},
            "train": {"steps": 2, "tasks_per_step": 3, "eval_tasks": 2, "eval_every": 0, "eval_first": False},
        }
    )
    base = base_for("tool_use", EXACT)
    alone, spread = Steps(), Steps()
    await Trainer(resolve_training(config), base).run(alone)
    workers = config.model_copy(update={"cluster": config.cluster.model_copy(update={"workers": 2})})
    processes = lambda: started(workers, base, tmp_path)  # noqa: E731
    await Trainer(resolve_training(workers), base, processes=processes).run(spread)
    assert spread.texts == alone.texts
    assert [dict(one.measures) for own in spread.episodes for one in own] == [
        dict(one.measures) for own in alone.episodes for one in own
    ]
    assert sum(one.measures["denied_calls"] for own in alone.episodes for one in own) > 0
