"""A step's episodes: which sampler plays which tasks, how far, and which of them are worth learning from."""

from collections.abc import AsyncIterator, Container, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from mas.algorithms.parts.options import AlgorithmOptions
from mas.algorithms.parts.rewards.interaction import paid_proposers
from mas.algorithms.parts.sampling.selection import Selected, SuccessReplay, filtered
from mas.algorithms.parts.schedules import Horizon
from mas.core.concurrency import together
from mas.core.errors import CheckpointError, TrainingError
from mas.core.records import Cost, Episode
from mas.core.scenario import Pick, TaskOutcome
from mas.core.seeds import derive_seed
from mas.runtime.team import TeamRuntime
from mas.training.opponents import FILE as OPPONENTS
from mas.training.opponents import Opponents
from mas.training.sampling.entropy_tree import EntropyTreeSampler
from mas.training.sampling.full_tree import FullTreeSampler
from mas.training.sampling.parallel import ParallelSampler
from mas.training.sampling.tree import TreeSampler
from mas.training.setup import Setup
from mas.training.stages import rewards_of
from mas.training.tasks.plan import (
    Matchup,
    Planned,
    PlayedGroups,
    TaskBatch,
    TaskOrder,
    TaskPlan,
    TaskPlayer,
    outcome_of,
)

if TYPE_CHECKING:  # a process that plays with an engine elsewhere needs no tensor library
    from mas.serving.model import BaseModel
    from mas.training.late_terms import LateTerms
    from mas.training.session import TeamSession

SAMPLERS: dict[str, type[TreeSampler] | type[ParallelSampler] | type[FullTreeSampler] | type[EntropyTreeSampler]] = {
    "tree": TreeSampler,
    "parallel": ParallelSampler,
    "full_tree": FullTreeSampler,
    "entropy_tree": EntropyTreeSampler,
}
_REPLAY = "replay.json"
"""The file of a checkpoint that holds what `algorithm.sampler.replay` has in store."""


