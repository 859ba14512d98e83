"""Teams that hand out lists and hold teams are sampled like others; those with time limits are not trained."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import yaml
from parts import groups_of, runtime_of, sample, turns_of

from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.environment import Move
from mas.core.errors import ConfigError
from mas.core.records import Turn
from mas.core.team import TeamSpec
from mas.graph.load import load_team
from mas.runs.resolve import resolve
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine
from mas.training.check_setup import check_trainable
from mas.training.sampling.chains import play_once

PAIR = {
    "name": "pair",
    "roles": {
        "planner": {"type": "planner", "emits": "items", "template": "P>", "max_tokens": 16},
        "worker": {"template": "W{from.planner}>", "view": "executor", "max_tokens": 8},
        "summary": {"template": "S{from.worker}>", "view": "executor", "max_tokens": 8},
    },
    "edges": ["start -> planner", "planner -> worker map", "worker -> summary", "summary -> done"],
    "output": "summary",
}
TEAM = {
    "name": "t",
    "roles": {"executor": {"type": "executor", "template": "E{from.solve}>", "max_tokens": 8}},
    "agents": {"solve": {"team": PAIR}, "executor": "executor"},
    "edges": ["start -> solve", "solve -> executor", "executor -> done"],
    "output": "executor",
}


def team(**changes: object) -> TeamSpec:
    return load_team(TEAM | changes)


def answers(prompt: str, adapter: str | None, seed: int) -> str:
    """The planner lists three letters; everybody else repeats what was heard, without the first letter."""
    return "a\nb\nc" if prompt == "P>" else prompt[1:-1].replace("\n", "")[:8]


@pytest.mark.parametrize("mode", ["tree", "parallel"])
async def test_every_instance_is_a_decision_of_its_own_role(mode: str) -> None:
    scenario = build_scenario(ScenarioOptions(name="relay"))
    options = SamplerOptions.model_validate({"mode": mode, "candidates": 2})
    async with runtime_of(team(), ScriptedEngine(answers)) as runtime:
        episodes = await sample(runtime, scenario, [0], options)
    assert [episode.cause for episode in episodes] == [None] * len(episodes)
    turns = turns_of(episodes)
    assert {len(members) for members in groups_of(turns).values()} == {2}
    spoken: dict[str, Turn] = {turn.agent: turn for turn in turns}
    assert {agent: turn.role for agent, turn in spoken.items()} == {
        "solve.planner": "planner",
        **{f"solve.worker[{number}]": "worker" for number in range(3)},
        "solve.summary": "summary",
        "executor": "executor",
    }
    assert [spoken[f"solve.worker[{number}]"].text for number in range(3)] == ["a", "b", "c"]
    assert spoken["solve.summary"].text == "1. a2. b"


class Judging:
    """Pays nothing, and keeps what it is told: who spoke, what it said, and who had spoken before."""

    terms: tuple[str, ...] = ()

    def __init__(self) -> None:
        self.moves: dict[str, tuple[str, str, tuple[str, ...]]] = {}

    def own(self, move: Move) -> Mapping[str, float]:
        self.moves[move.agent] = (move.role, move.output.content, tuple(sorted(move.before)))
        return {}


@pytest.mark.parametrize("mode", ["tree", "parallel"])
async def test_a_reward_is_told_which_instance_spoke(mode: str) -> None:
    scenario, reward = build_scenario(ScenarioOptions(name="relay")), Judging()
    object.__setattr__(scenario, "reward", reward)
    options = SamplerOptions.model_validate({"mode": mode, "candidates": 2})
    async with runtime_of(team(), ScriptedEngine(answers)) as runtime:
        await sample(runtime, scenario, [0], options)
    workers = {f"solve.worker[{at}]": ("worker", said, ("solve.planner",)) for at, said in enumerate("abc")}
    assert {agent: told for agent, told in reward.moves.items() if told[0] == "worker"} == workers
    assert reward.moves["solve.summary"][2] == ("solve.planner", "solve.worker")
    assert reward.moves.keys() == {*workers, "solve.planner", "solve.summary", "executor"}


async def test_such_a_team_plays_an_episode() -> None:
    scenario = build_scenario(ScenarioOptions(name="relay"))
    async with runtime_of(team(), ScriptedEngine(answers)) as runtime:
        episode = await play_once(runtime, scenario.environment(), scenario.task("eval", 0), 1)
    assert episode.status == "done"
    agents = [line.agent for line in episode.lines]
    assert agents[1:4] == [f"solve.worker[{number}]" for number in range(3)]
    assert [line.text for line in episode.lines][-1] == "1. a2. b"


def test_a_team_with_a_time_limit_is_not_trained(tmp_path: Path) -> None:
    path = tmp_path / "timed.yaml"
    timed = {
        "name": "timed",
        "roles": {name: {"type": "executor", "view": "executor"} for name in ("a", "b", "judge")},
        "edges": ["start -> a", "start -> b", "a -> judge", "b -> judge", "judge -> done"],
        "joins": {"judge": {"timeout_s": 5}},
        "output": "judge",
    }
    path.write_text(yaml.safe_dump(timed))
    scenario = build_scenario(ScenarioOptions(name="relay"))
    with pytest.raises(
        ConfigError, match=r"'timed' has a time limit at the join of 'judge' \(5 s\).*remove 'timeout_s'"
    ):
        check_trainable(resolve(load_config(["scenario=relay", f"algorithm.team={path}"]), scenario))
