"""Which episodes programs play: the places of the groups that are compared, and the episodes under way.

A step asks for `candidates` episodes of each of its tasks. Programs take one after the other (`lease`), or, where they
have tasks of their own, begin them by name (`begin`). Nothing of another step begins before the step is learned from:
all turns of a step are of the same adapter versions. An episode that is not heard of any more, or failed, is given to
another program; after `ATTEMPTS` it stays in the record as failed.
"""

import asyncio
import secrets
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any, Literal
from weakref import WeakValueDictionary

from mas.core.concurrency import together
from mas.core.engine import Tokenizer
from mas.core.environment import Task
from mas.core.records import Attempt, Cost, Episode
from mas.core.seeds import derive_seed
from mas.endpoint.errors import Refused
from mas.gateway.recorded import EpisodeBuilder, EpisodeEnd, ProgramEpisode, failed_attempt
from mas.scenarios.program import ProgramScenario
from mas.training.tasks.plan import Arm, TaskOrder

ATTEMPTS = 3
"""How often an episode is tried that fails, or of which nothing more is heard."""
_REMEMBERED = 4096
"""Ended episodes whose end may be said again, by a client that did not get the answer."""
_LEAVING_S = 1.0
"""How long the end of an episode waits for its calls: that a program has left a stream is noticed a moment later."""
Kind = Literal["train", "greedy", "sampled"]


@dataclass(slots=True, kw_only=True, eq=False)
class TaskGroup:
    """The episodes of one task that are compared.

    Attributes:
        task: its id; None: of a program's own task, until one begins. row: what programs are given.
        temperature: of all roles; None: each role's own.
        touched: when it was last heard of, monotonic seconds.
    """

    task: str | None
    row: Mapping[str, Any] | None
    kind: Kind
    temperature: float | None
    places: list["Place"] = field(default_factory=list)
    touched: float = field(default_factory=time.monotonic)


@dataclass(slots=True, kw_only=True, eq=False)
class Place:
    """One of them. `spent`: on attempts that came to nothing; `playing`: the attempt under way."""

    group: TaskGroup
    number: int
    seed: int
    played: asyncio.Future[Episode]
    attempts: list[Attempt] = field(default_factory=list)
    spent: Cost = field(default_factory=Cost)
    playing: ProgramEpisode | None = None

    @property
    def is_open(self) -> bool:
        """Whether it waits for a program."""
        return self.playing is None and not self.played.done()

    def seed_of(self, role: str, number: int) -> int:
        """Of a role's call; another one in every attempt."""
        return derive_seed("call", self.seed, len(self.attempts), role, number)


@dataclass(frozen=True, slots=True)
class Leased:
    """An episode that a program plays now."""

    place: Place
    episode: ProgramEpisode


