"""Which episodes a step learns from, who is trained in it, and through which adapter each role speaks."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import BaseFor
from parts import SKILLED

from mas.algorithms.parts.advantages.entropy_trees import TreeEnds
from mas.algorithms.parts.options import AlgorithmOptions
from mas.config.options import Config
from mas.core.errors import ConfigError
from mas.core.records import Episode
from mas.runs.resolve import resolve, resolve_training
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel
from mas.training.check_setup import check_trainable
from mas.training.evaluate import Evaluation
from mas.training.stages import AdapterAssignment
from mas.training.trainer import Trainer, TrainingOutcome


class Steps:
    """A watcher that keeps every step's metrics and episodes."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, Any]] = []
        self.episodes: list[Sequence[Episode]] = []

    def on_resume(self, step: int) -> None:
        pass

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Episode]) -> None:
        self.metrics.append(metrics)
        self.episodes.append(episodes)

    def on_note(self, step: int, note: Any) -> None:
        pass

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        pass


def config_of(scenario: str, algorithm: dict[str, Any], **train: Any) -> Config:
    sampler = {"mode": "parallel", "candidates": 4} | algorithm.pop("sampler", {})
    return Config.model_validate(
        {
            "scenario": {"name": scenario},
            "model": SKILLED.model_dump(),
            "algorithm": {"sampler": sampler, **algorithm},
            "train": {"steps": 2, "tasks_per_step": 4, "eval_tasks": 2, "eval_every": 0} | train,
        }
    )


