"""Arms that are only played: what they commit, what they cost, and when they cannot be."""

from collections import defaultdict
from collections.abc import Awaitable, Callable, Sequence

import pytest
from parts import runtime_of

from mas.config.load import load_config
from mas.core.environment import Task, random_script
from mas.core.errors import ConfigError
from mas.core.records import Episode
from mas.runs.resolve import resolve
from mas.scenarios import build_scenario
from mas.scenarios.relay import RelayEnvironment
from mas.scenarios.world import expert_of
from mas.testing.scripted import ScriptedEngine
from mas.training.baselines import attempts_for, best_verified, best_voted, leader_of, led, why_no_leader, why_no_single
from mas.training.evaluate import Evaluation, scripted, summarise

RELAY = build_scenario(load_config(["scenario=relay"]).scenario)
TASKS = 6


class Says:
    """Says the digits of the table in this order, over and over: `1` is the second digit of the table that it sees;
    what is no digit it says as it is."""

    def __init__(self, *said: str) -> None:
        self.said, self.asked = said, 0

    def __call__(self, prompt: str, adapter: str | None, seed: int) -> str:
        word = self.said[self.asked % len(self.said)]
        self.asked += 1
        return prompt[1:5][int(word)] if word.isdigit() else word


def goals() -> list[int]:
    """Which digit of the table is right, in each task."""
    environment, found = RELAY.environment(), []
    for index in range(TASKS):
        environment.reset(RELAY.task("eval", index))
        fields = environment.observe("solo").fields
        found.append("ABCD".index(fields["goal"]))
    return found


async def test_a_vote_commits_the_most_frequent_output_that_parses_and_of_equals_the_first() -> None:
    right = goals()
    for said, winner in ((("2", "1", "1"), 1), (("x", "x", "3"), 3), (("2", "0", "1"), 2)):
        async with runtime_of(RELAY.teams["solo"], ScriptedEngine(Says(*said), has_chat=False)) as runtime:
            found = await best_voted(runtime, RELAY, TASKS, 3, seed=0)
        assert [episode.success for episode in found.episodes] == [goal == winner for goal in right]
        assert found.calls == 3 * TASKS


async def test_verified_is_solved_where_one_of_the_attempts_solved_it_and_costs_all_of_them() -> None:
    right = goals()
    # each attempt plays all tasks before the next one begins: attempt k of task t says digit (k * 6 + t) mod 4
    async with runtime_of(RELAY.teams["solo"], ScriptedEngine(Says("0", "1", "2", "3"), has_chat=False)) as runtime:
        one = await best_verified(runtime, RELAY, TASKS, 1, seed=0)
    async with runtime_of(RELAY.teams["solo"], ScriptedEngine(Says("0", "1", "2", "3"), has_chat=False)) as runtime:
        two = await best_verified(runtime, RELAY, TASKS, 2, seed=0)
    assert [episode.success for episode in one.episodes] == [task % 4 == goal for task, goal in enumerate(right)]
    assert [episode.success for episode in two.episodes] == [
        goal in (task % 4, (TASKS + task) % 4) for task, goal in enumerate(right)
    ]
    assert (two.calls, two.tokens) == (2 * one.calls, 2 * one.tokens)
    assert one.calls == TASKS


@pytest.mark.parametrize("play", [best_voted, best_verified])
async def test_the_n_answers_of_a_task_are_drawn_with_n_seeds(play: Callable[..., Awaitable[Evaluation]]) -> None:
    seeds: dict[str, list[int]] = defaultdict(list)

    def draws(prompt: str, adapter: str | None, seed: int) -> str:
        seeds[prompt].append(seed)
        return prompt[1]

    async with runtime_of(RELAY.teams["solo"], ScriptedEngine(draws, has_chat=False)) as runtime:
        await play(runtime, RELAY, TASKS, 4, seed=0)
    assert [(len(drawn), len(set(drawn))) for drawn in seeds.values()] == [(4, 4)] * TASKS


def spent(calls: Sequence[int], tokens: int) -> Evaluation:
    return summarise(
        [
            Episode(
                id=str(number),
                task="t",
                success=False,
                turns=(),
                lines=(),
                rewards={},
                prompt_tokens=tokens,
                completion_tokens=0,
                calls=count,
            )
            for number, count in enumerate(calls)
        ]
    )


