"""Calls of tools that failed are counted turn by turn, and decide which successes are clean and what is compared."""

from collections import Counter
from itertools import cycle

import pytest
from parts import make_turn, runtime_of, turns_of

from mas.algorithms.parts.advantages.group import group_advantages
from mas.algorithms.parts.advantages.pipeline import turn_advantages
from mas.algorithms.parts.rewards.terms import total_reward
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.algorithms.parts.sampling.selection import ToolUse, transcript_penalty
from mas.config.load import load_config
from mas.core.environment import Environment, Tooled
from mas.core.errors import ConfigError
from mas.core.records import Episode, facts_of
from mas.core.role import RoleSpec
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.scenarios import build_scenario
from mas.scenarios.tool_use.environment import ToolEnvironment
from mas.testing.scripted import ScriptedEngine
from mas.training.check_team_options import refuse, turn_refusals
from mas.training.sampling.parallel import ParallelSampler, _uncleanness

ALONE = TeamSpec(
    name="alone",
    roles={"caller": RoleSpec(type="executor", view="solo", template="C{question}{history}>", max_tokens=3)},
    edges=("start -> caller", "caller -> done"),
    output="caller",
)


def world_of(name: str) -> Environment:
    scenario = build_scenario(load_config([f"scenario={name}"]).scenario)
    world = scenario.environment()
    world.reset(scenario.task("train", 0))
    return world


@pytest.mark.parametrize(
    ("name", "calls", "failed", "neither"),
    [
        ("tool_use", ("+34", "tap"), ("+a4", "t9p"), ("7", "", "=7.")),
        ("math_team", ("3+4", "2*9"), ("3+a", "+"), ("=7", "")),
        ("retrieval", ("a",), ("??", "12"), ("7", "", " ")),
    ],
)
def test_a_world_tells_calls_from_failed_ones_and_from_answers(
    name: str, calls: tuple[str, ...], failed: tuple[str, ...], neither: tuple[str, ...]
) -> None:
    world = world_of(name)
    assert isinstance(world, Tooled)
    if name == "retrieval":
        calls = tuple(action for action in world.legal("team") or () if not action.isdigit())[:3]
    for said, wanted in ((calls, (True, False)), (failed, (False, True)), (neither, (False, False))):
        for action in said:
            assert (world.is_call(action), world.is_failed_call(action)) == wanted, action
    for action in failed:
        assert world.step({"team": action}).illegal == ("team",)


def solution_of(world: ToolEnvironment) -> list[str]:
    """What solves the task in the fewest turns: the expert's actions."""
    scenario = build_scenario(load_config(["scenario=tool_use"]).scenario)
    assert scenario.expert is not None
    from random import Random

    own, actions = world.clone(), list[str]()
    while own.to_move():
        action = scenario.expert(own, Random(0))["team"]
        actions.append(action)
        own.step({"team": action})
    assert own.success()
    return actions


async def played(errors: dict[int, int], count: int = 16) -> list[Episode]:
    """Episodes of one task by `grpo_roc`: the k-th makes so many failed calls, and then solves it."""
    config = load_config(["algorithm=grpo_roc", "scenario=tool_use", f"algorithm.sampler.candidates={count // 2}"])
    scenario = build_scenario(config.scenario)
    world = scenario.environment()
    world.reset(scenario.task("train", 0))
    assert isinstance(world, ToolEnvironment)
    right = solution_of(world)
    seeds = [derive_seed("episode", 0, k) for k in range(count)]
    plans: dict[int, list[str]] = {}
    for k in range(count):
        said = ["+a4"] * errors.get(k, 0) + right
        for turn, text in enumerate(said):
            plans[derive_seed("single", seeds[k], turn, "caller", 0)] = [text]

    def script(prompt: str, adapter: str | None, seed: int) -> str:
        return plans.get(seed, ["+a4"])[0]

    async with runtime_of(ALONE, ScriptedEngine(script)) as runtime:
        sampler = ParallelSampler(runtime, scenario.reward, config.algorithm.sampler, config.algorithm.reward)
        return list(await sampler.sample(scenario.task("train", 0), scenario.environment(), 0))


async def test_grpo_roc_keeps_the_successes_with_the_fewest_failed_calls() -> None:
    # Two failed calls leave too few turns: of 16 episodes 12 succeed, 4 of them after a failed call. Kept are 8, in
    # proportion 6 successes and 2 failures.
    errors = {k: (0, 2, 1, 0)[k % 4] for k in range(16)}
    episodes = await played(errors)
    assert {k for k, episode in enumerate(episodes) if episode.success} == {k for k in errors if errors[k] < 2}
    kept = [k for k, episode in enumerate(episodes) if episode.turns]
    assert Counter(errors[k] for k in kept) == {0: 6, 2: 2}
    for k in kept:
        assert sum(ToolUse.of(turn).errors for turn in episodes[k].turns) == errors[k]


def transcript(calls: int, errors: int, unread: int = 0) -> Episode:
    turns = [make_turn(facts=facts_of(ToolUse(calls=1)))] * calls + [
        make_turn(facts=facts_of(ToolUse(errors=1)))
    ] * errors
    turns += [make_turn(failure="none of the choices")] * unread
    return Episode(
        id="e", task="t", success=True, turns=tuple(turns), lines=(), rewards={}, prompt_tokens=0,
        completion_tokens=0, calls=0, length=3,
    )  # fmt: skip


