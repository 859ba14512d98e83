"""Batches in flight: which versions sample what, what goes on while the learner works, and what a kill leaves."""

import asyncio
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch
from conftest import BaseFor
from parts import SKILLED

from mas.bus.memory import MemoryBus
from mas.config.options import Config
from mas.core.errors import CheckpointError, ConfigError, TrainingError
from mas.core.records import Episode
from mas.core.scenario import Scenario
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.scenarios.world import FolderScenario
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.forward import ScoredRow, score_rows
from mas.serving.model import BaseModel
from mas.serving.store import AdapterStore
from mas.serving.transformers_engine import TransformersEngine
from mas.training import session
from mas.training.check_setup import check_staleness
from mas.training.evaluate import Evaluation
from mas.training.learner import Learner
from mas.training.rollout import Rollout
from mas.training.trainer import Trainer

EXACT = SKILLED.model_copy(update={"max_batch": 1})
"""Nothing is decoded beside anything else, so that no bit depends on what was quick."""
CURRICULUM = {
    "source": "curriculum",
    "arms": {"first": {"options": {"skill": 0.3}}, "second": {"options": {"skill": 0.2}}},
    "threshold": 0.1,
    "patience": 1,
}


class Steps:
    """A watcher that remembers metrics and episodes."""

    def __init__(self) -> None:
        self.metrics: list[dict[str, Any]] = []
        self.episodes: list[Sequence[Episode]] = []
        self.second = asyncio.Event()

    def on_resume(self, step: int) -> None:
        """Nothing."""

    def on_step(self, step: int, metrics: dict[str, Any], episodes: Sequence[Episode]) -> None:
        self.metrics.append(metrics)
        self.episodes.append(episodes)
        if len(self.metrics) == 2:
            self.second.set()

    def on_note(self, step: int, note: Mapping[str, Any]) -> None:
        """Nothing."""

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        """Nothing."""

    @property
    def tasks(self) -> list[list[str]]:
        """What was played, step by step."""
        return [[one.task for one in own] for own in self.episodes]

    @property
    def texts(self) -> list[list[tuple[str, tuple[int, ...]]]]:
        """What was sampled, step by step."""
        return [[(turn.id, turn.completion_ids) for one in own for turn in one.turns] for own in self.episodes]

    @property
    def ages(self) -> list[set[int]]:
        """By how many updates the turns of a step were behind."""
        found = []
        for step, episodes in enumerate(self.episodes):
            found.append({step - turn.adapter.version for one in episodes for turn in one.turns if turn.adapter})
        return found


def config_of(
    staleness: int, algorithm: Mapping[str, Any] | None = None, learner: Mapping[str, Any] | None = None, **train: Any
) -> Config:
    options = {"steps": 5, "tasks_per_step": 3, "eval_tasks": 2, "eval_every": 0, "eval_first": False}
    return Config.model_validate(
        {
            "scenario": {"name": "relay"},
            "model": EXACT.model_dump(),
            "algorithm": {"sampler": {"candidates": 4}} | dict(algorithm or {}),
            "learner": dict(learner or {}),
            "train": options | {"staleness": staleness} | train,
        }
    )


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", EXACT)


@pytest.fixture
def scenario() -> Scenario:
    return build_scenario(config_of(0).scenario)


async def train(
    config: Config, base: BaseModel, checkpoints: Path | None = None, step: int | None = None
) -> tuple[Trainer, Steps]:
    steps, trainer = Steps(), Trainer(resolve_training(config), base, checkpoints=checkpoints)
    if step is not None:
        assert trainer.resume(step)
    await trainer.run(steps)
    return trainer, steps


def parameters(adapters: Mapping[str, AdapterWeights]) -> torch.Tensor:
    return torch.cat([one.flatten() for name in sorted(adapters) for one in adapters[name].parameters()])


