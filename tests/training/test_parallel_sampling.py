"""Parallel sampling, fan-outs, and episodes that cannot be played."""

import asyncio
from collections.abc import AsyncIterator
from typing import Literal, cast

import pytest
from conftest import BaseFor
from parts import SKILLED, advantages_of, crew_of, groups_of, make_turn, runtime_of, sample, turns_of

from mas.algorithms.parts.advantages.group import group_advantages
from mas.algorithms.parts.advantages.pipeline import AdvantageOptions, turn_advantages
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.config.options import ScenarioOptions
from mas.core.engine import Generation, Request
from mas.core.environment import Step, Task
from mas.core.errors import EngineError
from mas.core.role import RoleSpec
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine
from mas.training.evaluate import evaluate
from mas.training.sampling.chains import SingleDecision
from mas.training.sampling.parallel import ParallelSampler, _ParallelPlay
from mas.training.sampling.sampler import EpisodeRecorder
from mas.training.session import TeamSession

K = 6
PARALLEL = SamplerOptions(mode="parallel", candidates=K)
PATH = {"name": "plan_path", "options": {"size": 3, "walls": 1, "max_turns": 4}}
FAN_OUT = TeamSpec(
    name="fan_out",
    roles={
        "left": RoleSpec(type="planner", view="planner", template="L{goal}>", choices=tuple("abcd"), max_tokens=1),
        "right": RoleSpec(type="planner", view="planner", template="R{goal}>", choices=tuple("abcd"), max_tokens=1),
        "executor": RoleSpec(type="executor", template="E{table};{from.left}{from.right}>", max_tokens=1),
    },
    edges=("start -> left", "start -> right", "left -> executor", "right -> executor", "executor -> done"),
    output="executor",
)


@pytest.fixture
async def crew(base_for: BaseFor) -> AsyncIterator[TeamSession]:
    async with crew_of(build_scenario(ScenarioOptions(**PATH)), base_for(PATH, SKILLED)) as crew:
        yield crew


async def test_k_whole_episodes_are_compared_per_task_and_agent(crew: TeamSession) -> None:
    episodes = await sample(crew.runtime, crew.scenario, (0, 1), PARALLEL)
    assert len(episodes) == 2 * K
    assert len({episode.id for episode in episodes}) == 2 * K
    for group, members in groups_of(turns_of(episodes)).items():
        assert {(member.task, member.agent) for member in members} == {(group.task, group.agent)}
        assert {member.trajectory for member in members} <= {episode.id for episode in episodes}
    for episode in episodes:
        assert all(turn.chosen and turn.trajectory == episode.id for turn in episode.turns)
        assert [turn.parent for turn in episode.turns] == [None, *[turn.id for turn in episode.turns[:-1]]]
        for turn in episode.turns:
            paid = {name: value for name, value in turn.rewards.items() if name.startswith("team.")}
            assert paid == {f"team.{name}": value for name, value in episode.rewards.items()}


async def test_own_terms_are_summed_over_the_episode(crew: TeamSession) -> None:
    episodes = await sample(crew.runtime, crew.scenario, (0,), PARALLEL)
    for episode in episodes:
        failed = [turn for turn in episode.turns if turn.agent == "executor" and turn.failure]
        own = next(turn.rewards for turn in episode.turns if turn.agent == "executor")
        assert own.get("own.failure", 0.0) == -len(failed)


async def test_statistics_count_every_trajectory_once_however_long(crew: TeamSession) -> None:
    episodes = await sample(crew.runtime, crew.scenario, (0, 1, 2), PARALLEL)
    assert len({len(episode.turns) for episode in episodes}) > 1
    turns = turns_of(episodes)
    once = {(turn.group, turn.trajectory): total_reward(turn.rewards, RewardOptions()) for turn in turns}
    wanted = dict(zip(once, group_advantages(list(once.values()), [group for group, _ in once]), strict=True))
    assert advantages_of(turns) == [wanted[turn.group, turn.trajectory] for turn in turns]
    by_row = group_advantages([total_reward(turn.rewards, RewardOptions()) for turn in turns], [t.group for t in turns])
    assert advantages_of(turns) != by_row


async def test_parallel_episodes_are_the_same_for_the_same_seed(crew: TeamSession) -> None:
    first = await sample(crew.runtime, crew.scenario, (0, 1), PARALLEL)
    assert await sample(crew.runtime, crew.scenario, (0, 1), PARALLEL) == first
    assert await sample(crew.runtime, crew.scenario, (0, 1), PARALLEL, seed=1) != first


