"""The training loop: sample, compare, improve, publish, write down; and again.

A step depends on the step before only through the learner, the counters and the task source, and on randomness only
through the seed and the step's number: a run that is killed and resumed ends with the weights of one that was not.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, AsyncExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from mas.algorithms.parts.experience.library import Library
from mas.core.errors import TrainingError
from mas.core.records import NO_COST, Cost, Episode, Judge, cost_metrics, cost_of
from mas.core.tracing import Counted, Stopwatch, measuring, phase, traced_rollout, traced_step, uncounted
from mas.observe.run_directory import TOOL_CALLS
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.serving.replicated_engine import ReplicatedEngine
from mas.training.adapters import TrainableAdapters
from mas.training.check_setup import check_processes, check_staleness
from mas.training.checkpoint import Progress, checkpoint_at, list_checkpoints
from mas.training.evaluate import SHOWN_TASKS, Evaluation, evaluate
from mas.training.imitation import warm_start
from mas.training.in_flight import BatchesInFlight
from mas.training.late_terms import LateTerms, find_judge
from mas.training.libraries import TrainableLibraries
from mas.training.opponents import Pool, open_opponents
from mas.training.processes import OpenProcesses, Processes
from mas.training.rollout import Rollout
from mas.training.session import Opening, TeamSession, open_team
from mas.training.setup import TrainSetup, plan_tasks
from mas.training.stages import rewards_of
from mas.training.step_metrics import step_metrics
from mas.training.tasks.plan import TaskPlan
from mas.training.trainable import Trainable

Metrics = dict[str, Any]
Record = Callable[[int, Sequence[Episode], Sequence[float]], None]
_Kind = tuple[str, float | None, int]
_USUAL: Sequence[_Kind] = (("greedy", 0.0, SHOWN_TASKS), ("sampled", None, 0))
_WARMED: Sequence[_Kind] = (("warm_start", 0.0, 0),)
"""Evaluations: name, temperature (None: each role's own), and the tasks whose worlds are kept."""


class Watcher(Protocol):
    """Who is told what happens: a run directory, a progress display, a test."""

    def on_resume(self, step: int) -> None:
        """Training begins, after so many steps already done."""

    def on_step(self, step: int, metrics: Metrics, episodes: Sequence[Episode]) -> None:
        """A step is done; step 0 is the warm start."""

    def on_note(self, step: int, note: Mapping[str, Any]) -> None:
        """A step left something that people may want to read, as JSON."""

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        """The team was evaluated, `greedy`, `sampled`, or greedy behind a `warm_start`."""


@dataclass(frozen=True, slots=True)
class TrainingOutcome:
    """How training ended. `history`: one metrics record per step of this process. `libraries`: role -> what it has
    learned, where no adapter is trained. `unused`: what batches cost that were played and not learned from."""

    progress: Progress
    adapters: Mapping[str, AdapterWeights] = field(repr=False)
    history: tuple[Metrics, ...] = field(repr=False)
    reason: str
    libraries: Mapping[str, Library] = field(default_factory=dict, repr=False)
    unused: Cost = NO_COST


class Trainer:
    """Trains one team of one scenario on one base.

    Args:
        base: None where no adapter is trained and a server elsewhere has it.
        checkpoints: directory for checkpoints, None: nothing is saved and nothing resumed.
        opening: puts the team on a bus; None: all of it in this process.
        tasks: what the steps play; None: what `train.tasks` says.
        judges: those that `algorithm.reward.late` may name, beside those of installed packages.
        opponents: those that `algorithm.opponents` says; None: there can be none.
        processes: starts the processes that `cluster` says; None: there can be none.
        record: given every step's number, episodes, and one advantage per turn of theirs; None: nobody is.

    Raises:
        ConfigError: opponents or a judge that are not there; see `open_opponents` and `find_judge`.
    """

    def __init__(
        self,
        setup: TrainSetup,
        base: BaseModel | None,
        *,
        checkpoints: Path | None = None,
        opening: Opening | None = None,
        tasks: TaskPlan | None = None,
        judges: Mapping[str, Judge] = MappingProxyType({}),
        opponents: Pool | None = None,
        processes: OpenProcesses | None = None,
        record: Record | None = None,
    ) -> None:
        self.setup = setup
        self.base = base
        self.checkpoints = checkpoints
        self.tasks = plan_tasks(setup) if tasks is None else tasks
        self.trainable = _trainable(setup, base)
        check_staleness(setup, is_distributed=opening is not None)
        check_processes(setup, is_distributed=opening is not None, is_started=processes is not None)
        self._open_processes = processes if setup.cluster.is_used else None
        self._processes: Processes | None = None
        most = min(setup.train.staleness + 1, setup.train.steps)  # batches that can be in flight
        self._lanes = most if setup.train.staleness and not setup.cluster.workers else 0
        self._opening = opening
        self._record = record
        late = setup.algorithm.reward.late
        joining = None if late is None else LateTerms(late, find_judge(late, setup, judges))
        opposed = open_opponents(setup, opponents, is_distributed=opening is not None)
        self.rollout = Rollout(setup, self.tasks, joining, opposed)
        self.in_flight = BatchesInFlight(setup, self.rollout, self.trainable, base)
        self.progress = Progress(0, Cost(), 0, dict.fromkeys(self.trainable.assignment.adapter_of.values(), 0))
        self._is_resumed = False

    def resume(self, step: int | None = None) -> bool:
        """Go on from the checkpoint of a step, None: from the latest, if there is one. Deletes nothing.

        Raises:
            CheckpointError: there is no checkpoint of that step, it is corrupt, or it is of a run with other tasks.
        """
        found = list_checkpoints(self.checkpoints) if self.checkpoints is not None else []
        if self.checkpoints is not None and step is not None:
            found = [checkpoint_at(self.checkpoints, step)]
        if not found:
            return False
        self.progress = self.trainable.load(found[-1])
        self._is_resumed = True
        self.tasks.restore(self.progress.tasks)
        self.rollout.restore(found[-1])
        self.in_flight.restore(found[-1])
        return True

    async def run(
        self, watcher: Watcher, on_phase: Counted = uncounted, *, on_open: Callable[[], None] = lambda: None
    ) -> TrainingOutcome:
        """Train to the configured end.

        Args:
            on_phase: told each phase as it begins: `sampling`, `learning`, `publishing`, `saving`, all 0 of 0, and
                `warm start`, `greedy evaluation`, `sampled evaluation` and `warm_start evaluation` with the tasks
                played, of all.
            on_open: called once the team is open, before anything is played.

        Raises:
            TrainingError: a step broke a rule of learning, or no episode of a step or of the first evaluation could
                be played.
        """
        watcher.on_resume(self.progress.step)
        history: list[Metrics] = []
        train = self.setup.train
        async with AsyncExitStack() as stack:
            environments = stack.enter_context(measuring())
            if self._open_processes is not None:
                self._processes = await stack.enter_async_context(self._open_processes())
                assert isinstance(self.trainable, TrainableAdapters)
                self.trainable.learner.ranks = self._processes.ranks
                stack.callback(setattr, self.trainable.learner, "ranks", None)
            session = await stack.enter_async_context(self._open())
            workers = None if self._processes is None else self._processes.workers
            await stack.enter_async_context(self.in_flight.open(session, workers))
            await stack.enter_async_context(self.trainable.serving(session, self.progress.versions))
            await stack.enter_async_context(self.rollout.playing(session, self.base))
            on_open()
            if self.progress.step == 0 and not self._is_resumed:
                if train.eval_first:
                    await self._evaluate(session, watcher, on_phase)
                if self.setup.algorithm.warm_start is not None:
                    await self._warm_start(session, watcher, on_phase, environments)
            while not self._end():
                with traced_step(self.progress.step + 1, self.setup.trace.every):
                    history.append(await self._step(session, watcher, on_phase, environments))
                ended = bool(self._end())
                if ended or _is_due(self.progress.step, train.eval_every):
                    await self._evaluate(session, watcher, on_phase)
                    ended = bool(self._end())
                if ended or _is_due(self.progress.step, train.checkpoint_every):
                    self._save(session, on_phase)
        adapters = {name: weights.snapshot() for name, weights in self.trainable.adapters.items()}
        return TrainingOutcome(
            self.progress, adapters, tuple(history), self._end(), self.trainable.libraries, self.in_flight.unused
        )

    def _open(self) -> AbstractAsyncContextManager[TeamSession]:
        if self._opening is not None:
            return self._opening(self.base)
        calls = None if self.checkpoints is None else self.checkpoints.parent / TOOL_CALLS
        engine = None if self._processes is None else self._processes.engine
        return open_team(self.setup, self.base, engine=engine, lanes=self._lanes, calls=calls)

    def _spent(self) -> Metrics:
        return {**cost_metrics(self.progress.cost), "optimiser_steps": self.progress.optimiser_steps}

    def _save(self, session: TeamSession, on_phase: Counted) -> None:
        if self.checkpoints is not None:
            on_phase("saving", 0, 0)
            files = self.rollout.files() | self.in_flight.files(session)
            self.trainable.save(self.checkpoints, self.progress, self.setup.train.keep_checkpoints, files)

    def _lr_scale(self) -> float:
        """Share of the learning rate that is due now. A pure function of progress and configuration."""
        train, done = self.setup.train, self.progress.step / max(self.setup.train.steps, 1)
        if train.token_budget is not None:
            done = max(done, self.progress.cost.tokens(train.budget_prompts) / train.token_budget)
        return 1 - (1 - self.setup.learner.final_lr) * min(done, 1.0)

    def _end(self) -> str:
        """Why training is over, empty while it is not. A pure function of progress and configuration."""
        train, progress = self.setup.train, self.progress
        if progress.step >= train.steps:
            return f"{train.steps} steps done"
        if train.token_budget is not None and progress.cost.tokens(train.budget_prompts) >= train.token_budget:
            return f"token budget of {train.token_budget} spent (prompts: {train.budget_prompts})"
        if train.target is not None and progress.success is not None and progress.success >= train.target:
            return f"target success {train.target} reached"
        return ""

    async def _evaluate(
        self, session: TeamSession, watcher: Watcher, on_phase: Counted, kinds: Sequence[_Kind] = _USUAL
    ) -> None:
        programs = session.programs
        if programs is not None and not programs.has_tasks:
            return
        self.trainable.assignment.use(session.runtime, None)
        tasks, seed = self.setup.train.eval_tasks, self.setup.train.seed
        for name, temperature, scenes in kinds:
            told = partial(on_phase, f"{name} evaluation")
            told(0, tasks)
            with self.in_flight.idle.busy():
                found = await evaluate(
                    session.runtime,
                    self.setup.scenario,
                    tasks,
                    temperature=temperature,
                    seed=seed,
                    scenes=scenes,
                    progress=told,
                    programs=programs,
                )
            if self.progress.step == 0 and found.unplayed == len(found.episodes):  # nor could any in step 1
                cause = found.episodes[0].cause
                raise TrainingError(f"none of the {found.unplayed} held-out tasks could be played: {cause}")
            watcher.on_evaluation(self.progress.step, name, found)
            if temperature == 0:
                self.progress = replace(self.progress, success=found.success)

    async def _warm_start(
        self, session: TeamSession, watcher: Watcher, on_phase: Counted, environments: Stopwatch
    ) -> None:
        """Imitate what succeeds, evaluate, and save that as the checkpoint of step 0."""
        assert isinstance(self.trainable, TrainableAdapters)
        warmed = await warm_start(self.setup, self.tasks.scenarios, session, self.trainable, on_phase, environments)
        self.progress = replace(
            self.progress,
            cost=cost_of(warmed.episodes),
            optimiser_steps=warmed.optimiser_steps,
            versions=self.trainable.versions(session),
            tasks=self.tasks.state(),
            update=self.trainable.state(),
        )
        watcher.on_step(0, {**warmed.metrics, **self._spent()}, warmed.episodes)
        if self.setup.train.eval_first:
            await self._evaluate(session, watcher, on_phase, _WARMED)
        self._save(session, on_phase)

    async def _step(
        self, session: TeamSession, watcher: Watcher, on_phase: Counted, environments: Stopwatch
    ) -> Metrics:
        began, in_environments = time.perf_counter(), environments.seconds
        on_phase("sampling", 0, 0)
        assignment, done = self.trainable.assignment, self.progress.step
        assignment.use(session.runtime, done)
        trained = assignment.trained_adapters(done)
        with traced_rollout(self.setup.trace.episodes):
            episodes = await self.in_flight.next(session, self.progress.step, self.setup.train.steps, trained)
        sampled, in_environments = time.perf_counter(), environments.seconds - in_environments
        on_phase("learning", 0, 0)
        step = self.progress.step + 1
        with phase("update"):
            learned = [*episodes, *self.rollout.arrived()]
            improved = await self.trainable.improve(session, learned, trained, step=step, lr_scale=self._lr_scale())
        await self.in_flight.learned(step - 1)
        taught = time.perf_counter()
        on_phase("publishing", 0, 0)
        judged = self.rollout.spent()
        with phase("publish"):
            published = await self.trainable.publish(session, improved)
        self.progress = replace(
            self.progress,
            step=step,
            cost=self.progress.cost + improved.cost + judged + cost_of(episodes),
            optimiser_steps=self.progress.optimiser_steps + improved.optimiser_steps,
            versions=self.trainable.versions(session),
            tasks=self.tasks.state(),
            update=self.trainable.state(),
        )
        sampled_now = sum(len(episode.turns) for episode in episodes)
        improved = replace(improved, advantages=improved.advantages[:sampled_now])
        metrics = step_metrics(episodes, improved, rewards_of(self.setup.algorithm, step - 1), trained)
        metrics |= self._spent()
        if told := self.tasks.metrics():
            metrics["tasks"] = told
        metrics |= self.rollout.metrics() | self.in_flight.metrics()
        if self._processes is not None:
            metrics |= self._processes.metrics()
        if isinstance(session.engine, ReplicatedEngine):
            metrics["engines"] = session.engine.metrics()
        metrics |= published
        ended = time.perf_counter()
        metrics["seconds"] = {
            "sample": sampled - began,
            "environment": in_environments,
            "learn": taught - sampled,
            "publish": ended - taught,
        }
        watcher.on_step(step, metrics, episodes)
        if self._record is not None:
            self._record(step, episodes, improved.advantages)
        for note in (*improved.notes, *self.rollout.notes()):
            watcher.on_note(step, note)
        return metrics


def _trainable(setup: TrainSetup, base: BaseModel | None) -> Trainable:
    """What is trained: adapters, here or at a service, or libraries of experiences."""
    if setup.algorithm.is_training_free:
        return TrainableLibraries(setup)
    if setup.engine.name == "tinker":
        from mas.training.tinker_adapters import TrainableAtTinker  # needs the package tinker

        return TrainableAtTinker(setup)
    if base is None:
        raise TrainingError("adapters are trained on a base, and there is none")
    return TrainableAdapters(setup, base)


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
