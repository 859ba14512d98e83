"""Tree sampling on real episodes: what is compared, what is committed, in which order."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from itertools import pairwise
from typing import Self

import msgspec
import pytest
from conftest import BaseFor
from parts import SKILLED, advantages_of, crew_of, groups_of, runtime_of, sample, turns_of
from words import SOLO, Free, UncertainEngine, WordWorld

from mas.algorithms.parts.advantages.pipeline import AdvantageOptions, turn_advantages
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.config.options import ScenarioOptions
from mas.core.engine import Generation, Request
from mas.core.environment import Move, Task
from mas.core.records import Episode, cost_of
from mas.graph.load import load_team
from mas.scenarios import build_scenario
from mas.training.sampling.tree import TreeSampler
from mas.training.session import TeamSession

K = 5
TASKS = tuple(range(8))
OPTIONS = SamplerOptions(candidates=K)


@pytest.fixture(params=["relay", "plan_path"])
async def crew(request: pytest.FixtureRequest, base_for: BaseFor) -> AsyncIterator[TeamSession]:
    options = {"name": request.param}
    if request.param == "plan_path":
        options["options"] = {"size": 3, "walls": 1, "max_turns": 4}
    scenario = build_scenario(ScenarioOptions(**options))
    async with crew_of(scenario, base_for(options, SKILLED)) as crew:
        yield crew


@pytest.fixture
async def episodes(crew: TeamSession) -> list[Episode]:
    return await sample(crew.runtime, crew.scenario, TASKS, OPTIONS)


async def test_every_group_is_k_samples_of_one_prompt_and_state(episodes: list[Episode]) -> None:
    groups = groups_of(turns_of(episodes))
    assert len(groups) >= 2 * len(TASKS)
    for members in groups.values():
        assert [member.candidate for member in members] == list(range(K))
        assert len({member.prompt_ids for member in members}) == 1
        for name in ("episode", "task", "agent", "role", "turn", "visit", "adapter", "parent"):
            assert len({getattr(member, name) for member in members}) == 1, name
        assert len({member.seed for member in members}) == K
        assert [member.trajectory for member in members] == [member.id for member in members]
    ids = [turn.id for turn in turns_of(episodes)]
    assert len(set(ids)) == len(ids)


async def test_exactly_one_member_is_committed_and_losers_are_kept(episodes: list[Episode]) -> None:
    for episode in episodes:
        groups = groups_of(episode.turns)
        committed = [next(m for m in members if m.chosen) for members in groups.values()]
        assert all(sum(member.chosen for member in members) == 1 for members in groups.values())
        assert [(line.turn, line.agent, line.text) for line in episode.lines] == [
            (turn.turn, turn.agent, turn.text) for turn in committed
        ]
        parents = [members[0].parent for members in groups.values()]
        assert parents == [None, *[turn.id for turn in committed[:-1]]]


async def test_the_best_of_a_group_is_committed(episodes: list[Episode]) -> None:
    for members in groups_of(turns_of(episodes)).values():
        rewards = [total_reward(member.rewards, RewardOptions()) for member in members]
        assert rewards[[member.chosen for member in members].index(True)] == max(rewards)


async def test_every_agents_groups_vary_in_reward_the_second_agents_too(
    crew: TeamSession, episodes: list[Episode]
) -> None:
    varied = Counter()
    for members in groups_of(turns_of(episodes)).values():
        team = {round(sum(v for name, v in m.rewards.items() if name.startswith("team.")), 9) for m in members}
        varied[members[0].agent] += len(team) > 1
    first, second, *_ = crew.plan.agents
    assert varied[first] > 0
    assert varied[second] > 0


async def test_the_state_advances_with_every_decision_and_the_last_turn_is_recorded(
    crew: TeamSession, episodes: list[Episode]
) -> None:
    for episode in episodes:
        groups = groups_of(episode.turns)
        states = [members[0].group.state for members in groups.values()]
        assert len(set(states)) == len(states)
        turns = [members[0].turn for members in groups.values()]
        assert turns == sorted(turns)
        assert set(turns) == set(range(max(turns) + 1))
        for turn in set(turns):
            agents = [members[0].agent for members in groups.values() if members[0].turn == turn]
            assert agents[:2] == list(crew.plan.agents[:2])


async def test_the_next_agent_acts_after_the_winner(crew: TeamSession, episodes: list[Episode]) -> None:
    decode = crew.engine.tokenizer.decode
    seen = 0
    for episode in episodes:
        groups = list(groups_of(episode.turns).values())
        for before, after in pairwise(groups):
            if (before[0].agent, after[0].agent) == crew.plan.agents[:2]:
                winner = next(member for member in before if member.chosen)
                heard = "?" if winner.failure else winner.text
                assert f";{heard}>" in decode(after[0].prompt_ids) or f"{heard};>" in decode(after[0].prompt_ids)
                seen += 1
    assert seen >= len(TASKS)


async def test_rewards_of_one_agent_leave_the_advantages_of_the_others_bit_equal(episodes: list[Episode]) -> None:
    turns = turns_of(episodes)
    before = advantages_of(turns)
    last = turns[-1].role
    changed = [
        msgspec.structs.replace(turn, rewards={"own.other": float(index % 7)}) if turn.role == last else turn
        for index, turn in enumerate(turns)
    ]
    after = advantages_of(changed)
    others = [index for index, turn in enumerate(turns) if turn.role != last]
    assert [after[index] for index in others] == [before[index] for index in others]
    assert after != before


async def test_eight_at_once_equal_eight_one_by_one(crew: TeamSession, episodes: list[Episode]) -> None:
    one_by_one = [episode for task in TASKS for episode in await sample(crew.runtime, crew.scenario, (task,), OPTIONS)]
    assert [same(episode) for episode in one_by_one] == [same(episode) for episode in episodes]
    assert advantages_of(turns_of(one_by_one)) == advantages_of(turns_of(episodes))


def same(episode: Episode) -> Episode:
    """The episode without the last bits of its log-probabilities, which depend on how a batch was padded."""
    turns = tuple(
        msgspec.structs.replace(turn, logprobs=tuple(round(value, 3) + 0.0 for value in turn.logprobs))
        for turn in episode.turns
    )
    return msgspec.structs.replace(episode, turns=turns)


async def test_the_same_seed_gives_the_same_episodes_and_another_one_others(
    crew: TeamSession, episodes: list[Episode]
) -> None:
    assert await sample(crew.runtime, crew.scenario, TASKS, OPTIONS) == episodes
    assert await sample(crew.runtime, crew.scenario, TASKS, OPTIONS, seed=1) != episodes


async def test_every_token_is_counted_play_outs_included(crew: TeamSession, monkeypatch: pytest.MonkeyPatch) -> None:
    generate, spent, prompts = crew.engine.generate, Counter(), set()

    async def counting(request):
        generations = await generate(request)
        spent["calls"] += len(generations)
        spent["prompt"] += len(request.prompt_ids) * len(generations)
        prompts.add((request.adapter, request.prompt_ids))
        spent["completion"] += sum(len(generation.token_ids) for generation in generations)
        return generations

    monkeypatch.setattr(crew.engine, "generate", counting)
    episodes = await sample(crew.runtime, crew.scenario, TASKS, OPTIONS)
    assert sum(episode.calls for episode in episodes) == spent["calls"] > len(turns_of(episodes))
    assert sum(episode.prompt_tokens for episode in episodes) == spent["prompt"]
    assert sum(episode.completion_tokens for episode in episodes) == spent["completion"]
    shared = sum(len(ids) for _, ids in prompts)
    assert cost_of(episodes).shared_prompt_tokens == shared < spent["prompt"]


async def test_nothing_is_committed_before_all_were_scored(crew: TeamSession, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[tuple[str, str]] = []
    ask, act, own = crew.runtime.ask, crew.runtime._act, crew.scenario.reward.own

    async def asking(point, seeds, **options):
        candidates = await ask(point, seeds, **options)
        if len(seeds) == K:
            events.append(("drawn", point.agent))
            events.extend(("distinct", point.agent) for _ in {candidate.text for candidate in candidates})
        return candidates

    async def acting(episode, turn, actions, callers):
        events.append(("commit", "team"))
        return await act(episode, turn, actions, callers)

    class Watching:
        terms = crew.scenario.reward.terms

        def own(self, move: Move):
            events.append(("scored", move.agent))
            return own(move)

    monkeypatch.setattr(crew.runtime, "ask", asking)
    monkeypatch.setattr(type(crew.runtime), "_act", lambda _, *rest: acting(*rest))
    object.__setattr__(crew.scenario, "reward", Watching())
    await sample(crew.runtime, crew.scenario, (0,), OPTIONS)
    waiting = Counter()
    for what, agent in events:
        if what in ("drawn", "commit"):
            assert not +waiting, f"{what} {agent} while {+waiting} were not scored"
        waiting[agent] += {"distinct": 1, "scored": -1}.get(what, 0)
    assert not +waiting
    assert Counter(what for what, _ in events)["commit"] >= 1


@pytest.mark.parametrize("lookahead", ["action", "turn", "episode"])
async def test_team_terms_are_read_as_far_as_the_lookahead_goes(crew: TeamSession, lookahead: str) -> None:
    options = SamplerOptions(candidates=K, lookahead=lookahead, continuations=2 if lookahead == "episode" else 1)
    episodes = await sample(crew.runtime, crew.scenario, TASKS[:3], options)
    paid: dict[str, set[bool]] = {}
    for turn in turns_of(episodes):
        paid.setdefault(turn.agent, set()).add(any(name.startswith("team.") for name in turn.rewards))
    if lookahead != "action":
        assert all(is_paid == {True} for is_paid in paid.values())
        return
    # Only an output that ends the team turn is followed by a step: relay's executor's, the verifier's if it accepts.
    assert paid["planner"] == {False}
    assert paid.get("verifier", paid["executor"]) >= {True}


async def test_commit_best_zero_commits_any(crew: TeamSession) -> None:
    episodes = await sample(crew.runtime, crew.scenario, TASKS, SamplerOptions(candidates=K, commit_best=0.0))
    places = Counter(turn.candidate for turn in turns_of(episodes) if turn.chosen)
    assert len(places) == K


async def test_candidates_of_all_decisions_of_a_role_may_be_compared_together(episodes: list[Episode]) -> None:
    turns = turns_of(episodes)
    found = turn_advantages(turns, RewardOptions(), AdvantageOptions(key="episode", scale="none"))
    for own in {(turn.episode, turn.role) for turn in turns}:
        indices = [i for i, turn in enumerate(turns) if (turn.episode, turn.role) == own]
        rewards = [total_reward(turns[i].rewards, RewardOptions()) for i in indices]
        wanted = [reward - sum(rewards) / len(rewards) for reward in rewards]
        assert [found[i] for i in indices] == pytest.approx(wanted)
    if len({turn.group for turn in turns}) > len({(turn.episode, turn.role) for turn in turns}):  # several decisions
        assert found != pytest.approx(turn_advantages(turns, RewardOptions(), AdvantageOptions(scale="none")))


async def test_candidates_share_a_score_if_all_they_say_is_equal_and_not_its_beginning() -> None:
    # `ab`, `a!` and `a.` begin equally; only `a!` wins. Two of each are drawn.
    said = ("ab", "a!", "a.", "ab", "a!", "a.")
    worlds = list[WordWorld]()

    class Counted(WordWorld):
        def clone(self) -> Self:
            worlds.append(self)
            return super().clone()

    engine = UncertainEngine(lambda prompt, number: said[number] if prompt == "S>" else "z.", {})
    async with runtime_of(SOLO, engine) as runtime:
        sampler = TreeSampler(runtime, Free(), SamplerOptions(candidates=6, lookahead="turn"), RewardOptions())
        (episode,) = await sampler.sample(Task(id="t", seed=0), Counted(), 0)
    first = [turn for turn in episode.turns if turn.turn == 0]
    assert [(turn.text, turn.rewards["team.won"]) for turn in first] == [(text, float(text == "a!")) for text in said]
    assert [turn.text for turn in first if turn.chosen] == ["a!"]
    assert len(worlds) == 3, "one clone for each different output"


CHECKED = load_team(
    {
        "name": "checked",
        "roles": {
            "solo": {"type": "executor", "view": "solo", "template": "S{said}>", "max_tokens": 4},
            "check": {
                "type": "verifier",
                "view": "solo",
                "template": "V{said};{from.solo}>",
                "accept_text": "y",
                "reject_text": "n",
                "max_tokens": 4,
            },
        },
        "edges": ["start -> solo", "solo -> check", "check -> done when accept", "check -> solo when reject loop 1"],
        "output": "solo",
    }
)


async def test_play_outs_of_the_last_candidate_run_at_once_where_a_verifier_follows() -> None:
    at_work, most = 0, 0

    class Counting(UncertainEngine):
        async def generate(self, request: Request) -> tuple[Generation, ...]:
            nonlocal at_work, most
            is_check = self.tokenizer.decode(request.prompt_ids).startswith("V")
            at_work += is_check
            most = max(most, at_work)
            await asyncio.sleep(0.01)
            at_work -= is_check
            return await super().generate(request)

    def said(prompt: str, number: int) -> str:
        return "y" if prompt.startswith("V") else ("a.", "a!")[number % 2]

    for continuations in (1, 2):
        at_work = most = 0
        async with runtime_of(CHECKED, Counting(said, {})) as runtime:
            options = SamplerOptions(candidates=2, lookahead="turn", continuations=continuations)
            sampler = TreeSampler(runtime, Free(), options, RewardOptions())
            (episode,) = await sampler.sample(Task(id="t", seed=0), WordWorld(), 0)
        assert most == continuations, "the play-outs of one candidate, and one candidate after the other"
        first = [turn for turn in episode.turns if turn.agent == "solo"]
        assert [(turn.text, turn.rewards["team.won"]) for turn in first] == [("a.", 0.0), ("a!", 1.0)]
