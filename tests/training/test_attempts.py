"""Attempts in sampling and in learning: what each is paid, who is trained by it, and what is imitated."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from conftest import BaseFor
from hypothesis import given
from hypothesis import strategies as st
from parts import SKILLED, groups_of, make_turn, runtime_of, turns_of
from test_trainer import train

from mas.algorithms.parts.advantages.pipeline import turn_advantages
from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.terms import RewardOptions, total_reward
from mas.algorithms.parts.sampling.attempts import by_attempt, repaired
from mas.algorithms.parts.sampling.options import SamplerOptions
from mas.config.load import load_config
from mas.config.options import Config, ScenarioOptions
from mas.core.errors import ConfigError
from mas.core.records import Episode, Turn
from mas.core.scenario import Scenario
from mas.core.seeds import derive_seed
from mas.core.team import TeamSpec
from mas.graph.load import find_team
from mas.roles import build_roles
from mas.runs.resolve import configured_scenario
from mas.scenarios import build_scenario
from mas.scenarios.attempts import attempted
from mas.testing.scripted import Answer, ScriptedEngine
from mas.training.check_team_options import refuse, repair_refusals
from mas.training.rollout import SAMPLERS
from mas.training.updates.preference import preferred, turn_values

REFINE = ScenarioOptions(name="refine")
PATH = ScenarioOptions(name="plan_path", options={"size": 3, "walls": 1, "max_turns": 3})


async def played(
    algorithm: AlgorithmOptions, answer: Answer, options: ScenarioOptions = REFINE, tasks: int = 3
) -> tuple[Scenario, list[Episode]]:
    """Episodes of `solo` on an engine that says what the script says."""
    scenario = attempted(build_scenario(options), algorithm.sampler.attempts)
    async with runtime_of(scenario.teams["solo"], ScriptedEngine(answer)) as runtime, asyncio.timeout(20):
        sampler = SAMPLERS[algorithm.sampler.mode](runtime, scenario.reward, algorithm.sampler, algorithm.reward)
        plays = [
            sampler.sample(scenario.task("train", n), scenario.environment(), derive_seed("play", n))
            for n in range(tasks)
        ]
        return scenario, [episode for group in await asyncio.gather(*plays) for episode in group]


def preset(name: str, *more: str) -> Config:
    return load_config(["scenario=refine", "algorithm.team=solo", f"algorithm={name}", *more])


def computed(prompt: str) -> str:
    """The answer to the question at the end of a prompt, as `S3+2;>`."""
    question = prompt.rpartition("S")[2].partition(";")[0]
    first, sign, second = question[0], question[1], question[2]
    return str((int(first) + int(second) * (1 if sign == "+" else -1)) % 10)


def helped(prompt: str, adapter: str | None, seed: int) -> str:
    """Wrong at first; whoever is told something says that; the reflector is right half of the time."""
    right = computed(prompt)
    wrong = str((int(right) + 1) % 10)
    if prompt.startswith("?"):
        return right if seed % 2 else wrong
    return prompt[0] if prompt[1] == "\n" else wrong


def of_role(episode: Episode, role: str) -> list[Turn]:
    return [turn for turn in episode.turns if turn.role == role]


async def test_a_reflection_is_paid_exactly_the_improvement() -> None:
    config = preset("retroformer")
    _, episodes = await played(config.algorithm, helped)
    outcomes = []
    for episode in episodes:
        (reflection,) = of_role(episode, "reflector")
        first, second = of_role(episode, "solo")
        returns = [turn.paid["team.right"] for turn in (first, second)]
        assert returns == [0.0, episode.measures["solved_by_2"]]
        assert not episode.success  # the second attempt is one that the environment asked for
        assert total_reward(reflection.rewards, config.algorithm.reward) == returns[1] - returns[0]
        assert (first.turn, reflection.turn, second.turn) == (0, 1, 2)
        outcomes.append(returns[1])
    assert 0 < sum(outcomes) < len(outcomes)
    rows = [of_role(episode, "reflector")[0] for episode in episodes]
    advantages = turn_advantages(rows, config.algorithm.reward, config.algorithm.advantage)
    assert all((advantage > 0) == (paid > 0) for advantage, paid in zip(advantages, outcomes, strict=True) if advantage)
    assert any(advantages)


async def test_guidance_is_in_the_prompt_of_the_next_attempt_and_of_no_other() -> None:
    _, episodes = await played(preset("retroformer").algorithm, helped)
    for episode in episodes:
        first, reflection, second = episode.lines
        assert (first.agent, reflection.agent, second.agent) == ("solo", "reflector", "solo")
        assert second.prompt == f"{reflection.text}\n{first.prompt}"
        assert reflection.prompt == f"?{first.text}\n{first.prompt}"


async def test_a_solved_task_is_not_attempted_again_in_any_sampler() -> None:
    def knows(prompt: str, adapter: str | None, seed: int) -> str:
        return computed(prompt)

    for name in ("retroformer", "agent_rlvr", "re_rest"):
        _, episodes = await played(preset(name).algorithm, knows)
        assert all(len(episode.lines) == episode.length == 1 and episode.success for episode in episodes)
        assert all(episode.measures["solved_by_1"] == 1.0 for episode in episodes)


async def test_rise_by_name_asks_again_after_an_answer_that_is_right() -> None:
    def knows(prompt: str, adapter: str | None, seed: int) -> str:
        return computed(prompt)

    _, episodes = await played(preset("rise").algorithm, knows, tasks=1)
    assert [(episode.success, episode.length, len(episode.lines)) for episode in episodes] == [(True, 3, 3)]


async def test_attempts_of_one_number_are_compared_and_paid_by_what_was_paid_in_them() -> None:
    config = preset("agent_rlvr")

    def guided(prompt: str, adapter: str | None, seed: int) -> str:
        right = int(computed(prompt))
        if prompt[1] != "\n":
            return str(right if seed % 4 == 0 else (right + 1) % 10)
        tried, word = int(prompt[0]), prompt[2]
        assert (word == "+") == (tried < right)
        return str(right if seed % 2 else tried)

    _, episodes = await played(config.algorithm, guided)
    groups = groups_of(turns_of(episodes))
    assert {group.attempt for group in groups} == {0, 1}
    for group, members in groups.items():
        number = group.attempt
        assert all(("\n" in guided_prompt(turn)) is (number == 1) for turn in members)
        assert all(turn.rewards == {"team.right": turn.paid["team.right"]} for turn in members)
        assert len({turn.trajectory for turn in members}) == len(members)
    again = [turn for turn in turns_of(episodes) if turn.group.attempt == 1]
    assert {turn.rewards["team.right"] for turn in again} == {0.0, 1.0}


def guided_prompt(turn: Turn) -> str:
    return "".join(chr(token - 1) for token in turn.prompt_ids)


@pytest.mark.parametrize("of", ["attempt", "improvement"])
@pytest.mark.parametrize("guide", ["none", "reflector", "repair", "environment"])
async def test_what_turns_are_paid_adds_up_to_the_reward_of_each_agents_attempt(guide: str, of: str) -> None:
    attempts = {"most": 3, "guide": guide}
    algorithm = AlgorithmOptions.model_validate(
        {"sampler": {"mode": "parallel", "candidates": 4, "attempts": attempts}, "reward": {"of": of}}
    )

    def walks(prompt: str, adapter: str | None, seed: int) -> str:
        return "UDLR"[seed % 4]

    def guesses(prompt: str, adapter: str | None, seed: int) -> str:
        return str(seed % 10)

    # `refine` has the guidance of its environment, `plan_path` attempts of several turns.
    answer, options = (guesses, REFINE) if guide == "environment" else (walks, PATH)
    _, episodes = await played(algorithm, answer, options)
    failed = [episode for episode in episodes if episode.measures["attempts"] == 3.0]
    assert failed
    for episode in failed:
        trajectories = groups_of(episode.turns)
        assert {group.attempt for group in trajectories} == {0, 1, 2}
        earned = [0.0] * 3  # by the team, as every agent of an attempt is told it
        for group, members in trajectories.items():
            number = group.attempt or 0
            (rewards,) = {tuple(sorted(turn.rewards.items())) for turn in members}
            paid = sum(sum(turn.paid.values()) for turn in members)
            earned[number] = sum(value for turn in members for name, value in turn.paid.items() if name[:4] == "team")
            before = earned[number - 1] if of == "improvement" and number else 0.0
            assert sum(value for _, value in rewards) == pytest.approx(paid - before)
        assert sum(earned) == pytest.approx(sum(episode.rewards.values()))


async def test_an_attempt_of_several_turns_starts_where_the_others_did_and_is_one_trajectory() -> None:
    algorithm = AlgorithmOptions.model_validate(
        {"sampler": {"mode": "parallel", "candidates": 4, "attempts": {"most": 2}}, "reward": {"of": "attempt"}}
    )

    def walks(prompt: str, adapter: str | None, seed: int) -> str:
        return "UDLR"[seed % 4]

    _, episodes = await played(algorithm, walks, PATH)
    failed = [episode for episode in episodes if episode.measures["attempts"] == 2.0]
    assert failed
    for episode in failed:
        trajectories = groups_of(episode.turns)
        assert len(next(iter(trajectories.values()))) == 3
        starts = [members[0] for members in trajectories.values()]
        assert len({guided_prompt(turn).rpartition("\n")[2] for turn in starts}) == 1
        by_trajectory = {turn.trajectory: sum(turn.rewards.values()) for turn in episode.turns}
        assert sum(by_trajectory.values()) == pytest.approx(sum(episode.rewards.values()))


async def test_an_advice_in_words_arrives_whole_where_answers_have_a_form() -> None:
    advice = "Take 2 from 7 first, and then mind the sign."

    def says(prompt: str, adapter: str | None, seed: int) -> str:
        return advice if prompt.startswith("?") else "It is 999."

    numbers = ScenarioOptions(name="refine", options={"style": "number"})
    scenario, episodes = await played(preset("retroformer").algorithm, says, numbers)
    for episode in episodes:
        first, reflection, second = episode.lines
        assert reflection.text == advice
        assert second.prompt == f"{advice}\n{first.prompt}"
    roles = scenario.teams["solo"].roles
    told = build_roles(scenario.teams["solo"])["reflector"].rule()
    assert (roles["reflector"].pattern, "regular expression" in told) == (None, False)
    repairs = attempted(build_scenario(numbers), preset("re_rest").algorithm.sampler.attempts).teams["solo"].roles
    assert repairs["reflector"].pattern == roles["solo"].pattern is not None


async def test_every_answer_of_rise_that_beats_its_siblings_is_imitated_at_every_attempt() -> None:
    config = preset("rise", "algorithm.sampler.attempts.most=2")

    def tries(prompt: str, adapter: str | None, seed: int) -> str:
        return str((int(computed(prompt)) + (seed % 4 > 0)) % 10)

    _, episodes = await played(config.algorithm, tries)
    turns = turns_of(episodes)
    options = config.algorithm.preference
    found = preferred(turns, turn_values(turns, options, config.algorithm.reward), options)
    imitated = {turns[n].id for n in found.positives}
    groups = groups_of(turns)
    assert max(len({turn.turn for turn in turns if turn.episode == e.id}) for e in episodes) == 2
    for members in groups.values():
        mixed = {turn.rewards["team.right"] for turn in members} == {0.0, 1.0}
        right = {turn.id for turn in members if turn.rewards["team.right"]}
        assert imitated & {turn.id for turn in members} == (right if mixed else set())
    assert found.pairs == ()
    assert {turn.turn for turn in turns if turn.id in imitated} == {0, 1}


async def test_only_repairs_that_the_environment_accepts_are_imitated_as_answers_to_the_first_prompt() -> None:
    config = preset("re_rest")
    _, episodes = await played(config.algorithm, helped)
    turns = turns_of(episodes)
    copies = repaired(turns)
    assert len(copies) == sum(turn.role == "reflector" for turn in turns) > 0
    known = {turn.id: turn for turn in turns}
    for copy in copies:
        repair = known[copy.id.removesuffix("/repair")]
        failed = known[repair.parent or ""]
        assert (copy.role, copy.prompt_ids, copy.group) == ("solo", failed.prompt_ids, failed.group)
        assert (copy.completion_ids, copy.rewards) == (repair.completion_ids, repair.rewards)
        assert "\n" not in guided_prompt(copy)
        assert failed.chosen
        assert failed.rewards["team.right"] == 0.0
    both, options = [*turns, *copies], config.algorithm.preference
    found = preferred(both, turn_values(both, options, config.algorithm.reward), options)
    imitated = [both[n] for n in found.positives]
    # nobody is right at first, so all that is imitated are repairs, by both
    assert {turn.role for turn in imitated} == {"solo", "reflector"}
    assert all(turn.rewards["team.right"] == 1.0 and turn.text == computed(guided_prompt(turn)) for turn in imitated)
    accepted = sum(turn.rewards["team.right"] == 1.0 for turn in turns)
    assert len(imitated) == 2 * accepted < len(both)


def test_a_repair_of_a_repair_is_one_of_the_first_answer() -> None:
    first = make_turn(role="solo", id="a", prompt_ids=(1,))
    second = make_turn(role="reflector", id="b", parent="a", prompt_ids=(2,))
    third = make_turn(role="reflector", id="c", parent="b", prompt_ids=(3,))
    assert [(copy.id, copy.prompt_ids) for copy in repaired([first, second, third])] == [
        ("b/repair", (1,)),
        ("c/repair", (1,)),
    ]
    assert repaired([make_turn(role="reflector", id="d")]) == []


def test_a_repair_is_imitated_over_the_whole_vocabulary() -> None:
    first = make_turn(role="solo", id="a")
    repair = make_turn(role="reflector", id="b", parent="a", supports=(b"of the reflector's own constraint",))
    assert [copy.supports for copy in repaired([first, repair])] == [()]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(-4, 4)), min_size=1, max_size=12))
def test_improvements_of_an_episode_add_up_to_its_last_attempt(steps: Sequence[tuple[int, int]]) -> None:
    numbers = sorted(number for number, _ in steps)
    attempts = [sorted(set(numbers)).index(number) for number in numbers]  # without gaps, as they are played
    paid = [{"team.right": float(value)} for _, value in steps]
    turns = [make_turn(id=str(n), turn=n, paid=terms) for n, terms in enumerate(paid)]
    whole = by_attempt(turns, paid, attempts, is_improvement=False)
    gained = by_attempt(turns, paid, attempts, is_improvement=True)

    def of(found: Sequence[Turn]) -> dict[str, float]:
        return {turn.trajectory: total_reward(turn.rewards, RewardOptions()) for turn in found}

    assert sum(of(whole).values()) == sum(terms["team.right"] for terms in paid)
    first, *_, last = [*of(whole).values()] * 2
    assert sum(of(gained).values()) == last
    assert next(iter(of(gained).values())) == first


def test_what_an_agent_is_paid_by_itself_adds_up_within_an_attempt() -> None:
    forms = [("solo", 1.0), ("solo", 2.0), ("reflector", 4.0), ("solo", 8.0)]
    turns = [
        make_turn(role=role, agent=role, id=str(n), turn=n, paid={"team.right": 9.0, "own.form": form})
        for n, (role, form) in enumerate(forms)
    ]
    for is_improvement in (False, True):
        found = by_attempt(turns, [{}] * 4, [0, 0, 1, 1], is_improvement=is_improvement)
        assert [turn.rewards for turn in found] == [{"own.form": paid} for paid in (3.0, 3.0, 4.0, 8.0)]


async def test_retroformer_changes_the_reflector_and_leaves_the_actor(base_for: BaseFor) -> None:
    config = preset(
        "retroformer", "train.steps=2", "train.tasks_per_step=6", "train.eval_tasks=2", "train.eval_every=0"
    )
    config = config.model_copy(update={"model": SKILLED})
    outcome, notes = await train(config, configured_scenario(config), base_for("refine", SKILLED))
    is_moved = {name: any(bool(part.any()) for part in last_layers(outcome, name)) for name in outcome.adapters}
    assert is_moved.pop("reflector") is True
    assert not any(is_moved.values())
    for _, metrics, episodes in notes.steps:
        assert set(metrics["adapters"]) == {"reflector"}
        assert metrics["roles"]["solo"]["is_trained"] == 0.0
        solved = [episode.measures["solved_by_2"] for episode in episodes]
        assert metrics["measures"]["solved_by_2"] == pytest.approx(sum(solved) / len(solved))


async def test_re_rest_trains_both_by_repairs_that_only_one_of_them_said(base_for: BaseFor) -> None:
    config = preset("re_rest", "train.steps=2", "train.tasks_per_step=6", "train.eval_tasks=2", "train.eval_every=0")
    config = config.model_copy(update={"model": SKILLED})
    _, notes = await train(config, configured_scenario(config), base_for("refine", SKILLED))
    for _, metrics, episodes in notes.steps:
        accepted = [turn for turn in turns_of(episodes) if turn.rewards["team.right"] == 1.0 and not turn.failure]
        by_role = {role: [t for t in accepted if t.role == role] for role in ("solo", "reflector")}
        assert all(by_role.values())
        told = metrics["preference"]
        assert told["reflector"]["positives"] == len(by_role["reflector"])
        assert told["solo"]["positives"] == len(accepted)
        assert metrics["adapters"]["solo"]["behaviour_gap"] < 1e-4


def last_layers(outcome: Any, name: str) -> Any:
    """The second matrices of an adapter, which are 0 as long as nothing was learned."""
    return [pair[1] for pair in outcome.adapters[name].pairs.values()]


def refused(message: str, **algorithm: Any) -> None:
    with pytest.raises(ValueError, match=message):
        AlgorithmOptions.model_validate(algorithm)


def test_what_makes_no_sense_with_attempts_is_refused_with_the_reason() -> None:
    parallel = {"mode": "parallel", "attempts": {"guide": "reflector"}}
    refused("give sampler.attempts", sampler={"mode": "parallel"}, reward={"of": "attempt"})
    refused("which sampler.mode=parallel plays", sampler={"attempts": {}}, reward={"of": "attempt"})
    refused("to be inherited", sampler=parallel, reward={"of": "attempt"}, advantage={"inherit": "solo"})
    refused("read what single turns", sampler=parallel, reward={"of": "improvement", "discount": 0.9})
    refused("lookahead=episode", sampler={"attempts": {"guide": "reflector"}})
    preference = {"value": "reward", "repairs": True}
    refused("guide=repair", sampler={"attempts": {}}, update="preference", preference=preference)
    SamplerOptions.model_validate({"attempts": {"guide": "reflector"}, "lookahead": "episode"})


@pytest.mark.parametrize(("options", "team"), [(PATH, "solo"), (PATH, "team")])
def test_repairs_of_attempts_of_several_turns_are_refused(options: ScenarioOptions, team: str) -> None:
    algorithm = preset("re_rest").algorithm
    scenario = attempted(build_scenario(options), algorithm.sampler.attempts)
    with pytest.raises(ConfigError, match="is several team turns"):
        refuse(repair_refusals(algorithm, scenario, find_team(scenario, team)))
    fine = attempted(build_scenario(REFINE), algorithm.sampler.attempts)
    refuse(repair_refusals(algorithm, fine, fine.teams[team]))


def test_a_team_whose_last_word_is_not_its_answer_is_not_repaired() -> None:
    algorithm = preset("re_rest").algorithm
    scenario = attempted(build_scenario(REFINE), algorithm.sampler.attempts)
    team: TeamSpec = scenario.teams["team"].model_copy(update={"output": "generator"})
    with pytest.raises(ConfigError, match="may be the last to speak"):
        refuse(repair_refusals(algorithm, scenario, team))
