"""Recipes of teams by what they do in a step: whose turns are compared how, and whose adapter changes."""

from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import torch
from conftest import BaseFor
from mixed import mixed
from oracles import ORACLES, near
from parts import SKILLED, groups_of, make_turn, quiet_adapters, turns_of
from watched import Seen

from mas.algorithms.parts.advantages.group import group_advantages
from mas.algorithms.parts.advantages.pipeline import turn_advantages
from mas.algorithms.parts.rewards.names import FAILURE
from mas.algorithms.parts.rewards.terms import total_reward
from mas.config.load import load_config
from mas.core.errors import TrainingError
from mas.core.records import Turn
from mas.runs.resolve import resolve, resolve_training
from mas.runtime.payloads import Candidate
from mas.serving.model import BaseModel
from mas.training.evaluate import evaluate
from mas.training.sampling.tree import _TreePlay
from mas.training.session import open_team
from mas.training.stages import rewards_of
from mas.training.trainer import Trainer

SMALL = ("train.eval_every=0", "train.eval_tasks=2", "train.target=null", "learner.final_lr=1.0")
FEW = (*SMALL, "algorithm.sampler.candidates=2", "train.tasks_per_step=1")


async def trained(base: BaseModel, *words: str, checkpoints: Path | None = None) -> tuple[Trainer, Seen]:
    config, seen = load_config(mixed(*SMALL, *words)).model_copy(update={"model": SKILLED}), Seen()
    trainer = Trainer(resolve_training(config), base, checkpoints=checkpoints)
    seen.listen(trainer)
    trainer.resume()
    await trainer.run(seen)
    return trainer, seen


def learned(seen: Seen) -> list[list[str]]:
    """Step by step, the adapters that changed."""
    return [sorted(metrics["adapters"]) for metrics in seen.metrics]


# Hi-Agent


def team_s(terms: Mapping[str, float]) -> float:
    return sum(value for name, value in terms.items() if name.startswith("team."))


async def test_a_subgoal_is_worth_the_mean_of_its_executions(
    base_for: BaseFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    played: dict[tuple[Any, ...], list[float]] = defaultdict(list)
    play_out = _TreePlay._play_out

    async def watched(self: _TreePlay, point: Any, candidate: Candidate, number: int) -> dict[str, float]:
        terms = await play_out(self, point, candidate, number)
        visit = point.flow.visits(point.agent)
        played[self.recorder.id, point.turn, point.agent, visit, candidate.text].append(team_s(terms))
        return terms

    monkeypatch.setattr(_TreePlay, "_play_out", watched)
    words = ("scenario=relay", "algorithm=hi_agent", "train.steps=1", "train.tasks_per_step=6")
    _, seen = await trained(base_for("relay", SKILLED), *words)
    turns = turns_of(seen.episodes[0])
    subgoals = [turn for turn in turns if turn.role == "planner"]
    found = [played[turn.episode, turn.turn, turn.agent, turn.visit, turn.text] for turn in subgoals]
    worth = [team_s(turn.rewards) for turn in subgoals]
    assert {len(one) for one in found} == {2}
    assert worth == pytest.approx([fmean(one) for one in found])
    assert any(one[0] != one[1] for one in found)  # An execution by itself would have said something else.
    advantages = dict(zip([turn.id for turn in turns], seen.improved[0].advantages, strict=True))
    for group in groups_of(subgoals).values():
        own = [total_reward(turn.rewards, load_config(list(words)).algorithm.reward) for turn in group]
        assert [advantages[turn.id] for turn in group] == pytest.approx(group_advantages(own, ["one"] * len(own)))
    # Joint: those who execute are trained in the same step.
    assert set(seen.metrics[0]["adapters"]) >= {"planner", "executor"}


# PilotRL and HierSearch


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("words", "stages"),
    [
        (
            ("scenario=workflow", "algorithm=pilotrl", *FEW),
            [["executor"]] * 5 + [["planner"]] * 10 + [["executor", "planner"]],
        ),
        (
            ("scenario=subagents", "algorithm=hiersearch", "train.tasks_per_step=4"),
            [["local", "web"]] * 8 + [["planner"]],
        ),
    ],
    ids=["pilotrl", "hiersearch"],
)
async def test_stages_train_these_roles_and_leave_the_others_as_they_are(
    base_for: BaseFor, tmp_path: Path, words: tuple[str, ...], stages: list[list[str]]
) -> None:
    base, end = base_for(words[0].removeprefix("scenario="), SKILLED), len(stages)
    _, straight = await trained(base, *words, f"train.steps={end}")
    assert learned(straight) == stages
    parts = []
    for stop in (4, 5, end):  # Killed inside of a stage, and at a border.
        trainer, seen = await trained(
            base, *words, "train.checkpoint_every=1", f"train.steps={stop}", checkpoints=tmp_path
        )
        parts += learned(seen)
        if stop == 5:
            changed = {name for name, weights in trainer.trainable.adapters.items() if _has_learned(weights)}
            assert changed == set(stages[0])
    assert parts == stages