def test_the_penalty_is_the_published_one() -> None:
    assert _uncleanness(transcript(1, 1)) == transcript_penalty(calls=2, errors=1, has_form=True) == 0.5
    assert _uncleanness(transcript(0, 0)) == 0.5
    assert _uncleanness(transcript(3, 1)) == 0.25
    assert _uncleanness(transcript(2, 0, unread=1)) == 1.0


async def test_turns_record_their_failed_calls() -> None:
    scenario = build_scenario(load_config(["scenario=tool_use"]).scenario)
    said = cycle(["+a4", "+34", "tap", "7"])
    async with runtime_of(ALONE, ScriptedEngine(lambda *_: next(said))) as runtime:
        options = SamplerOptions(mode="parallel", candidates=2)
        sampler = ParallelSampler(runtime, scenario.reward, options, load_config([]).algorithm.reward)
        turns = turns_of(await sampler.sample(scenario.task("train", 0), scenario.environment(), 0))
    found = {turn.text: (ToolUse.of(turn).calls, ToolUse.of(turn).errors) for turn in turns}
    assert found["+a4"] == (0, 1)
    assert found["+34"] == found["tap"] == (1, 0)
    assert found["7"] == (0, 0)


def test_strata_are_episodes_with_as_many_calls_of_the_whole_team() -> None:
    """Agent a never calls; which stratum its trajectories are in depends on what b calls in the same episode."""
    turns = []
    for k, (calls, reward) in enumerate([(1, 1.0), (1, 0.0), (2, 1.0), (2, 0.5)]):
        same = {"episode": f"e{k}", "trajectory": f"e{k}", "rewards": {"team.right": reward}}
        turns.append(make_turn(group="t/a", role="a", id=f"a{k}", **same))
        called = facts_of(ToolUse(calls=1))
        turns += [make_turn(group="t/b", role="b", id=f"b{k}{n}", facts=called, **same) for n in range(calls)]
    chosen = load_config(["algorithm=stratified_grpo", "scenario=retrieval", "algorithm.options.blend=1.0"])
    assert chosen.algorithm.advantage.strata is not None
    assert chosen.algorithm.advantage.strata.by == "calls"
    found = turn_advantages(turns, chosen.algorithm.reward, chosen.algorithm.advantage)
    by_agent = {name: [value for turn, value in zip(turns, found, strict=True) if turn.role == name] for name in "ab"}
    # In strata of two each is one standard deviation / sqrt(2) from the mean, whatever the rewards of the others.
    assert by_agent["a"] == pytest.approx([0.7071, -0.7071, 0.7071, -0.7071], abs=1e-3)
    assert Counter(round(value, 3) for value in by_agent["b"]) == {0.707: 3, -0.707: 3}


async def test_sampled_episodes_are_compared_with_those_of_as_many_searches() -> None:
    chosen = load_config(
        ["algorithm=stratified_grpo", "scenario=retrieval", "algorithm.options.blend=1.0",
         "algorithm.sampler.candidates=24"]
    ).algorithm  # fmt: skip
    scenario = build_scenario(load_config(["scenario=retrieval"]).scenario)
    searches = [action for action in world_of("retrieval").legal("team") or () if not action.isdigit()]

    def searches_or_answers(prompt: str, adapter: str | None, seed: int) -> str:
        draw = derive_seed("say", prompt, seed)
        return searches[draw % len(searches)] if draw % 3 else "0123456789"[draw % 10]

    role = RoleSpec(type="executor", view="solo", template="C{question}{hits}>", max_tokens=1)
    team = ALONE.model_copy(update={"roles": {"caller": role}})
    async with runtime_of(team, ScriptedEngine(searches_or_answers)) as runtime:
        sampler = ParallelSampler(runtime, scenario.reward, chosen.sampler, chosen.reward)
        episodes = await sampler.sample(scenario.task("train", 0), scenario.environment(), 0)
    found = turn_advantages(turns_of(episodes), chosen.reward, chosen.advantage)
    by_episode = {turn.episode: value for turn, value in zip(turns_of(episodes), found, strict=True)}
    made = {e.id: sum(turn.text in searches for turn in e.turns) for e in episodes}
    assert len(set(made.values())) > 2
    for count in set(made.values()):
        own = [episode for episode in episodes if made[episode.id] == count]
        rewards = [total_reward(episode.turns[0].rewards, chosen.reward) for episode in own]
        wanted = group_advantages(rewards, [count] * len(own))
        assert [by_episode[episode.id] for episode in own] == pytest.approx(wanted, abs=1e-9)


def test_strata_by_calls_are_refused_where_there_are_no_tools() -> None:
    config = load_config(["algorithm=stratified_grpo", "scenario=plan_path"])
    scenario = build_scenario(config.scenario)
    with pytest.raises(ConfigError, match=r"'plan_path' has none\. Write algorithm\.advantage\.strata\.by=turns"):
        refuse(turn_refusals(config.algorithm, scenario, scenario.teams["team"]))
    by_turns = load_config(["algorithm=stratified_grpo", "scenario=plan_path", "algorithm.options.by=turns"])
    refuse(turn_refusals(by_turns.algorithm, scenario, scenario.teams["team"]))