class EpisodeQueue:
    """Satisfies `mas.training.tasks.plan.ProgramPlayer`.

    Programs name the episodes of tasks of their own; of others the names cannot be guessed.

    Args:
        arms: where training tasks come from.
        candidates: episodes of a task that are compared.
        idle_s: an episode without a call for so long is given up.
        now: monotonic seconds.
    """

    def __init__(
        self,
        scenario: ProgramScenario,
        arms: Mapping[str, Arm],
        tokenizer: Tokenizer,
        *,
        candidates: int,
        idle_s: float,
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._scenario, self._arms, self._tokenizer = scenario, arms, tokenizer
        self._candidates, self._idle_s, self._now = candidates, idle_s, now
        self._groups: list[TaskGroup] = []
        self._leased: dict[str, Leased] = {}
        self._ended: dict[str, EpisodeEnd | None] = {}
        self._order: deque[str] = deque()
        self._beginning = WeakValueDictionary[str, asyncio.Lock]()
        self._changed = asyncio.Condition()
        self.waiting = 0
        """Programs that wait for an episode."""
        self.over = ""
        """Why training is over; empty while it is not."""

    @property
    def has_tasks(self) -> bool:
        """Whether programs are given tasks; False: they have tasks of their own."""
        return self._scenario.rows is not None

    @property
    def counts(self) -> Mapping[str, int]:
        """Episodes that are wanted now: `open`, `playing`, `played`."""
        places = [place for group in self._groups for place in group.places]
        played = sum(place.played.done() for place in places)
        playing = sum(place.playing is not None for place in places)
        return {"open": len(places) - played - playing, "playing": playing, "played": played}

    async def play(self, order: TaskOrder) -> Sequence[Episode]:
        """The episodes of a task, as programs play them."""
        arm = self._arms[order.pick.arm]
        assert isinstance(arm.scenario, ProgramScenario)
        task, row = arm.task(order.pick.index), arm.scenario.row(arm.task(order.pick.index))
        seeds = [derive_seed("episode", order.seed, k) for k in range(self._candidates)]
        return await self._played(self._group(task.id, row, "train", None, seeds))

    async def evaluate(
        self, tasks: Sequence[Task], *, temperature: float | None, seed: int, on_played: Callable[[], None]
    ) -> list[Episode]:
        """One episode of each task."""
        kind: Kind = "greedy" if temperature == 0 else "sampled"

        async def one(task: Task, index: int) -> Episode:
            seeds = [derive_seed("evaluate", seed, index)]
            group = self._group(task.id, self._scenario.row(task), kind, temperature, seeds)
            (episode,) = await self._played(group)
            on_played()
            return episode

        return await together([one(task, index) for index, task in enumerate(tasks)], "evaluate")

    async def lease(self, wait_s: float) -> Leased | None:
        """The next episode for a program to play. None: there was none within `wait_s`, or training is over."""
        return await self._taken(self._next_listed, wait_s, secrets.token_hex(12))

    async def give_back(self, leased: Leased) -> None:
        """An episode whose program left before the answer came: another one gets it, and no attempt is counted."""
        if self._leased.pop(leased.episode.key, None) is not None:  # else its step has ended meanwhile
            leased.place.playing = None
            await self._tell()

    async def begin(self, task: str, key: str, wait_s: float) -> Leased:
        """The episode that a program calls `key`, of a task of its own; it begins if there is none.

        Raises:
            Refused: there was no place for it within `wait_s`, it is over or of another task, or training is over.
        """
        async with self._beginning.setdefault(key, asyncio.Lock()):  # its first calls may come together
            if key in self._leased or key in self._ended:
                leased = self.find(key)
                if (other := leased.place.group.task) != task:
                    raise Refused(
                        409,
                        f"episode {key!r} is of task {other!r}, not of {task!r}: give every episode of a step a name "
                        "of its own",
                        param="id",
                        code="other_task",
                    )
                return leased
            if (taken := await self._taken(lambda: self._next_named(task), wait_s, key)) is not None:
                return taken
        if self.over:
            raise Refused(410, f"training is over: {self.over}", code="over")
        waiting = [f"{group.task} ({sum(one.is_open for one in group.places)})" for group in self._groups if group.task]
        raise Refused(
            503,
            f"no episode of task {task!r} can begin now: {self._candidates} episodes of a task are compared, and the "
            f"step waits for others of {', '.join(waiting) or 'no task'}; play those first, or wait",
            code="step_full",
        )

    def find(self, key: str) -> Leased:
        """The episode that a program plays.

        Raises:
            Refused: there is none of this name, or it is over.
        """
        if (found := self._leased.get(key)) is not None:
            self.touch(found)
            return found
        if key in self._ended:
            raise Refused(410, "this episode is over, so that nothing of it is learned any more", code="episode_over")
        raise Refused(404, f"no episode {key[:64]!r} is played: begin one with POST /v1/episodes", code="no_episode")

    def touch(self, leased: Leased) -> None:
        """Something was heard of an episode."""
        leased.episode.touched = leased.place.group.touched = self._now()

    async def end(self, key: str, end: EpisodeEnd) -> None:
        """An episode is over, or could not be played. The same end may be said again.

        Raises:
            Refused: there is no such episode, another end was said, it has no call, or one is not answered yet.
        """
        if end.failed is None and (playing := self._leased.get(key)) is not None and playing.episode.under_way:
            with suppress(TimeoutError):
                async with asyncio.timeout(_LEAVING_S):
                    await playing.episode.quiet.wait()
        if key in self._ended and self._ended[key] == end:
            return
        leased = self.find(key)
        if end.failed is not None:
            await self._give_up(leased, end.failed, end)
            return
        place, episode = leased.place, leased.episode
        if episode.under_way:
            raise Refused(409, f"{episode.under_way} calls of this episode are not answered yet", code="under_way")
        roles = {call.role for call in episode.calls}
        if unknown := [role for role in end.rewards if role not in roles]:
            raise Refused(400, f"rewards has {unknown[0]!r}, a role without a call in this episode", param="rewards")
        if not episode.calls:
            raise Refused(
                409, "no model was called in this episode: call one with the episode in the address or a header, or "
                'end it with {"failed": "why"}', code="no_calls"
            )  # fmt: skip
        self._forget(key, end)
        place.playing = None
        place.played.set_result(self._builder(place).played(episode, end, place.attempts, place.spent))
        await self._tell()

    async def close(self, why: str) -> None:
        """Training is over: nothing begins any more."""
        self.over = why or "it was stopped"
        await self._tell()

    @asynccontextmanager
    async def watching(self) -> AsyncIterator[None]:
        """Within the block episodes that are not heard of are given up."""
        watch = asyncio.create_task(self._watch(), name="gateway-watch")
        try:
            yield
        finally:
            watch.cancel()
            await asyncio.wait([watch])
            if not watch.cancelled():
                watch.result()

    async def _watch(self) -> None:
        while True:
            await asyncio.sleep(min(1.0, self._idle_s / 4))
            await self.expire()

    async def expire(self) -> None:
        """Give up episodes, and places of programs' own tasks, that were not heard of for too long."""
        late = self._now() - self._idle_s
        for key, leased in [*self._leased.items()]:
            is_there = self._leased.get(key) is leased  # it may have ended while another was given up
            if is_there and not leased.episode.under_way and leased.episode.touched < late:
                await self._give_up(leased, f"nothing was heard of it for {self._idle_s:g} s", None)
        if self.has_tasks:
            return
        for group in self._groups:
            is_idle = group.task is not None and group.touched < late
            if is_idle and all(one.playing is None for one in group.places):
                for place in group.places:
                    if place.is_open:
                        cause = f"no further episode of this task began within {self._idle_s:g} s"
                        place.played.set_result(self._builder(place).failed(None, cause, place.attempts, place.spent))

    def _group(
        self, task: str, row: Mapping[str, Any] | None, kind: Kind, temperature: float | None, seeds: Sequence[int]
    ) -> TaskGroup:
        group = TaskGroup(task=task if self.has_tasks else None, row=row, kind=kind, temperature=temperature)
        loop = asyncio.get_running_loop()
        group.places += [
            Place(group=group, number=number, seed=seed, played=loop.create_future())
            for number, seed in enumerate(seeds)
        ]
        return group

    async def _played(self, group: TaskGroup) -> list[Episode]:
        self._groups.append(group)
        await self._tell()
        try:
            return [await place.played for place in group.places]
        finally:
            self._groups.remove(group)
            for key in [key for key, one in self._leased.items() if one.place.group is group]:
                self._forget(key, None)

    async def _taken(self, find: Callable[[], Place | None], wait_s: float, key: str) -> Leased | None:
        """The place that is found first, with an episode that begins in it."""
        self.waiting += 1
        try:
            async with asyncio.timeout(wait_s), self._changed:
                while not self.over:
                    if (place := find()) is not None:
                        episode = place.playing = ProgramEpisode(key=key, touched=self._now())
                        leased = self._leased[key] = Leased(place, episode)
                        self.touch(leased)
                        return leased
                    await self._changed.wait()
        except TimeoutError:
            pass
        finally:
            self.waiting -= 1
        return None

    def _next_listed(self) -> Place | None:
        return next((place for group in self._groups for place in group.places if place.is_open), None)

    def _next_named(self, task: str) -> Place | None:
        own = [group for group in self._groups if group.task == task]
        for place in (place for group in own for place in group.places):
            if place.is_open:
                return place
        free = next((group for group in self._groups if group.task is None), None)
        if free is None:
            return None
        free.task = task
        return free.places[0]

    async def _give_up(self, leased: Leased, cause: str, end: EpisodeEnd | None) -> None:
        """An attempt came to nothing: somebody else tries, or the place fails."""
        place, episode = leased.place, leased.episode
        self._forget(episode.key, end)
        place.playing = None
        place.attempts.append(failed_attempt(len(place.attempts) + 1, cause))
        if len(place.attempts) >= ATTEMPTS:
            text = f"{ATTEMPTS} attempts failed, the last one: {cause}"
            place.played.set_result(self._builder(place).failed(episode, text, place.attempts, place.spent))
        else:
            place.spent += episode.cost
        await self._tell()

    def _builder(self, place: Place) -> EpisodeBuilder:
        task = place.group.task or "none"
        return EpisodeBuilder(
            id=f"{task}#{place.seed:016x}",
            task=task,
            seed=place.seed,
            number=place.number,
            compare=self._scenario.options.compare,
            tokenizer=self._tokenizer,
        )

    def _forget(self, key: str, end: EpisodeEnd | None) -> None:
        self._leased.pop(key, None)
        self._ended[key] = end
        self._order.append(key)
        if len(self._order) > _REMEMBERED:
            self._ended.pop(self._order.popleft(), None)

    async def _tell(self) -> None:
        async with self._changed:
            self._changed.notify_all()