@pytest.mark.nightly(of=16)
async def test_the_first_stage_pays_an_executor_for_following_its_plan_and_for_nothing_else(base_for: BaseFor) -> None:
    words = ("scenario=workflow", "algorithm=pilotrl", "train.steps=1", "train.tasks_per_step=4")
    trainer, seen = await trained(base_for("workflow", SKILLED), *words)
    turns = [turn for turn in turns_of(seen.episodes[0]) if turn.role == "executor"]
    rewards = rewards_of(trainer.setup.algorithm, 0)
    for turn in turns:
        unread = turn.rewards.get(FAILURE, 0.0)
        assert total_reward(turn.rewards, rewards) == pytest.approx(turn.rewards["own.follow"] + unread)
    assert len({turn.rewards["own.follow"] for turn in turns}) > 1
    later = rewards_of(trainer.setup.algorithm, 15)
    assert total_reward({"team.right": 1.0, "own.follow": -3.0}, later) == 1.0


def _has_learned(weights: Any) -> bool:
    """A fresh adapter's B is 0."""
    return any(torch.any(b != 0) for _, b in weights.pairs.values())


# OWL


@pytest.mark.nightly(of=16)
async def test_only_the_planner_learns_and_its_adapter_plays_with_workers_that_it_never_met(base_for: BaseFor) -> None:
    base = base_for("subagents", SKILLED)
    words = ("scenario=subagents", "algorithm=owl", "train.steps=1", "train.tasks_per_step=2")
    trainer, seen = await trained(base, *words, "algorithm.sampler.candidates=4")
    assert learned(seen) == [["planner"]]
    assert list(trainer.trainable.adapters) == ["planner"]
    setup, met = trainer.setup, trainer.trainable.adapters
    other = resolve(load_config(["scenario=subagents", "algorithm=matpo", "algorithm.policy=per_role"]))
    unseen = dict(met) | quiet_adapters(base, ["searcher", "reader"], 0.2)
    plans = []
    for playing, adapters in ((setup, met), (other, unseen)):
        async with open_team(playing, base, adapters) as crew:
            episodes = (await evaluate(crew.runtime, setup.scenario, 30, temperature=0.0, seed=0)).episodes
        lines = [line for episode in episodes for line in episode.lines if line.turn == 0]
        plans.append([line.text for line in lines if line.agent == "planner"])
    assert plans[0] == plans[1]


# MLPO

EXTREME = {"style": "extreme", "operands": 4, "skill": 0.8}
of_both_styles = pytest.mark.parametrize(
    ("options", "peers"),
    [({}, {"first": "S{};>", "second": "S{};>"}), (EXTREME, {"first": "A{}>", "second": "B{}>"})],
    ids=["digit", "extreme"],
)


def led_by(options: Mapping[str, Any], *words: str) -> tuple[str, ...]:
    chosen = (f"scenario.options.{name}={value}" for name, value in options.items())
    return ("scenario=refine", *chosen, "algorithm=mlpo", "train.steps=1", *words)