@pytest.fixture(scope="module")
def relay(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


@pytest.fixture(scope="module")
def paths(base_for: BaseFor) -> BaseModel:
    return base_for("plan_path", SKILLED)


async def train(config: Config, base: BaseModel, checkpoints: Path | None = None) -> tuple[TrainingOutcome, Steps]:
    steps = Steps()
    trainer = Trainer(resolve_training(config), base, checkpoints=checkpoints)
    trainer.resume()
    return await trainer.run(steps), steps


def weights(outcome: TrainingOutcome, name: str) -> torch.Tensor:
    return torch.cat([tensor.flatten() for tensor in outcome.adapters[name].parameters()])


@pytest.mark.nightly(of=16)
@pytest.mark.parametrize("mode", ["parallel", "tree"])
async def test_episodes_are_as_long_as_the_horizon_of_the_step_allows(paths: BaseModel, mode: str) -> None:
    sampler = {"mode": mode, "candidates": 2, "horizon": {"turns": [1, 3], "every": 1}}
    _, steps = await train(config_of("plan_path", {"sampler": sampler}), paths)
    first, second = ([episode.length for episode in episodes] for episodes in steps.episodes)
    assert set(first) == {1}
    assert max(second) == 3
    _, free = await train(config_of("plan_path", {"sampler": sampler | {"horizon": None}}, steps=1), paths)
    assert max(episode.length for episode in free.episodes[0]) > 3


async def test_the_horizon_after_a_resume_is_that_of_the_step(paths: BaseModel, tmp_path: Path) -> None:
    sampler = {"candidates": 2, "horizon": {"turns": [1, 2], "every": 1}}
    every = {"checkpoint_every": 1}
    await train(config_of("plan_path", {"sampler": dict(sampler)}, steps=1, **every), paths, tmp_path)
    _, steps = await train(config_of("plan_path", {"sampler": dict(sampler)}, steps=2, **every), paths, tmp_path)
    assert [max(episode.length for episode in episodes) for episodes in steps.episodes] == [2]


async def test_tasks_without_anything_to_teach_are_replaced_and_cost_what_they_cost(relay: BaseModel) -> None:
    plain, before = await train(config_of("relay", {}, steps=3), relay)
    refilled, after = await train(config_of("relay", {"sampler": {"refill": 3}}, steps=3), relay)
    assert any(flat_tasks(episodes) for episodes in before.episodes)
    for episodes in after.episodes:
        assert not flat_tasks(episodes)
        dropped = [episode for episode in episodes if not episode.turns]
        assert all(episode.tokens > 0 for episode in dropped)
        assert len({episode.task for episode in episodes if episode.turns}) == 4
    assert refilled.progress.tokens > plain.progress.tokens
    again, _ = await train(config_of("relay", {"sampler": {"refill": 3}}, steps=3), relay)
    assert torch.equal(weights(again, "planner"), weights(refilled, "planner"))


def flat_tasks(episodes: Sequence[Episode]) -> set[str]:
    """Tasks none of whose groups has two different rewards."""
    paid: dict[str, dict[str, set[float]]] = {}
    for turn in (turn for episode in episodes for turn in episode.turns):
        paid.setdefault(turn.task, {}).setdefault(turn.group, set()).add(sum(turn.rewards.values()))
    return {task for task, groups in paid.items() if max(map(len, groups.values())) == 1}


async def test_of_more_episodes_the_wanted_number_is_kept_with_both_classes(relay: BaseModel) -> None:
    _, steps = await train(config_of("relay", {"sampler": {"resample": {"factor": 3, "least": 1}}}, steps=1), relay)
    by_task: dict[str, list[Episode]] = {}
    for episode in steps.episodes[0]:
        by_task.setdefault(episode.task, []).append(episode)
    assert {len(episodes) for episodes in by_task.values()} == {12}
    for episodes in by_task.values():
        kept = [episode for episode in episodes if episode.turns]
        assert len(kept) == 4
        assert {episode.success for episode in kept} == {episode.success for episode in episodes}


async def test_groups_that_a_filter_drops_are_not_trained(relay: BaseModel) -> None:
    _, every = await train(config_of("relay", {"sampler": {"mode": "tree"}}, steps=1), relay)
    dropped = {"mode": "tree", "filter": {"by": "equal"}}
    _, some = await train(config_of("relay", {"sampler": dropped}, steps=1), relay)
    assert every.metrics[0]["roles"]["planner"]["groups_zero_variance"] > 0
    assert some.metrics[0]["roles"]["planner"]["groups_zero_variance"] == 0
    half = {"mode": "tree", "filter": {"by": "mean", "share": 0.5}}
    _, part = await train(config_of("relay", {"sampler": half}, steps=1), relay)
    assert part.metrics[0]["roles"]["executor"]["groups"] == every.metrics[0]["roles"]["executor"]["groups"] / 2


async def test_roles_learn_in_their_stage_alone(relay: BaseModel) -> None:
    stages = [{"roles": ["executor"], "steps": 1}, {"roles": ["planner", "executor"], "steps": 1}]
    _, steps = await train(config_of("relay", {"stages": stages}, steps=3), relay)
    assert [sorted(metrics["adapters"]) for metrics in steps.metrics] == [["executor"]] + [["executor", "planner"]] * 2
    assert [metrics["roles"]["planner"]["is_trained"] for metrics in steps.metrics] == [0.0, 1.0, 1.0]


@pytest.mark.parametrize("update", ["group", "critic", "preference"])
async def test_a_stage_is_paid_by_its_own_weights_also_after_a_resume(
    relay: BaseModel, update: str, tmp_path: Path
) -> None:
    both, paid = ["planner", "executor"], {"right": 1.0, "failure": 1.0}
    stages = [{"roles": both, "steps": 2, "weights": paid}, {"roles": both, "steps": 1}]
    kinds: dict[str, dict[str, Any]] = {
        "group": {},
        "critic": {"advantage": {"baseline": "critic"}},
        "preference": {"update": "preference", "preference": {"value": "reward"}, "sampler": {"mode": "tree"}},
    }
    unpaid = {"reward": {"weights": dict.fromkeys(paid, 0.0)}}
    history = []
    for steps in (1, 3):
        algorithm = {"stages": stages, **unpaid, **kinds[update]}
        _, seen = await train(config_of("relay", algorithm, steps=steps, checkpoint_every=1), relay, tmp_path)
        history += seen.metrics
    assert [one["roles"]["executor"]["reward"] != 0 for one in history] == [True, True, False]
    told = [
        one["adapters"]["executor"]["return"] if update == "critic" else one["roles"]["executor"]["advantage_std"]
        for one in history
    ]
    assert [value != 0 for value in told] == [True, True, False]


def test_weights_of_a_stage_are_of_terms_that_are_paid() -> None:
    stages = [{"roles": ["executor"], "steps": 1, "weights": {"rigth": 1.0}}]
    config = config_of("relay", {"stages": stages})
    with pytest.raises(ConfigError, match=r"stages\[0\]\.weights has 'rigth', a term never paid\. Did you"):
        check_trainable(resolve(config))


async def test_roles_that_are_not_named_stay_what_the_base_is(relay: BaseModel) -> None:
    outcome, steps = await train(config_of("relay", {"roles": ["planner"]}), relay)
    assert all(sorted(metrics["adapters"]) == ["planner"] for metrics in steps.metrics)
    assert outcome.progress.versions == {"executor": 0, "planner": 2}


async def test_swapped_roles_speak_through_and_train_each_others_adapters(relay: BaseModel) -> None:
    _, steps = await train(config_of("relay", {"swap": {"roles": ["planner", "executor"], "every": 1}}, steps=3), relay)
    spoken = [
        {(turn.role, turn.adapter.name) for episode in episodes for turn in episode.turns if turn.adapter}
        for episodes in steps.episodes
    ]
    own, other = {("planner", "planner"), ("executor", "executor")}, {("planner", "executor"), ("executor", "planner")}
    assert spoken == [own, other, own]
    assert all(sorted(metrics["adapters"]) == ["executor", "planner"] for metrics in steps.metrics)


async def test_a_running_baseline_survives_a_kill(relay: BaseModel, tmp_path: Path) -> None:
    rae = {"advantage": {"key": "role", "baseline": "running", "scale": "none"}}
    every = {"checkpoint_every": 1}
    straight, _ = await train(config_of("relay", dict(rae), steps=3, **every), relay)
    await train(config_of("relay", dict(rae), steps=1, **every), relay, tmp_path)
    resumed, _ = await train(config_of("relay", dict(rae), steps=3, **every), relay, tmp_path)
    assert torch.equal(weights(straight, "planner"), weights(resumed, "planner"))
    assert resumed.progress.update["running"]["relay/planner"] != 0


async def test_advantages_by_entropy_train(relay: BaseModel) -> None:
    plain, _ = await train(config_of("relay", {}), relay)
    scaled, _ = await train(config_of("relay", {"advantage": {"uncertainty": {"scale": 2.0, "clarity": 0.0}}}), relay)
    assert not torch.equal(weights(plain, "planner"), weights(scaled, "planner"))


def test_own_terms_alone_need_somebody_who_pays_them() -> None:
    config = config_of("relay", {"reward": {"alpha": 0.0}})
    with pytest.raises(ConfigError, match="pays no role a term of its own"):
        check_trainable(resolve(config))


async def test_what_turns_are_paid_adds_up_to_what_the_episode_pays(paths: BaseModel) -> None:
    _, steps = await train(config_of("plan_path", {}, steps=1), paths)
    trajectories: dict[tuple[str, str], list[Any]] = {}
    for turn in (turn for episode in steps.episodes[0] for turn in episode.turns):
        trajectories.setdefault((turn.group, turn.trajectory), []).append(turn)
    assert len({len(turns) for turns in trajectories.values()}) > 1
    for turns in trajectories.values():
        for name, value in turns[0].rewards.items():
            assert sum(turn.paid.get(name, 0.0) for turn in turns) == pytest.approx(value)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"roles": ("planer",)}, "Did you mean 'planner'?"),
        ({"stages": [{"roles": ["judge"], "steps": 1}]}, "name 'judge', which the team does not train"),
        ({"swap": {"roles": ["planner", "judge"]}}, "name 'judge', which the team does not train"),
        ({"swap": {"roles": ["planner", "planner"]}}, "nothing to swap"),
    ],
)
def test_roles_that_are_not_there_are_refused(options: dict[str, Any], reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        AdapterAssignment(AlgorithmOptions.model_validate(options), {"planner": "planner", "executor": "executor"})


def test_an_agent_to_inherit_from_is_one_of_the_team() -> None:
    config = config_of("relay", {"advantage": {"inherit": "planer"}})
    with pytest.raises(ConfigError, match=r"advantage\.inherit is 'planer', .* no such agent\. Did you mean 'planner'"):
        check_trainable(resolve(config))


@pytest.mark.parametrize(
    ("algorithm", "name"),
    [
        ({"advantage": {"step": {}}}, "advantage.step"),
        ({"advantage": {"strata": {}}}, "advantage.strata"),
        ({"reward": {"discount": 0.9}}, "reward.discount"),
        ({"sampler": {"horizon": {"turns": [2]}}}, "sampler.horizon"),
        ({"loss": {"ratio": "sequence"}}, "loss.ratio=sequence"),
    ],
)
def test_what_compares_turns_is_refused_where_there_is_one(algorithm: dict[str, Any], name: str) -> None:
    config = config_of("relay", algorithm)
    with pytest.raises(ConfigError, match=f"algorithm.{name} makes no sense here: every agent .* speaks once"):
        check_trainable(resolve(config))


async def test_an_entropy_tree_trains_every_turn_once(relay: BaseModel) -> None:
    branch = {"by": "chance", "weight": 2.0}
    aepo = {
        "sampler": {"mode": "entropy_tree", "candidates": 6, "branch": branch},
        "advantage": {"tree": {"backup": "leaf_mean"}, "entropy_weight": 0.2},
        "loss": {"surrogate": "keep_gradient"},
    }
    outcome, steps = await train(config_of("relay", aepo, steps=1), relay)
    (episodes,), (metrics,) = steps.episodes, steps.metrics
    assert len(episodes) == 4 * 6
    turns = [turn for episode in episodes for turn in episode.turns]
    assert sum(len(TreeEnds.of(turn).ends) for turn in turns) == 4 * 6
    branches = [episode for episode in episodes if episode.turns[0].parent is not None]
    assert branches
    # A branch of relay is one executor's decision: the planner's is that of the episode that it branches off from.
    assert sum(turn.role == "planner" for turn in turns) == len(episodes) - len(branches)
    assert sum(own["turns"] for own in metrics["roles"].values()) == len(turns) == len({turn.id for turn in turns})
    assert {name: bool(own["gradient_norm"] > 0) for name, own in metrics["adapters"].items()} == {
        "planner": True,
        "executor": True,
    }
    assert outcome.progress.tokens == sum(episode.tokens for episode in episodes)


def test_an_episode_of_one_decision_has_nothing_to_branch_from() -> None:
    def config(team: str) -> Config:
        branch = {"mode": "entropy_tree", "branch": {"chains": 2}}
        return config_of("relay", {"sampler": branch, "advantage": {"tree": {}}, "team": team})

    with pytest.raises(ConfigError, match=r"algorithm\.sampler\.mode=entropy_tree makes no sense here"):
        check_trainable(resolve(config("solo"), build_scenario(config("solo").scenario)))
    check_trainable(resolve(config("team"), build_scenario(config("team").scenario)))
