"""The training loop: sample, compare, improve, publish, write down; and again.

A step depends on the step before only through the learner, the counters and the task source, and on randomness only
through the seed and the step's number: a run that is killed and resumed ends with the weights of one that was not.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from mas.config.options import Config
from mas.core.records import Episode
from mas.core.scenario import Scenario
from mas.core.tracing import phase
from mas.graph.find import find_team
from mas.serving.model import BaseModel
from mas.serving.publication import Publication
from mas.serving.store import AdapterStore
from mas.serving.weights import AdapterWeights
from mas.training.canary import check_held, check_sampled, probes_of
from mas.training.casting import Casting
from mas.training.checkpoint import Progress, list_checkpoints, load_checkpoint, save_checkpoint, update_tensors
from mas.training.crew import Crew, Opening, check_trainable, new_adapters, open_crew, trainable_adapters
from mas.training.evaluate import Evaluation, evaluate
from mas.training.learner import Learner
from mas.training.rollout import Rollout
from mas.training.summary import step_metrics
from mas.training.tasks.plan import TaskPlan, plan_tasks
from mas.training.traced import traced_rollout, traced_step
from mas.training.updates.kinds import build_update, loss_of
from mas.training.updates.update import Improved, Update

Metrics = dict[str, Any]


class Watcher(Protocol):
    """Who is told what happens: a run directory, a progress display, a test."""

    def on_resume(self, step: int) -> None:
        """Training begins, after so many steps already done."""

    def on_step(self, step: int, metrics: Metrics, episodes: Sequence[Episode]) -> None:
        """A step is done."""

    def on_evaluation(self, step: int, name: str, evaluation: Evaluation) -> None:
        """The team was evaluated, `greedy` or `sampled`."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """How training ended. `history`: one metrics record per step of this process."""

    progress: Progress
    adapters: Mapping[str, AdapterWeights]
    history: tuple[Metrics, ...]
    reason: str


class Trainer:
    """Trains one team of one scenario on one base.

    Args:
        checkpoints: directory for checkpoints, None: nothing is saved and nothing resumed.
        opening: puts the team on a bus; None: all of it in this process.
        tasks: what the steps play; None: what `train.tasks` says, of this scenario alone.

    Raises:
        ConfigError: training would change nothing; see `check_trainable`. The tasks are not there; see `plan_tasks`.
    """

    def __init__(
        self,
        config: Config,
        scenario: Scenario,
        base: BaseModel,
        *,
        checkpoints: Path | None = None,
        opening: Opening | None = None,
        tasks: TaskPlan | None = None,
    ) -> None:
        self.config = config
        self.scenario = scenario
        self.base = base
        self.checkpoints = checkpoints
        self._opening = opening or partial(open_crew, config, scenario, adapters={})
        self.team = find_team(scenario, config.algorithm.team)
        check_trainable(config, scenario)
        self.tasks = tasks or plan_tasks(config, scenario)
        for one in self.tasks.scenarios:
            check_trainable(config, one)
        speakers = trainable_adapters(self.team, config.algorithm.policy)
        self.casting = Casting(config.algorithm, speakers)
        names = set(speakers.values())
        self.learner = Learner(
            base, new_adapters(base, names, config.train.seed), config.learner, loss_of(config.algorithm)
        )
        self.rollout = Rollout(config, self.tasks)
        self.update: Update = build_update(self.learner, config.algorithm, config.train.seed)
        self.progress = Progress(0, 0, 0, dict.fromkeys(names, 0))

    def resume(self) -> bool:
        """Go on from the latest checkpoint, if there is one.

        Raises:
            CheckpointError: the latest checkpoint is corrupt, or is of a run with other tasks.
        """
        found = list_checkpoints(self.checkpoints) if self.checkpoints is not None else []
        if not found:
            return False
        self.progress = load_checkpoint(found[-1], self.learner)
        self.tasks.restore(self.progress.tasks)
        self.update.restore(self.progress.update, update_tensors(found[-1]))
        return True

    async def run(self, watcher: Watcher) -> Outcome:
        """Train to the configured end.

        Raises:
            TrainingError: a step broke a rule of learning, or no episode of a step could be played.
        """
        watcher.on_resume(self.progress.step)
        history: list[Metrics] = []
        train = self.config.train
        async with self._opening(self.base) as crew:
            for name, weights in self.learner.adapters.items():
                await crew.engine.store.publish(name, weights, version=self.progress.versions[name])
            if self.progress.step == 0:
                await self._evaluate(crew, watcher)
            while not self._end():
                with traced_step(self.progress.step + 1, self.config.trace):
                    history.append(await self._step(crew, watcher))
                ended = bool(self._end())
                if ended or _is_due(self.progress.step, train.eval_every):
                    await self._evaluate(crew, watcher)
                    ended = bool(self._end())
                if self.checkpoints is not None and (ended or _is_due(self.progress.step, train.checkpoint_every)):
                    tensors = self.update.tensors()
                    save_checkpoint(self.checkpoints, self.learner, self.progress, train.keep_checkpoints, tensors)
        adapters = {name: weights.snapshot() for name, weights in self.learner.adapters.items()}
        return Outcome(self.progress, adapters, tuple(history), self._end())

    def _lr_scale(self) -> float:
        """Share of the learning rate that is due now. A pure function of progress and configuration."""
        train, done = self.config.train, self.progress.step / max(self.config.train.steps, 1)
        if train.token_budget is not None:
            done = max(done, self.progress.tokens / train.token_budget)
        return 1 - (1 - self.config.learner.final_lr) * min(done, 1.0)

    def _end(self) -> str:
        """Why training is over, empty while it is not. A pure function of progress and configuration."""
        train, progress = self.config.train, self.progress
        if progress.step >= train.steps:
            return f"{train.steps} steps done"
        if train.token_budget is not None and progress.tokens >= train.token_budget:
            return f"token budget of {train.token_budget} spent"
        if train.target is not None and progress.success is not None and progress.success >= train.target:
            return f"target success {train.target} reached"
        return ""

    async def _evaluate(self, crew: Crew, watcher: Watcher) -> None:
        if self.casting.swaps:
            crew.runtime.speak_as(crew.adapter_of)
        tasks, seed = self.config.train.eval_tasks, self.config.train.seed
        greedy = await evaluate(crew.runtime, self.scenario, tasks, temperature=0.0, seed=seed)
        watcher.on_evaluation(self.progress.step, "greedy", greedy)
        sampled = await evaluate(crew.runtime, self.scenario, tasks, temperature=None, seed=seed)
        watcher.on_evaluation(self.progress.step, "sampled", sampled)
        self.progress = replace(self.progress, success=greedy.success)

    async def _step(self, crew: Crew, watcher: Watcher) -> Metrics:
        began = time.perf_counter()
        adapter_of = self.casting.trained(self.progress.step)
        if self.casting.swaps:
            crew.runtime.speak_as(self.casting.speaking(self.progress.step))
        with traced_rollout(self.config.trace):
            episodes = await self.rollout.sample(crew.runtime, self.progress.step)
        sampled = time.perf_counter()
        step = self.progress.step + 1
        with phase("update"):
            improved = self.update.improve(episodes, adapter_of, step=step, lr_scale=self._lr_scale())
        taught = time.perf_counter()
        if self.config.train.canary:
            check_sampled(improved.learned, self.base.options.dtype)
        with phase("publish"):
            published = await self._publish(crew.engine.store, improved)
        self.progress = replace(
            self.progress,
            step=step,
            tokens=self.progress.tokens + sum(episode.tokens for episode in episodes),
            calls=self.progress.calls + sum(episode.calls for episode in episodes),
            versions={name: ref.version for name, ref in crew.engine.adapters().items()},
            tasks=self.tasks.state(),
            update=self.update.state(),
        )
        metrics = step_metrics(episodes, improved, self.config.algorithm.reward, adapter_of)
        metrics |= {"tokens": self.progress.tokens, "calls": self.progress.calls}
        if told := self.tasks.metrics():
            metrics["tasks"] = told
        metrics["canary"] = {name: one.metrics() for name, one in published.items() if one.gap is not None}
        ended = time.perf_counter()
        metrics["seconds"] = {"sample": sampled - began, "learn": taught - sampled, "publish": ended - taught}
        watcher.on_step(step, metrics, episodes)
        return metrics

    async def _publish(self, store: AdapterStore, improved: Improved) -> dict[str, Publication]:
        """Serve what was learned, each adapter behind the canary."""
        published = {}
        for name in improved.learned:
            probes = probes_of(self.learner, improved.rows, name) if self.config.train.canary else ()
            published[name] = await store.publish(name, self.learner.adapters[name], probes=probes)
        check_held(store, self.learner, improved.learned)
        return published


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0