@pytest.mark.nightly(of=16)
@of_both_styles
async def test_a_leader_hears_its_frozen_peers_who_speak_once_for_all_of_its_candidates(
    base_for: BaseFor, options: Mapping[str, Any], peers: Mapping[str, str]
) -> None:
    base = base_for({"name": "refine", "options": options}, SKILLED)
    trainer, seen = await trained(base, *led_by(options, "train.tasks_per_step=12"))
    assert learned(seen) == [["leader"]]
    assert list(trainer.trainable.adapters) == ["leader"]
    for episode in seen.episodes[0]:
        said = {line.agent: line for line in episode.lines}
        question = said["leader"].prompt.removeprefix("S").partition(";")[0]
        assert {peer: said[peer].prompt for peer in peers} == {
            peer: prompt.format(question) for peer, prompt in peers.items()
        }
        heard = [said[peer].text if said[peer].failure is None else "?" for peer in peers]
        assert said["leader"].prompt == f"S{question};{''.join(heard)}>"
    for group in groups_of(turns_of(seen.episodes[0])).values():
        assert len(group) == (8 if group[0].role == "leader" else 1)
        assert len({turn.prompt_ids for turn in group}) == 1


@pytest.mark.nightly(of=16)
@of_both_styles
async def test_a_leader_learns_nothing_from_tasks_that_its_peers_solve_anyway(
    base_for: BaseFor, options: Mapping[str, Any], peers: Mapping[str, str]
) -> None:
    base, words = base_for({"name": "refine", "options": options}, SKILLED), led_by(options, "train.tasks_per_step=24")
    _, seen = await trained(base, *words)
    _, all_of_it = await trained(base, *words, "algorithm.sampler.filter=null")
    answers = {
        one.task: [turn.rewards["own.answer"] for turn in one.turns if turn.agent in peers]
        for one in all_of_it.episodes[0]
    }
    assert all(len(values) == 2 for values in answers.values())
    kept = {one.task for one in seen.episodes[0] if one.turns}
    assert kept == {task for task, values in answers.items() if fmean(values) < 0.75}
    assert 0 < len(kept) < len(answers)


async def test_a_step_whose_tasks_are_all_solved_by_the_peers_trains_nothing_and_is_counted(base_for: BaseFor) -> None:
    """Every task reaches a share of 0: nothing is left, and the leader stays as it is."""
    base, words = base_for({"name": "refine", "options": {}}, SKILLED), led_by({}, "train.tasks_per_step=4")
    trainer, seen = await trained(base, *words, "algorithm.options.solved=0", "train.steps=2")
    solved = [
        {one.task for one in episodes} - {one.task for one in episodes if one.turns} for episodes in seen.episodes
    ]
    told = [metrics["filter"] for metrics in seen.metrics]
    assert [one["dropped"] for one in told] == [len(tasks) for tasks in solved]
    assert [one["skipped"] for one in told] == [1.0, 1.0]
    assert learned(seen) == [[], []]
    assert not any(_has_learned(weights) for weights in trainer.trainable.adapters.values())


async def test_a_task_filter_without_frozen_members_who_answer_says_so(base_for: BaseFor) -> None:
    words = ("scenario=relay", "algorithm.sampler.filter.by=solved", "train.steps=1", "train.tasks_per_step=2")
    with pytest.raises(
        TrainingError, match=r"reads the own term 'answer' of roles that are not trained, and none has it"
    ):
        await trained(base_for("relay", SKILLED), *words)


# HRPO


def test_an_action_has_what_it_was_paid_by_itself_and_not_the_team_s_pay_once_more() -> None:
    options = load_config(["algorithm=action_grpo", "scenario=plan_path"]).algorithm
    actions = [[0.2, -0.1], [0.0, 0.3], [0.1, 0.1], [-0.2, 0.0]]
    outcomes = [1.0, 0.0, 1.0, 0.0]
    turns = [
        make_turn(
            group="q",
            trajectory=f"t{k}",
            turn=n,
            rewards={"team.right": outcome},
            paid={"own.edit": value, "team.right": outcome if n == 1 else 0.0},
        )
        for k, (outcome, own) in enumerate(zip(outcomes, actions, strict=True))
        for n, value in enumerate(own)
    ]
    wanted = [value for row in ORACLES["11_hrpo_our_reading"]["adv"] for value in row]
    assert turn_advantages(turns, options.reward, options.advantage) == near(wanted)


