"""Batches in flight: sampling goes on while the learner works, with adapters at most `train.staleness` updates old.

With a staleness of k the batch of step s begins once s - k updates are published, and is played to its end with the
adapter versions of that moment. So at most k + 1 batches are in flight, and whole groups have one version of each
adapter. Batches are learned from in the order of their steps: the versions that a step was sampled with depend on k
alone, not on who was quick. With k = 0 a step is drawn, played and learned from before the next one begins.

A group is learned from if no adapter that it was sampled with is more than k versions old. That can only be otherwise
where a run goes on with a smaller k: such a batch is dropped whole, counted, and played again once, with the versions
of now. A checkpoint holds the tasks of the batches in flight and the versions that they are played with, so that a run
that goes on samples what the run that was killed would have.

Source of the bound: AReaL, arXiv 2505.24298 (staleness-aware training), which mixes versions inside one sample. Here
they are not mixed.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Container, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from mas.core.engine import AdapterRef
from mas.core.errors import CheckpointError
from mas.core.records import NO_COST, Episode, cost_of, total_cost
from mas.core.scenario import Pick
from mas.core.tracing import IdleTime, traced_rollout
from mas.runtime.team import TeamRuntime
from mas.serving.adapter_files import from_directory, to_files
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.training.cluster_status import BatchStatus
from mas.training.rollout import Rollout
from mas.training.session import TeamSession
from mas.training.setup import Setup
from mas.training.tasks.plan import Matchup, PlayedGroups, TaskBatch
from mas.training.trainable import Trainable
from mas.training.workers import RolloutWorkers

_FILE = "in_flight.json"
_FOLDER = "in_flight"
"""In a checkpoint: what is in flight, and `NAME@VERSION` directories of adapters as they were."""


@dataclass(slots=True)
class _Batch:
    """A batch with the adapter versions that it begins with; none: it begins with those of now."""

    batch: TaskBatch
    versions: Mapping[str, int]


@dataclass(slots=True)
class _Flight(_Batch):
    """A batch that is played. `leases` hold its versions; `seconds`: that playing took, once it has ended."""

    runtime: TeamRuntime
    leases: AsyncExitStack
    task: asyncio.Task[PlayedGroups] | None = None
    seconds: float = 0.0


class BatchesInFlight:
    """Draws, plays and settles the batches of a run, step by step.

    Args:
        base: of the adapters that are trained; None: no adapter is.

    Attributes:
        idle: time in which nothing is played, neither batches nor an evaluation.
        groups_dropped: as too old, and played again, since it was made.
        unused: what batches cost that were played to their end and that training ended before it learned from.
    """

    def __init__(self, setup: Setup, rollout: Rollout, trainable: Trainable, base: BaseModel | None) -> None:
        self._staleness, self._traced = setup.train.staleness, setup.trace.episodes
        self._rollout, self._trainable, self._base = rollout, trainable, base
        self._adapters = setup.sampling_adapters
        self._flights: dict[int, _Flight] = {}
        self._resumed: dict[int, _Batch] = {}
        self._resumed_weights: dict[AdapterRef, AdapterWeights] = {}
        self._resumed_leases = AsyncExitStack()
        self._workers: RolloutWorkers | None = None
        self.idle = IdleTime()
        self._metrics: dict[str, Any] = {}
        self.groups_dropped = 0
        self.unused = NO_COST

    @asynccontextmanager
    async def open(self, session: TeamSession, workers: RolloutWorkers | None = None) -> AsyncIterator[None]:
        """While it is open batches can be played; what is in flight at its end is cancelled. It is opened before
        adapters are published, as those that a checkpoint's batches are played with are older.

        Args:
            workers: play them; None: the session's lanes do.
        """
        self._workers = workers
        self._rollout.player = session.programs or workers
        async with self._resumed_leases:
            for ref, weights in sorted(self._resumed_weights.items(), key=lambda item: item[0].version):
                store = session.publishing.store
                await store.publish(ref.name, weights, version=ref.version)
                await self._resumed_leases.enter_async_context(store.lease(str(ref)))
            try:
                yield
            finally:
                self.unused += total_cost(cost_of(_played(flight)) for flight in self._flights.values())
                async with AsyncExitStack() as stack:
                    for step in self._flights:
                        stack.push_async_callback(self.learned, step)

    async def next(self, session: TeamSession, step: int, last: int, trained: Container[str]) -> list[Episode]:
        """The episodes of a step. Until `learned` their adapters can be leased.

        Args:
            step: how many are done. last: how many there will be; no batch of a later one begins.
            trained: roles that learn in the step.

        Raises:
            TrainingError: no episode could be played.
        """
        if not self._staleness and self._workers is None:
            resumed = self._resumed.pop(step, None)
            batch = self._rollout.draw(step, trained) if resumed is None else resumed.batch
            self._metrics = {} if resumed is None else {"groups_dropped": len(batch.planned)}
            self.groups_dropped += self._metrics.get("groups_dropped", 0)
            return await self._rollout.settle(session.runtime, batch, await self._rollout.play(session.runtime, batch))
        began, dropped = time.perf_counter(), 0
        if not self._flights:  # what was before the first step is not idle time of steps
            self.idle.take()
        for number in range(step, min(step + self._staleness + 1, last)):
            if number not in self._flights:
                dropped += await self._begin(session, number, ahead=number - step)
        await self._release_resumed()
        self.groups_dropped += dropped
        flight = self._flights[step]
        assert flight.task is not None
        played = await flight.task
        waited = time.perf_counter() - began
        with self.idle.busy():  # it may play tasks in place of others
            episodes = await self._rollout.settle(flight.runtime, flight.batch, played)
        versions = self._trainable.versions(session)
        self._metrics = {
            "batches": len(self._flights),
            "groups_dropped": dropped,
            "waited_s": waited,
            "played_s": flight.seconds,
            "idle_s": self.idle.take(),
            "staleness": {name: versions[name] - version for name, version in flight.versions.items()},
        }
        return [_of_earlier_step(episode, versions) for episode in episodes]

    async def learned(self, step: int) -> None:
        """The learner is done with a step's episodes: what was held for them is freed."""
        flight = self._flights.pop(step, None)
        if flight is None or flight.task is None:
            return
        try:
            flight.task.cancel()
            await asyncio.wait({flight.task})
            if not flight.task.cancelled():
                flight.task.exception()  # it was raised where it was waited for, or is not wanted any more
        finally:
            await flight.leases.aclose()

    def metrics(self) -> dict[str, Any]:
        """Of the last step, by the names that metrics have. Without staleness and workers there is only
        `groups_dropped`, in a step whose batch a checkpoint of a run with staleness held.

        `batches` in flight while the learner works, `groups_dropped` as too old, seconds that the learner `waited` for
        the batch, that the batch was `played`, and in which neither a batch nor an evaluation was played since the step
        before (`idle_s`), and by how many updates the samples are older than each adapter (`staleness`).
        """
        return {"in_flight": self._metrics} if self._metrics else {}

    def batches(self, current: Mapping[str, int]) -> list[BatchStatus]:
        """Those in flight, oldest first. `current`: the adapters' versions of now."""
        return [
            BatchStatus(
                step=step + 1,
                groups=len(flight.batch.planned),
                is_sampled=flight.task is not None and flight.task.done(),
                versions=dict(flight.versions),
                ages={name: current[name] - version for name, version in flight.versions.items()},
            )
            for step, flight in sorted(self._flights.items())
        ]

    def held(self, current: Mapping[str, int]) -> set[AdapterRef]:
        """Adapter versions that samples are made with; with workers, those that they hold. `current`: see `batches`."""
        if self._workers is not None:
            return self._workers.held
        versions = [flight.versions for flight in self._flights.values()] or [current]
        return {AdapterRef(name, one) for own in versions for name, one in own.items()}

    def files(self, session: TeamSession) -> dict[str, bytes]:
        """What a checkpoint holds of batches in flight: relative names to contents; empty where there are none."""
        known: dict[int, _Batch] = {**self._resumed, **self._flights}
        if not known:
            return {}
        current = self._trainable.versions(session)
        records = [
            _Record(
                step=step,
                picks=tuple(planned.pick for planned in one.batch.planned),
                versions=dict(one.versions),
                faced=one.batch.faced,
            )
            for step, one in sorted(known.items())
        ]
        found = {_FILE: msgspec.json.encode(records)}
        older = {(name, version) for one in known.values() for name, version in one.versions.items()}
        for name, version in sorted(older - set(current.items())):
            assert self._base is not None
            weights = session.publishing.store.weights(f"{name}@{version}")
            files = to_files(weights, self._base.origin)
            found |= {f"{_FOLDER}/{name}@{version}/{file}": content for file, content in files.items()}
        return found

    def restore(self, checkpoint: Path) -> None:
        """Go on with the batches of a checkpoint.

        Raises:
            CheckpointError: they cannot be read.
        """
        if not (checkpoint / _FILE).is_file():
            return
        try:
            records = msgspec.json.decode((checkpoint / _FILE).read_bytes(), type=list[_Record])
        except (OSError, msgspec.MsgspecError) as error:
            raise CheckpointError(f"{checkpoint / _FILE} holds no batches in flight: {error}") from error
        for one in records:
            trained = self._trainable.assignment.trained_adapters(one.step)
            batch = self._rollout.batch_of(one.step, trained, one.picks, one.faced)
            self._resumed[one.step] = _Batch(batch, one.versions if self._staleness else {})
        if not self._staleness or self._base is None:
            return
        for path in sorted((checkpoint / _FOLDER).glob("*@*")):
            name, _, version = path.name.rpartition("@")
            self._resumed_weights[AdapterRef(name, int(version))] = from_directory(path, self._base.bank)

    async def _begin(self, session: TeamSession, step: int, *, ahead: int) -> int:
        """Play the batch of a step; how many groups were dropped, as the versions that they began with will be too old.

        Args:
            ahead: updates until it is learned from.
        """
        assignment, versions, dropped = self._trainable.assignment, self._trainable.versions(session), 0
        resumed = self._resumed.pop(step, None)
        if resumed is None:
            batch = self._rollout.draw(step, assignment.trained_adapters(step))
        else:
            batch = resumed.batch
            is_old = not resumed.versions or self._age(versions, resumed, range(step - ahead, step)) > self._staleness
            if is_old or not self._are_served(resumed.versions, versions):
                dropped = len(batch.planned)
            else:
                versions = resumed.versions
        adapters = {**self._adapters, **assignment.sampling_adapters(step)}
        speaking = {role: f"{name}@{versions[name]}" for role, name in adapters.items() if name and name in versions}
        batch.speaking.update(speaking)
        runtime = session.runtime  # which workers play in place of
        if self._workers is None:
            taken = [other.runtime for other in self._flights.values()]
            runtime = next(one for one in session.lanes if all(one is not other for other in taken))
            runtime.use_adapters(speaking)
        store = session.publishing.store
        async with AsyncExitStack() as leases:
            for ref in (AdapterRef(name, version) for name, version in versions.items()):
                await leases.enter_async_context(store.lease(str(ref)))
                if self._workers is not None:
                    await leases.enter_async_context(self._workers.holding(ref, store.weights(str(ref))))
            flight = _Flight(batch, versions, runtime, leases.pop_all())
        flight.task = asyncio.create_task(self._play(flight), name=f"batch-{step}")
        self._flights[step] = flight
        return dropped

    async def _release_resumed(self) -> None:
        """What has begun holds the versions that it samples with; what has not begins with those of now."""
        await self._resumed_leases.aclose()
        self._resumed_weights.clear()
        self._resumed = {step: _Batch(one.batch, {}) for step, one in self._resumed.items()}

    async def _play(self, flight: _Flight) -> PlayedGroups:
        began = time.perf_counter()
        with traced_rollout(self._traced), self.idle.busy():
            played = await self._rollout.play(flight.runtime, flight.batch)
        flight.seconds = time.perf_counter() - began
        return played

    def _are_served(self, wanted: Mapping[str, int], current: Mapping[str, int]) -> bool:
        """Whether these versions can be leased."""
        return all(
            current[name] == one or AdapterRef(name, one) in self._resumed_weights for name, one in wanted.items()
        )

    def _age(self, current: Mapping[str, int], batch: _Batch, before: Iterable[int]) -> int:
        """By how many updates the oldest adapter of a batch will be behind, after the steps before it."""
        assignment = self._trainable.assignment
        coming = Counter(
            name for step in before for name in {*assignment.trained_adapters(step).values(), *assignment.copies(step)}
        )
        ages = (current[name] + coming[name] - version for name, version in batch.versions.items())
        return max(ages, default=0)


def _played(flight: _Flight) -> list[Episode]:
    """Its episodes, if all are played; else none."""
    task = flight.task
    if task is None or not task.done() or task.cancelled() or task.exception() is not None:
        return []
    return [episode for group in task.result() for episode in group]


class _Record(msgspec.Struct, frozen=True, kw_only=True):
    """A batch in flight as a checkpoint has it. `faced`: task id -> opponent and the learner's seats."""

    step: int
    picks: tuple[Pick, ...]
    versions: dict[str, int]
    faced: dict[str, Matchup] = {}


def _of_earlier_step(episode: Episode, versions: Mapping[str, int]) -> Episode:
    """With the turns marked that other versions than these have sampled."""
    turns = tuple(
        turn
        if (ref := turn.adapter) is None or versions.get(ref.name, ref.version) == ref.version
        else msgspec.structs.replace(turn, is_replayed=True)
        for turn in episode.turns
    )
    return msgspec.structs.replace(episode, turns=turns)