def play_late(monkeypatch: pytest.MonkeyPatch) -> None:
    """The batch of step 1 is played once the engine serves a later version than the one that it began with."""
    play, learned = Rollout.play, asyncio.Event()
    publish = AdapterStore.publish_all

    async def late(rollout: Rollout, runtime: Any, batch: Any) -> Any:
        if batch.step == 1:
            await learned.wait()  # then the engine serves a later version than the batch names
        return await play(rollout, runtime, batch)

    async def noted(store: AdapterStore, *arguments: Any, **options: Any) -> Any:
        found = await publish(store, *arguments, **options)
        if any(one.ref.version for one in found.values()):  # the first ones are those that training begins with
            learned.set()
        return found

    monkeypatch.setattr(AdapterStore, "publish_all", noted)
    monkeypatch.setattr(Rollout, "play", late)


@pytest.mark.parametrize("staleness", [0, 1, 2])
async def test_a_batch_is_sampled_with_versions_that_are_as_old_as_was_said(base: BaseModel, staleness: int) -> None:
    trainer, steps = await train(config_of(staleness), base)
    assert steps.ages == [{min(step, staleness)} for step in range(5)]
    assert trainer.progress.versions == {"planner": 5, "executor": 5}
    known = [metrics.get("in_flight") for metrics in steps.metrics]
    if not staleness:
        assert known == [None] * 5
        return
    assert [one["batches"] for one in known] == [min(staleness + 1, 5 - step) for step in range(5)]
    assert [one["staleness"] for one in known] == [
        dict.fromkeys(("planner", "executor"), min(step, staleness)) for step in range(5)
    ]
    assert {one["groups_dropped"] for one in known} == {0}
    assert all(metrics["adapters"]["planner"]["behaviour_gap"] < 1e-4 for metrics in steps.metrics)