def by_seed(prompt: str, adapter: str | None, seed: int) -> str:
    """A letter or a digit, whatever is asked for."""
    letters = prompt[1:5] if prompt.startswith("E") else "abcd"
    return letters[derive_seed(prompt, seed) % 4]


@pytest.mark.parametrize("lookahead", ["action", "turn", "episode"])
async def test_the_branches_of_a_fan_out_are_each_sampled_and_played_out(lookahead: str) -> None:
    scenario = build_scenario(ScenarioOptions(name="relay"))
    options = SamplerOptions(candidates=K, lookahead=lookahead)
    runs = []
    for _ in range(2):
        async with runtime_of(FAN_OUT, ScriptedEngine(by_seed)) as runtime, asyncio.timeout(20):
            runs.append(await sample(runtime, scenario, range(6), options))
    assert runs[0] == runs[1]
    for episode in runs[0]:
        groups = groups_of(episode.turns)
        assert sorted(members[0].agent for members in groups.values()) == ["executor", "left", "right"]
        assert all(len(members) == K and len({m.prompt_ids for m in members}) == 1 for members in groups.values())
        chosen = {turn.agent: turn for turn in episode.turns if turn.chosen}
        assert chosen["left"].parent is chosen["right"].parent is None
        heard = f";{chosen['left'].text}{chosen['right'].text}>"
        assert all(line.prompt.endswith(heard) for line in episode.lines if line.agent == "executor")
        if lookahead != "action":
            assert all("team.right" in turn.rewards for turn in episode.turns)


class Hesitating(ScriptedEngine):
    """Answers prompts that begin with a letter later than all others."""

    def __init__(self, letter: str) -> None:
        super().__init__(by_seed)
        self.letter = letter

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        if self.tokenizer.decode(request.prompt_ids).startswith(self.letter):
            await asyncio.sleep(0.1)  # the other one is done in a fraction of it
        return await super().generate(request)


@pytest.mark.parametrize("mode", ["parallel", "tree"])
async def test_records_of_a_fan_out_do_not_depend_on_who_was_quick(mode: Literal["parallel", "tree"]) -> None:
    # The order of groups says which mini-batch learns from them.
    scenario, runs = build_scenario(ScenarioOptions(name="relay")), []
    for slow in "LR":
        async with runtime_of(FAN_OUT, Hesitating(slow)) as runtime, asyncio.timeout(20):
            runs.append(await sample(runtime, scenario, range(3), SamplerOptions(mode=mode, candidates=K)))
    assert runs[0] == runs[1]
    for episode in runs[0]:
        assert [line.agent for line in episode.lines] == ["left", "right", "executor"]
        assert list(dict.fromkeys(turn.agent for turn in episode.turns)) == ["left", "right", "executor"]


class Refusing(ScriptedEngine):
    """Cannot serve prompts about one key."""

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        if "RA>" in self.tokenizer.decode(request.prompt_ids):
            raise EngineError("not this one")
        return await super().generate(request)


async def test_an_episode_that_cannot_be_played_is_a_recorded_failure_also_behind_a_fan_out() -> None:
    scenario = build_scenario(ScenarioOptions(name="relay"))
    async with runtime_of(FAN_OUT, Refusing(by_seed)) as runtime:
        evaluation = await evaluate(runtime, scenario, 30)
    failed = [episode for episode in evaluation.episodes if episode.status == "failed"]
    assert 0 < len(failed) < 30
    assert {episode.cause for episode in failed} == {
        "AgentFailed: agent 'right' failed in turn 0: EngineError: not this one"
    }
    assert evaluation.success == sum(episode.success for episode in evaluation.episodes) / 30


async def test_a_failed_tree_keeps_what_was_spent_and_trains_nothing() -> None:
    scenario = build_scenario(ScenarioOptions(name="relay"))
    async with runtime_of(FAN_OUT, Refusing(by_seed)) as runtime:
        episodes = await sample(runtime, scenario, range(10), SamplerOptions(candidates=K))
    failed = [episode for episode in episodes if episode.status == "failed"]
    assert 0 < len(failed) < 10
    assert all(not episode.turns and not episode.success for episode in failed)
    assert any(episode.calls for episode in failed), "the branch that was served cost something"


