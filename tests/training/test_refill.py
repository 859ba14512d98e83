"""Tasks without anything to teach are replaced inside a step: which ones, and what the task source hears of it."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from conftest import BaseFor
from parts import SKILLED, make_turn
from watched import Seen

from mas.config.options import Config
from mas.core.environment import Task
from mas.core.records import Episode, cost_of, total_cost
from mas.core.scenario import TaskOutcome
from mas.runs.resolve import resolve, resolve_training
from mas.scenarios import build_scenario
from mas.training.rollout import SAMPLERS, Rollout
from mas.training.setup import plan_tasks
from mas.training.tasks.plan import TaskPlan
from mas.training.trainer import Trainer, TrainingOutcome

ARMS = {"first": {"options": {"skill": 0.3}}, "second": {"options": {"skill": 0.2}}}


def config_of(tasks: dict[str, Any], refill: int = 2, **more: Any) -> Config:
    return Config.model_validate(
        {
            "scenario": {"name": "relay"},
            "model": SKILLED.model_dump(),
            "algorithm": {"sampler": {"mode": "parallel", "candidates": 2, "refill": refill}, **more},
            "train": {"steps": 3, "tasks_per_step": 4, "eval_tasks": 2, "eval_every": 0, "tasks": tasks},
        }
    )


class Flat:
    """Plays nothing: the planner's episodes of a task are all alike, the executor's differ."""

    def __init__(self, *settings: Any) -> None:
        pass

    async def sample(self, task: Task, environment: Any, seed: int) -> tuple[Episode, ...]:
        return tuple(self._episode(task, number) for number in range(2))

    def _episode(self, task: Task, number: int) -> Episode:
        turns = tuple(
            make_turn(
                id=f"{task.id}/{role}/{number}", task=task.id, role=role, agent=role, group=f"{task.id}/{role}",
                trajectory=f"{number}", rewards={"team.right": paid},
            )
            for role, paid in (("planner", 1.0), ("executor", float(number)))
        )  # fmt: skip
        return Episode(
            id=f"{task.id}/{number}", task=task.id, success=True, turns=turns, lines=(), rewards={"right": 1.0},
            prompt_tokens=0, completion_tokens=0, calls=0,
        )  # fmt: skip


class Heard(TaskPlan):
    """A plan that remembers what it was told."""

    told: list[Sequence[TaskOutcome]]

    def tell(self, outcomes: Sequence[TaskOutcome]) -> None:
        self.told = [*getattr(self, "told", []), outcomes]
        super().tell(outcomes)


@pytest.fixture
def flat(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SAMPLERS, "parallel", Flat)


def plan_of(config: Config) -> Heard:
    plan = plan_tasks(resolve_training(config))
    plan.__class__ = Heard
    assert isinstance(plan, Heard)
    return plan


async def played(config: Config, plan: TaskPlan, steps: int, trained: set[str]) -> list[list[str]]:
    rollout = Rollout(resolve(config), plan)
    found = []
    for step in range(steps):
        batch = rollout.draw(step, trained)
        episodes = await rollout.settle(None, batch, await rollout.play(None, batch))
        found.append([episode.task for episode in episodes])
    return found


@pytest.mark.usefixtures("flat")
async def test_only_what_trained_roles_can_learn_keeps_a_task() -> None:
    config = config_of({})
    assert [len(tasks) for tasks in await played(config, plan_of(config), 1, {"planner"})] == [2 * 3 * 4]
    assert [len(tasks) for tasks in await played(config, plan_of(config), 1, {"planner", "executor"})] == [2 * 4]


@pytest.mark.usefixtures("flat")
async def test_a_stage_of_patience_three_takes_three_steps_however_often_they_draw() -> None:
    config = config_of({"source": "curriculum", "arms": ARMS, "threshold": 0.5, "patience": 3})
    plan = plan_of(config)
    tasks = await played(config, plan, 4, {"planner"})
    assert [{task.partition(":")[0] for task in own} for own in tasks] == [{"first"}] * 3 + [{"second"}]
    assert [len(outcomes) for outcomes in plan.told] == [12] * 4
    assert plan.metrics()["arms"]["second"]["count"] == 12


@pytest.mark.usefixtures("flat")
async def test_the_source_hears_of_a_step_once_and_in_the_order_of_its_draws() -> None:
    config = config_of({"source": "epochs", "count": 30})
    plan = plan_of(config)
    tasks = await played(config, plan, 2, {"planner"})
    for own, outcomes in zip(tasks, plan.told, strict=True):
        drawn = list(dict.fromkeys(own))
        assert len(drawn) == 12
        assert [f"train-{outcome.pick.index}" for outcome in outcomes] == drawn


@pytest.mark.usefixtures("flat")
async def test_progress_of_an_arm_moves_once_a_step() -> None:
    config = config_of({"source": "progress", "arms": ARMS, "explore": 1.0, "fast": 0.5, "slow": 0.25})
    plan = plan_of(config)
    start = {name: {"fast": 0.0, "slow": 0.0} for name in ARMS}
    state = plan.state()
    plan.restore({**state, "source": {**state["source"], "trends": start}})
    await played(config, plan, 1, {"planner"})
    # Success 1 was heard of once: 0 + .5 x 1 and 0 + .25 x 1.
    assert plan.state()["source"]["trends"] == {name: {"fast": 0.5, "slow": 0.25} for name in ARMS}


async def test_where_all_groups_are_equal_a_step_ends_after_its_refills_and_counts_all_tokens(
    base_for: BaseFor, tmp_path: Path
) -> None:
    config = config_of({}, reward={"weights": {"right": 0.0}, "failure": 0.0})
    train = config.train.model_copy(update={"eval_first": False})
    base = base_for("relay", SKILLED)

    async def run(**changes: Any) -> tuple[TrainingOutcome, Seen]:
        changed = config.model_copy(update={"train": train.model_copy(update=changes)})
        seen = Seen()
        trainer = Trainer(resolve_training(changed), base, checkpoints=tmp_path)
        trainer.resume()
        return await trainer.run(seen), seen

    (first, one), (ended, two) = await run(steps=1), await run(steps=2)
    assert (first.progress.step, ended.progress.step) == (1, 2)
    for episodes in (*one.episodes, *two.episodes):
        # Four tasks of two episodes each, drawn once and twice again; the turns of the last round stay.
        assert [bool(episode.turns) for episode in episodes] == [False] * 16 + [True] * 8
        assert all(episode.tokens > 0 for episode in episodes)
    spent = [cost_of(episodes) for episodes in (*one.episodes, *two.episodes)]
    assert ended.progress.cost == total_cost(spent)
    assert [line["tokens"] for line in (*one.metrics, *two.metrics)] == [spent[0].tokens(), total_cost(spent).tokens()]
    budget, _ = await run(steps=9, token_budget=ended.progress.tokens)
    assert budget.reason.startswith("token budget")
    assert budget.progress.step == 2, "what was dropped counts, also after a resume"


async def test_a_task_is_not_served_again_in_the_step_in_which_it_failed(base_for: BaseFor) -> None:
    config = config_of({"source": "epochs", "count": 40, "replay": {"share": 0.5, "below": 1.0, "tries": 3}})
    seen: list[list[str]] = []

    class Notes:
        def on_resume(self, step: int) -> None:
            pass

        def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Episode]) -> None:
            seen.append(list(dict.fromkeys(episode.task for episode in episodes)))
            assert len(seen[-1]) * 2 == len(episodes)
            assert metrics["tasks"]["arms"]["own"]["count"] == len(seen[-1])

        def on_note(self, step: int, note: Any) -> None:
            pass

        def on_evaluation(self, step: int, name: str, evaluation: Any) -> None:
            pass

    scenario = build_scenario(config.scenario)
    await Trainer(resolve_training(config, scenario), base_for("relay", SKILLED)).run(Notes())
    assert max(len(tasks) for tasks in seen) > 4
    assert set(seen[0]) & set(seen[1]), "failures of the first step are played again in the next"