def test_n_is_the_least_that_spends_no_less_than_the_team() -> None:
    team, single = spent((4, 5), 30), spent((2, 2), 7)
    # 9 calls against 4 a time: 2.25, so 3; 60 tokens against 14: 4.29, so 5
    assert attempts_for(team, single, "calls") == 3
    assert attempts_for(team, single, "tokens") == 5
    assert attempts_for(single, single, "calls") == 1
    assert attempts_for(single, team, "calls") == 1


def test_the_leader_is_who_says_what_the_team_does_and_the_single_agent_speaks_through_its_adapter() -> None:
    config = load_config(["scenario=relay"])
    assert leader_of(RELAY.teams["team"]) == "executor"
    assert led(resolve(config, RELAY)) == {"solo": "executor"}
    assert led(resolve(load_config(["scenario=relay", "algorithm.policy=shared"]), RELAY)) == {"solo": "shared"}


def test_teams_beside_which_no_single_agent_can_play_say_why() -> None:
    poker, alone = load_config(["scenario=two_player"]), load_config(["scenario=relay", "algorithm.team=solo"])
    assert why_no_single(resolve(load_config(["scenario=relay"]), RELAY)) is None
    assert "plays every seat" in str(why_no_single(resolve(poker)))
    assert "is a single agent itself" in str(why_no_single(resolve(alone, RELAY)))


def test_a_leader_without_an_adapter_is_refused() -> None:
    frozen = RELAY.teams["team"].roles["executor"].model_copy(update={"trainable": False})
    team = RELAY.teams["team"].model_copy(update={"roles": {**RELAY.teams["team"].roles, "executor": frozen}})
    scenario = build_scenario(load_config(["scenario=relay"]).scenario)
    object.__setattr__(scenario, "teams", {**scenario.teams, "team": team})
    with pytest.raises(ConfigError, match="'executor', which leads team 'relay', is not trained"):
        led(resolve(load_config(["scenario=relay"]), scenario))
    assert "'executor', which leads" in str(why_no_leader(resolve(load_config(["scenario=relay"]), scenario)))
    assert why_no_leader(resolve(load_config(["scenario=relay"]), RELAY)) is None


@pytest.mark.parametrize(
    ("words", "leader"),
    [
        (("scenario=subagents", "algorithm.policy=per_role"), "planner"),
        (("scenario=subagents", "algorithm=hiersearch"), "planner"),
        (("scenario=subagents", "algorithm=owl"), "planner"),
        (("scenario=workflow",), "planner"),
        (("scenario=workflow", "algorithm=flow_grpo"), "planner"),
        (("scenario=code_team",), "coder"),
        (("scenario=help_desk", "scenario.options.user=talking"), "agent"),
    ],
)
def test_the_leader_that_a_team_names_plays_alone_and_frozen_members_keep_their_own(
    words: tuple[str, ...], leader: str
) -> None:
    config = load_config(list(words))
    scenario = build_scenario(config.scenario)
    assert why_no_leader(resolve(config, scenario)) is None
    assert led(resolve(config, scenario)) == {"solo": leader}


def test_scripts_cost_nothing_and_the_expert_solves_what_chance_does_not() -> None:
    expert = expert_of(RELAY)
    assert expert is not None
    best = scripted(RELAY, expert, 20, seed=0)
    assert best is not None
    assert (best.success, best.turns, best.calls, best.tokens) == (1.0, 1.0, 0, 0)
    chance = scripted(RELAY, random_script, 200, seed=0)
    assert chance is not None
    # one of four digits is right: 0.25, standard deviation 0.03
    assert chance.success == pytest.approx(0.25, abs=0.1)
    assert scripted(RELAY, lambda environment, random: None, 2, seed=0) is None


def test_scripts_and_chance_play_the_tasks_that_the_team_is_evaluated_on(monkeypatch: pytest.MonkeyPatch) -> None:
    played: list[str] = []

    def watched(environment: RelayEnvironment, task: Task) -> None:
        played.append(task.id)
        reset(environment, task)

    reset = RelayEnvironment.reset
    monkeypatch.setattr(RelayEnvironment, "reset", watched)
    held_out = [RELAY.task("eval", index).id for index in range(TASKS)]
    assert scripted(RELAY, random_script, TASKS, seed=0) is not None
    assert played == held_out
    expert = expert_of(RELAY)
    assert expert is not None
    best = scripted(RELAY, expert, TASKS, seed=0)
    assert best is not None
    assert [episode.task for episode in best.episodes] == played[TASKS:] == held_out