class RefusingOnce(ScriptedEngine):
    """Cannot serve its seventh request."""

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        generations = await super().generate(request)
        if len(self.requests) == 7:
            raise EngineError("not this time")
        return generations


async def test_one_failed_episode_leaves_its_siblings_alone() -> None:
    scenario = build_scenario(ScenarioOptions(name="relay"))
    options = SamplerOptions(mode="parallel", candidates=K)
    async with runtime_of(FAN_OUT, RefusingOnce(by_seed)) as runtime:
        episodes = await sample(runtime, scenario, range(1), options)
    (cause,) = [episode.cause for episode in episodes if episode.status == "failed"]
    assert cause == "AgentFailed: agent 'right' failed in turn 0: EngineError: not this time"
    assert len([episode for episode in episodes if episode.status == "done"]) == K - 1


def test_turns_of_one_trajectory_share_its_advantage() -> None:
    # Two trajectories of 3 turns and 1 turn, rewards 1 and 0: mean 0.5, std (ddof 1) 0.7071: +-0.7071 for every turn.
    long = [make_turn(trajectory="long", rewards={"team.a": 1.0}) for _ in range(3)]
    turns = [*long, make_turn(trajectory="short", rewards={"team.a": 0.0})]
    advantages = turn_advantages(turns, RewardOptions(), AdvantageOptions())
    assert advantages == pytest.approx([0.707106, 0.707106, 0.707106, -0.707106], abs=1e-6)


def test_a_turn_is_paid_what_its_own_seat_was_paid() -> None:
    recorder = EpisodeRecorder.open(Task(id="t", seed=0), 0)
    spoken = [("first", 0), ("second", 1), ("first", 2)]
    recorder.turns.extend(make_turn(agent=agent, turn=turn) for agent, turn in spoken)
    play = _ParallelPlay(cast("ParallelSampler", None), recorder, cast("SingleDecision", None), 0)
    won = {"player_0": {"payoff": 2.0}, "player_1": {"payoff": -2.0}}
    play.paid = [Step(rewards={"player_0": {"payoff": 1.0}}), Step(rewards={}), Step(rewards=won)]
    found = play._shares({"first": "player_0", "second": "player_1"}, [0] * len(play.paid))
    assert found == [{"team.payoff": 1.0}, {"team.payoff": -2.0}, {"team.payoff": 2.0}]


def test_a_turn_is_paid_what_the_world_paid_until_its_agent_spoke_again() -> None:
    # The executor speaks in every team turn, the last time twice; the planner in the second and in the fourth.
    recorder = EpisodeRecorder.open(Task(id="t", seed=0), 0)
    spoken = [("executor", 0, 0), ("planner", 1, 0), ("executor", 1, 0), ("executor", 2, 0), ("planner", 3, 0)]
    spoken += [("executor", 3, 0), ("executor", 3, 1)]
    recorder.turns.extend(make_turn(agent=agent, turn=turn, visit=visit) for agent, turn, visit in spoken)
    play = _ParallelPlay(cast("ParallelSampler", None), recorder, cast("SingleDecision", None), 0)
    paid = [{"x": 1.0}, {"x": 10.0}, {"x": 100.0, "y": 5.0}, {"x": 1000.0}]
    play.paid = [Step(rewards={"team": terms}) for terms in paid]
    seats = {"executor": "team", "planner": "team"}
    found = play._shares(seats, [0] * 4)
    shares = [(agent, turn, visit, share) for (agent, turn, visit), share in zip(spoken, found, strict=True)]
    assert shares == [
        ("executor", 0, 0, {"team.x": 1.0}),
        ("planner", 1, 0, {"team.x": 1.0 + 10.0 + 100.0, "team.y": 5.0}),
        ("executor", 1, 0, {"team.x": 10.0}),
        ("executor", 2, 0, {"team.x": 100.0, "team.y": 5.0}),
        ("planner", 3, 0, {"team.x": 1000.0}),
        ("executor", 3, 0, {}),
        ("executor", 3, 1, {"team.x": 1000.0}),
    ]
    # Of two attempts of two team turns each nothing that the first was paid goes to turns of the second, or back.
    assert [share.get("team.x", 0.0) for share in play._shares(seats, [0, 0, 1, 1])] == [
        1.0, 1.0 + 10.0, 10.0, 100.0, 100.0 + 1000.0, 0.0, 1000.0,
    ]  # fmt: skip