@pytest.mark.nightly(of=16)
async def test_turns_of_one_episode_differ_by_half_of_their_own_rewards(base_for: BaseFor) -> None:
    words = ("scenario=plan_path", "scenario.options.walls=0", "algorithm=action_grpo", "train.steps=1", *FEW)
    _, seen = await trained(base_for("plan_path", SKILLED), *words, "train.tasks_per_step=2")
    turns = turns_of(seen.episodes[0])
    rewards, mean = load_config(list(words)).algorithm.reward, dict[str, float]()
    for turn, advantage in zip(turns, seen.improved[0].advantages, strict=True):
        own = total_reward({name: value for name, value in turn.paid.items() if name.startswith("own.")}, rewards)
        whole = mean.setdefault(f"{turn.group}/{turn.trajectory}", advantage - 0.5 * own)
        assert advantage - 0.5 * own == pytest.approx(whole)
    spread = {turn.paid.get("own.valid", 0.0) for turn in turns if turn.role == "executor"}
    assert len(spread) > 1


# OPO, GPG, Pass@k

REWARDS, LENGTHS = [1.0, 0.0, 0.0, 0.0], [2, 4, 4, 2]


def compared(name: str) -> list[float]:
    """One prompt, four samples, as in section 28."""
    options = load_config([f"algorithm={name}"]).algorithm
    turns = [
        make_turn(group="q", trajectory=f"t{k}", completion_ids=(8,) * length, rewards={"team.right": reward})
        for k, (reward, length) in enumerate(zip(REWARDS, LENGTHS, strict=True))
    ]
    return turn_advantages(turns, options.reward, options.advantage)


@pytest.mark.parametrize("name", ["opo", "gpg", "pass_at_k"])
def test_presets_have_the_golden_advantages(name: str) -> None:
    assert compared(name) == near(ORACLES["28_baselines"][name])


async def played(base: BaseModel, name: str) -> list[tuple[list[Turn], list[float], list[float]]]:
    """Of every group of a step: the first turn of each trajectory, its reward, and its advantage."""
    words = ("scenario=relay", f"algorithm={name}", "train.steps=1", "train.tasks_per_step=8")
    trainer, seen = await trained(base, *words)
    turns = turns_of(seen.episodes[0])
    advantages = dict(zip([turn.id for turn in turns], seen.improved[0].advantages, strict=True))
    found = []
    for group in groups_of(turns).values():
        own = list({turn.trajectory: turn for turn in group}.values())
        rewards = [total_reward(turn.rewards, trainer.setup.algorithm.reward) for turn in own]
        found.append((own, rewards, [advantages[turn.id] for turn in own]))
    return found


async def test_pass_at_k_makes_the_best_likelier_and_nothing_unlikelier(base_for: BaseFor) -> None:
    groups = await played(base_for("relay", SKILLED), "pass_at_k")
    for _, rewards, advantages in groups:
        best, second = sorted(rewards, reverse=True)[:2]
        assert [value > 0 for value in advantages] == [value == best > second for value in rewards]
        assert min(advantages) == 0
    assert any(max(advantages) > 0 for _, _, advantages in groups)


async def test_opo_advantages_of_a_group_add_up_to_0_over_its_tokens(base_for: BaseFor) -> None:
    groups = await played(base_for("relay", SKILLED), "opo")
    for turns, _, advantages in groups:
        tokens = [len(turn.completion_ids) for turn in turns]
        assert sum(n * one for n, one in zip(tokens, advantages, strict=True)) == pytest.approx(0, abs=1e-9)
    assert any(max(advantages) > 0 for _, _, advantages in groups)


async def test_gpg_advantages_grow_as_fewer_rewards_of_the_batch_are_not_0(base_for: BaseFor) -> None:
    groups = await played(base_for("relay", SKILLED), "gpg")
    flat = [reward for _, rewards, _ in groups for reward in rewards]
    share = sum(reward != 0 for reward in flat) / len(flat)
    assert 0 < share < 1
    for _, rewards, advantages in groups:
        assert advantages == pytest.approx([(reward - fmean(rewards)) / share for reward in rewards])