class Rollout:
    """Plays what a task plan draws as `algorithm.sampler` says.

    Args:
        late: what joins terms that come later, if any do. opponents: who plays other seats, if the team does not.

    Attributes:
        player: plays the tasks; None: the runtime that is given does.
        solved: tasks of the last step that `sampler.filter.by=solved` kept and dropped; None: it is not set.
    """

    def __init__(
        self, setup: Setup, tasks: TaskPlan, late: "LateTerms | None" = None, opponents: Opponents | None = None
    ) -> None:
        self.late = late
        self.opponents = opponents
        self.player: TaskPlayer | None = None
        self._algorithm: AlgorithmOptions = setup.algorithm
        self._method = setup.method
        self._train = setup.train
        self._tasks = tasks
        self.solved: Selected[str] | None = None
        horizon = setup.algorithm.sampler.horizon
        replay = setup.algorithm.sampler.replay
        self.replay = SuccessReplay(replay.size, setup.train.seed) if replay is not None else None
        self._horizon = Horizon(turns=horizon.turns, every=horizon.every) if horizon is not None else None

    def draw(self, step: int, trained: Container[str]) -> TaskBatch:
        """What a step plays.

        Args:
            step: how many are done.
            trained: roles that learn in it; a task that teaches the others alone has nothing to teach.
        """
        planned = self._tasks.draw(step, self._train.tasks_per_step)
        batch = TaskBatch(step, trained, planned, {})
        self._face(batch, planned)
        return batch

    def batch_of(
        self, step: int, trained: Container[str], picks: Sequence[Pick], faced: Mapping[str, Matchup]
    ) -> TaskBatch:
        """A batch that was drawn before, of its tasks and of who plays against the learner in them."""
        return TaskBatch(step, trained, self._tasks.planned(picks), dict(faced))

    async def play(self, runtime: TeamRuntime, batch: TaskBatch) -> PlayedGroups:
        """The episodes of every task of a batch. A task that cannot be played is a recorded failure, not a crash.

        They depend on the batch, the seed and the adapters of the runtime alone.
        """
        return await self._play(runtime, batch, batch.planned, 0)

    async def settle(self, runtime: TeamRuntime, batch: TaskBatch, played: PlayedGroups) -> list[Episode]:
        """What a batch has to teach. Batches are settled in the order of their steps, since replays, late terms, task
        sources and opponents remember.

        With `sampler.refill`, tasks that have nothing to teach are replaced by others, as often as it says; they stay
        in the record, without turns. If there is nothing to learn after the last round, that round's turns stay.

        Args:
            runtime: plays the others.

        Raises:
            TrainingError: no episode could be played.
        """
        wanted, episodes, useful = self._train.tasks_per_step, list[Episode](), 0
        planned, drawn = batch.planned, frozenset(one.pick for one in batch.planned)
        outcomes = list[TaskOutcome | None]()
        refill = self._algorithm.sampler.refill
        for number in range(1 + refill):
            groups, ends = await self._joined(batch, planned, played)
            flat = [end is None or end.flat == 1 for end in ends]
            outcomes += ends
            useful += len(groups) - sum(flat)
            is_last = number == refill or useful == wanted
            for group, is_flat in zip(groups, flat, strict=True):
                is_dropped = refill > 0 and is_flat and not (is_last and not useful)
                episodes += [msgspec.structs.replace(one, turns=()) for one in group] if is_dropped else group
            if is_last:
                break
            planned = self._tasks.draw(batch.step, wanted - useful, number + 1, drawn)
            drawn = drawn.union(one.pick for one in planned)
            self._face(batch, planned)
            played = await self._play(runtime, batch, planned, number + 1)
        self._tasks.tell([outcome for outcome in outcomes if outcome is not None])
        if self.opponents is not None:
            self.opponents.tell(episodes)
        failed = [episode for episode in episodes if episode.status == "failed"]
        if len(failed) == len(episodes):
            raise TrainingError(
                f"none of the {len(episodes)} tasks of step {batch.step + 1} could be played: {failed[0].cause}"
            )
        if (options := self._algorithm.sampler.filter) is None:
            return episodes
        found, self.solved = filtered(episodes, options, rewards_of(self._algorithm, batch.step), batch.trained)
        return found

    @asynccontextmanager
    async def playing(self, session: "TeamSession", base: "BaseModel | None") -> AsyncIterator[None]:
        """While it is open, opponents are served and late terms are asked for."""
        async with AsyncExitStack() as stack:
            if self.late is not None:
                await stack.enter_async_context(self.late.listening(session.runtime.endpoint))
            if self.opponents is not None:
                assert base is not None
                await stack.enter_async_context(self.opponents.playing(session.publishing, base))
            yield

    def files(self) -> dict[str, bytes]:
        """What a checkpoint holds of the rollout: relative names to contents."""
        found = {} if self.replay is None else {_REPLAY: self.replay.state()}
        if self.late is not None:
            found[self.late.FILE] = self.late.state()
        if self.opponents is not None:
            found[OPPONENTS] = self.opponents.state()
        return found

    def restore(self, checkpoint: Path) -> None:
        """Go on from the files of a checkpoint.

        Raises:
            CheckpointError: a file cannot be read.
        """
        if self.replay is not None and (checkpoint / _REPLAY).is_file():
            self.replay.restore((checkpoint / _REPLAY).read_bytes())
        if self.opponents is not None:
            self.opponents.restore(_read(checkpoint / OPPONENTS))
        if self.late is not None:
            self.late.restore(_read(checkpoint / self.late.FILE))

    def metrics(self) -> dict[str, Any]:
        """What the parts of the rollout tell of the last step, by the names that metrics have."""
        found: dict[str, Any] = {}
        if self.late is not None:
            found["late"] = self.late.metrics()
        if self.solved is not None:
            kept, dropped = len(self.solved.kept), len(self.solved.dropped)
            found["filter"] = {"kept": kept, "dropped": dropped, "skipped": float(not kept)}
        if self.replay is not None:
            found["replay"] = self.replay.metrics()
        if self.opponents is not None:
            found["opponents"] = self.opponents.metrics()
        return found

    def notes(self) -> list[dict[str, Any]]:
        """What people may want to read of the last step, as JSON."""
        causes = [] if self.late is None else self.late.causes()
        return [{"source": "judge", "refused": causes}] if causes else []

    def spent(self) -> Cost:
        """What judges have cost since the last call."""
        return Cost() if self.late is None else self.late.spent()

    def arrived(self) -> list[Episode]:
        """What was sampled in earlier steps and is to be trained in this one, since its late terms are there."""
        return [] if self.late is None else self.late.arrived()

    def _face(self, batch: TaskBatch, planned: Sequence[Planned]) -> None:
        """Note who plays against the learner in these tasks of a batch."""
        if self.opponents is not None:
            tasks = [one.task.id for one in planned]
            self.opponents.draw(batch.step, batch.faced, tasks, self._train.tasks_per_step, batch.trained)

    async def _play(
        self, runtime: TeamRuntime, batch: TaskBatch, planned: Sequence[Planned], number: int
    ) -> PlayedGroups:
        """The episodes of every task of a round of draws."""
        seeds = [
            derive_seed("play", self._train.seed, batch.step, *([number] if number else []), n)
            for n in range(len(planned))
        ]
        if (player := self.player) is not None:
            orders = [
                TaskOrder(step=batch.step, pick=one.pick, seed=seed, speaking=batch.speaking)
                for one, seed in zip(planned, seeds, strict=True)
            ]
            return await together(map(player.play, orders), "task")
        plays = [
            self._play_task(runtime, one, batch.faced.get(one.task.id), batch.step, seed)
            for one, seed in zip(planned, seeds, strict=True)
        ]
        return await together(plays, "task")

    async def play_order(self, runtime: TeamRuntime, order: TaskOrder) -> Sequence[Episode]:
        """What a worker does with an order; the runtime uses the adapters that it names."""
        (planned,) = self._tasks.planned([order.pick])
        return await self._play_task(runtime, planned, None, order.step, order.seed)

    async def _joined(
        self, batch: TaskBatch, planned: Sequence[Planned], played: PlayedGroups
    ) -> tuple[PlayedGroups, list[TaskOutcome | None]]:
        """The episodes of a round with all that they are paid, and how each task went."""
        if self.late is not None:
            played = await self.late.join(played, batch.step)
        if self.replay is not None:
            played = [self.replay.repaired(group, batch.step) for group in played]
        rewards = rewards_of(self._algorithm, batch.step)
        if rewards.proposer is not None:
            played = [paid_proposers(group, rewards.proposer) for group in played]
        return played, [
            outcome_of(one.pick, group, rewards, batch.trained) for one, group in zip(planned, played, strict=True)
        ]

    async def _play_task(
        self, runtime: TeamRuntime, planned: Planned, matchup: Matchup | None, step: int, seed: int
    ) -> Sequence[Episode]:
        algorithm, scenario = self._algorithm, planned.scenario
        own = None if self._method is None else self._method.sampler
        kind, rewards = own or SAMPLERS[algorithm.sampler.mode], rewards_of(algorithm, step)
        turns = self._horizon(step) if self._horizon is not None else None
        every = self._train.record_every
        if own is None and every and (step + 1) % every == 0:  # as mas.training.turn_recorder has it
            kind = partial(kind, has_scenes=True)
        if self.opponents is None or matchup is None:
            sampler = kind(runtime, scenario.reward, algorithm.sampler, rewards, turns)
            return await sampler.sample(planned.task, scenario.environment(), seed)
        opponent_seats = self.opponents.opponent_seats(matchup)
        sampler = kind(runtime, scenario.reward, algorithm.sampler, rewards, turns, opponent_seats)
        return self.opponents.with_matchup(matchup, await sampler.sample(planned.task, scenario.environment(), seed))


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise CheckpointError(f"{path} cannot be read: {error.strerror}") from error