async def test_more_staleness_than_steps_opens_no_more_lanes_than_batches(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[MemoryBus] = []

    class Counted(MemoryBus):
        def __init__(self) -> None:
            super().__init__()
            opened.append(self)
            assert len(opened) < 10

    monkeypatch.setattr(session, "MemoryBus", Counted)
    _, steps = await train(config_of(1_000_000, steps=2), base)
    assert steps.ages == [{0}, {1}]
    assert len(opened) == 3  # of the session, and of two batches


async def test_each_step_plays_the_tasks_that_it_plays_without_staleness(base: BaseModel) -> None:
    plain, ahead = [(await train(config_of(staleness), base))[1] for staleness in (0, 2)]
    assert plain.tasks == ahead.tasks
    assert plain.texts[0] == ahead.texts[0], "before the first update all are the same"
    for steps in (plain, ahead):
        assert steps.metrics[-1]["calls"] == sum(one.calls for own in steps.episodes for one in own)


async def test_sampling_goes_on_while_the_learner_works(base: BaseModel, monkeypatch: pytest.MonkeyPatch) -> None:
    play, step, played = Rollout.play, Learner.step, [threading.Event() for _ in range(4)]
    waited: list[bool] = []

    async def told(rollout: Rollout, runtime: Any, batch: Any) -> Any:
        found = await play(rollout, runtime, batch)
        played[batch.step].set()
        return found

    def waiting(learner: Learner, rows: Any, *, lr_scale: float) -> Any:
        learned = step(learner, rows, lr_scale=lr_scale)
        number = len(waited) + 1
        waited.append(number == len(played) or played[number].wait(60))
        return learned

    monkeypatch.setattr(Rollout, "play", told)
    monkeypatch.setattr(Learner, "step", waiting)
    await train(config_of(1, steps=4), base)
    assert waited == [True] * 4, "the batch of the next step was played while a step was learned"


async def test_a_run_that_goes_on_samples_what_was_in_flight(base: BaseModel, tmp_path: Path) -> None:
    config = config_of(2, checkpoint_every=3, keep_checkpoints=9)
    whole, steps = await train(config, base, tmp_path)
    held = sorted(path.name for path in (tmp_path / "step-000003" / "in_flight").iterdir())
    assert held == ["executor@1", "executor@2", "planner@1", "planner@2"]
    assert not (tmp_path / "step-000005" / "in_flight.json").exists(), "nothing is in flight at the end"
    again, rest = await train(config, base, tmp_path, 3)
    assert rest.texts == steps.texts[3:]
    assert [one["in_flight"]["staleness"] for one in rest.metrics] == [
        one["in_flight"]["staleness"] for one in steps.metrics[3:]
    ]
    assert torch.equal(parameters(whole.trainable.adapters), parameters(again.trainable.adapters))
    assert again.progress.cost == whole.progress.cost
    assert again.progress.versions == whole.progress.versions


@pytest.mark.parametrize(("staleness", "dropped"), [(0, [3, 3, 0]), (1, [6, 0, 0])])
async def test_a_batch_that_is_too_old_is_dropped_whole_and_played_again_once(
    base: BaseModel, tmp_path: Path, staleness: int, dropped: list[int]
) -> None:
    first = config_of(2, steps=6, checkpoint_every=3, keep_checkpoints=9)
    _, steps = await train(first, base, tmp_path)
    _, rest = await train(config_of(staleness, steps=6), base, tmp_path, 3)
    assert [[one.task for one in own] for own in rest.episodes] == [
        [one.task for one in own] for own in steps.episodes[3:]
    ]
    ages = [{age + 3 for age in own} for own in rest.ages]
    assert all(max(own) <= staleness for own in ages)
    assert [one.get("in_flight", {}).get("groups_dropped", 0) for one in rest.metrics] == dropped


IN_TURN = {"stages": [{"roles": [role], "steps": 2} for role in ("planner", "executor", "planner")]}
"""Versions of planner and executor after 0, 1, ... 6 updates: 00 10 20 21 22 32 42."""


async def test_adapters_that_train_in_turn_have_ages_of_their_own(base: BaseModel) -> None:
    """The batch of step s (from 0) begins after s - 2 updates, so the ages in step 4 are 22 - 20."""
    _, steps = await train(config_of(2, IN_TURN, steps=6), base)
    ages = [tuple(one["in_flight"]["staleness"][role] for role in ("planner", "executor")) for one in steps.metrics]
    assert ages == [(0, 0), (1, 0), (2, 0), (1, 1), (0, 2), (1, 1)]
    sampled = [
        {turn.adapter.name: turn.adapter.version for one in own for turn in one.turns if turn.adapter}
        for own in steps.episodes
    ]
    assert [(one["planner"], one["executor"]) for one in sampled] == [(0, 0), (0, 0), (0, 0), (1, 0), (2, 0), (2, 1)]


@pytest.mark.parametrize(
    ("done", "dropped", "ages"),
    [
        # versions 20; in flight: step 2 with 00, planner 2 behind; step 3 with 10, which is (1, 1) behind when it is
        # learned from, as the update before it is the executor's
        (2, [3, 0], [(0, 0), (1, 1)]),
        # versions 22; in flight: step 4 with 20, executor 2 behind; step 5 with 21, (1, 1) behind after the planner's
        (4, [3, 0], [(0, 0), (1, 1)]),
    ],
)
async def test_a_smaller_staleness_drops_by_the_older_adapter(
    base: BaseModel, tmp_path: Path, done: int, dropped: list[int], ages: list[tuple[int, int]]
) -> None:
    await train(config_of(2, IN_TURN, steps=6, checkpoint_every=2, keep_checkpoints=9), base, tmp_path)
    _, rest = await train(config_of(1, IN_TURN, steps=6), base, tmp_path, done)
    found = [one["in_flight"] for one in rest.metrics[:2]]
    assert [one["groups_dropped"] for one in found] == dropped
    assert [tuple(one["staleness"][role] for role in ("planner", "executor")) for one in found] == ages


async def test_what_is_played_and_not_learned_from_is_told(base: BaseModel) -> None:
    """The budget is spent by step 1, when the batches of steps 2 and 3 are in flight; one of them is played whole."""
    trainer = Trainer(resolve_training(config_of(2, token_budget=1)), base)
    steps, learned = Steps(), trainer.in_flight.learned

    async def once_one_is_played(step: int) -> None:
        if step == 0:
            ahead = await trainer.in_flight._flights[1].task
            tokens.append(sum(one.completion_tokens for own in ahead for one in own))
        await learned(step)

    tokens: list[int] = []
    trainer.in_flight.learned = once_one_is_played  # type: ignore[method-assign]
    outcome = await trainer.run(steps)
    assert outcome.progress.step == 1
    assert outcome.unused.completion_tokens >= tokens[0] > 0, "the last batch may be done, too"
    whole, _ = await train(config_of(2), base)
    assert whole.in_flight.unused.calls == 0, "a run that does all its steps learns from all batches"


async def test_a_source_that_remembers_is_told_in_the_order_of_steps(base: BaseModel, tmp_path: Path) -> None:
    config = config_of(2, tasks=CURRICULUM, steps=6, checkpoint_every=3, keep_checkpoints=9)
    _, first = await train(config, base, tmp_path)
    _, second = await train(config, base)
    _, rest = await train(config, base, tmp_path, 3)
    assert first.tasks == second.tasks
    assert rest.tasks == first.tasks[3:]
    assert {task.partition(":")[0] for own in first.tasks for task in own} == {"first", "second"}


async def test_tasks_that_are_played_again_have_the_versions_of_their_batch(base: BaseModel) -> None:
    _, steps = await train(config_of(1, {"sampler": {"candidates": 2, "refill": 2}}, steps=3), base)
    assert any(len(own) > 3 for own in steps.episodes), "no task was replaced, so that nothing is tested"
    assert steps.ages == [{0}, {1}, {1}]


async def test_samples_of_another_policy_than_the_older_version_are_noticed(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    generate = TransformersEngine.generate

    async def current(engine: TransformersEngine, request: Any) -> Any:
        name, _, _ = request.adapter.partition("@")
        found = await generate(engine, msgspec.structs.replace(request, adapter=name))
        version = int(request.adapter.partition("@")[2] or engine.adapters()[name].version)
        ref = msgspec.structs.replace(engine.adapters()[name], version=version)
        return tuple(msgspec.structs.replace(one, adapter=ref) for one in found)

    monkeypatch.setattr(TransformersEngine, "generate", current)
    play_late(monkeypatch)
    with pytest.raises(TrainingError, match="were not drawn from the policy in training"):
        await train(config_of(2, learner={"lr": 0.05}), base)


async def test_an_error_in_a_batch_in_flight_ends_training_at_its_step(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    play = Rollout.play

    async def failing(rollout: Rollout, runtime: Any, batch: Any) -> Any:
        if batch.step == 2:
            raise TrainingError("this batch cannot be played")
        return await play(rollout, runtime, batch)

    monkeypatch.setattr(Rollout, "play", failing)
    steps, trainer = Steps(), Trainer(resolve_training(config_of(2)), base)
    with pytest.raises(TrainingError, match="this batch cannot be played"):
        await trainer.run(steps)
    assert len(steps.metrics) == 2
    left = [task.get_name() for task in asyncio.all_tasks() if task is not asyncio.current_task()]
    assert not [name for name in left if name.startswith(("batch", "task"))]


async def test_training_that_is_cancelled_leaves_nothing_behind(base: BaseModel) -> None:
    steps, trainer = Steps(), Trainer(resolve_training(config_of(2, steps=500)), base)
    running = asyncio.create_task(trainer.run(steps))
    await steps.second.wait()
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert [task for task in asyncio.all_tasks() if task is not asyncio.current_task()] == []


async def test_a_record_of_batches_in_flight_that_is_none_is_refused(base: BaseModel, tmp_path: Path) -> None:
    trainer = Trainer(resolve_training(config_of(1)), base)
    (tmp_path / "in_flight.json").write_text('[{"step": "two"}]')
    with pytest.raises(CheckpointError, match="holds no batches in flight"):
        trainer.in_flight.restore(tmp_path)


def test_where_batches_cannot_be_in_flight_is_said(base: BaseModel) -> None:
    setup = resolve_training(config_of(1))
    check_staleness(setup, is_distributed=False)
    with pytest.raises(ConfigError, match="train without --bus"):
        check_staleness(setup, is_distributed=True)
    again = {"source": "epochs", "count": 8, "replay": {"share": 0.5}}
    with pytest.raises(ConfigError, match=r"train\.tasks\.replay counts tries step by step"):
        Trainer(resolve_training(config_of(1, tasks=again)), base)
    check_staleness(resolve_training(config_of(0, tasks=again)), is_distributed=True)


@pytest.mark.parametrize(("staleness", "few", "needed"), [(0, 1, 2), (1, 3, 4), (2, 5, 6)])
def test_too_few_places_of_vllm_for_the_versions_of_all_batches_are_refused(
    staleness: int, few: int, needed: int
) -> None:
    """Two adapters, each with the versions of k + 1 batches."""

    def check(adapters: int) -> None:
        config = config_of(staleness).model_dump() | {"engine": {"name": "vllm", "adapters": adapters}}
        check_staleness(resolve_training(Config.model_validate(config)), is_distributed=False)

    check(needed)
    with pytest.raises(ConfigError, match=rf"adapters={few} is too small: {needed} .* or set it to {needed} or more"):
        check(few)


async def test_layers_that_are_computed_again_do_so_while_others_decode(base: BaseModel) -> None:
    plain, again = [
        (await train(config_of(1, learner={"recompute_layers": layers}), base))[0] for layers in (False, True)
    ]
    assert torch.equal(parameters(plain.trainable.adapters), parameters(again.trainable.adapters))


async def test_a_frozen_role_that_speaks_as_a_trained_one_has_the_version_of_its_batch(
    base: BaseModel, monkeypatch: pytest.MonkeyPatch
) -> None:
    play_late(monkeypatch)
    scenario = build_scenario(config_of(0).scenario)
    assert isinstance(scenario, FolderScenario)
    team = scenario.teams["team"]
    planner = team.roles["planner"].model_copy(update={"trainable": False, "adapter": "executor"})
    roles = {**team.roles, "planner": planner}
    object.__setattr__(scenario, "teams", {"team": team.model_copy(update={"roles": roles})})
    steps = Steps()
    await Trainer(resolve_training(config_of(1, steps=3), scenario), base).run(steps)
    assert steps.ages == [{0}, {1}, {1}]
    spoken = {turn.role for own in steps.episodes for one in own for turn in one.turns if turn.adapter}
    assert spoken == {"planner", "executor"}


def test_two_threads_compute_with_one_model_what_each_computes_alone(base: BaseModel) -> None:
    made = []
    for seed in (1, 2):
        weights = base.bank.create(base.options.lora, seed)
        torch.manual_seed(seed)
        for _, b_OR in weights.pairs.values():
            b_OR.normal_(0, 0.5)
        made.append(weights)
    rows = [[ScoredRow((5, 6, 7), (8, 9, 10), weights)] for weights in (*made, None)]
    alone = [score_rows(base, own) for own in rows]
    assert len({own[0] for own in alone}) == 3
    start, wrong = threading.Barrier(3), list[int]()

    def compute(number: int) -> None:
        start.wait(30)
        for _ in range(100):
            if score_rows(base, rows[number]) != alone[number]:
                wrong.append(number)

    threads = [threading.Thread(target=compute, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not wrong
