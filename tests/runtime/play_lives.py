"""A team that is played in several lives: each a runtime of its own on one record, in virtual time."""

import asyncio
from collections.abc import Callable, Mapping
from copy import deepcopy
from pathlib import Path
from typing import ClassVar

import msgspec
from virtual_time import play

from mas.bus.memory import MemoryBus
from mas.bus.plays import PlayRow, Plays
from mas.core.engine import Generation, Request
from mas.core.environment import EnvironmentSpec, Step, Task
from mas.core.messages import Payload
from mas.core.records import Attempt
from mas.core.seeds import derive_seed
from mas.graph import TeamPlan
from mas.runtime.flow import Flow
from mas.runtime.human import HumanDesk
from mas.runtime.play import DecisionPoint, view_names
from mas.runtime.replay_events import Event, read_event
from mas.runtime.replay_log import ReplayLog
from mas.runtime.team import TeamRuntime
from mas.scenarios.world import RecordEnvironment
from mas.testing.scripted import ScriptedEngine

Takes = Callable[[str, int], float]
"""(agent's role, seed) -> seconds that it takes to answer."""
Says = Callable[[str, int], str]
"""(agent's role, seed) -> what it says; raises what it fails with."""


class WorldState(msgspec.Struct, frozen=True):
    """What the team did so far."""

    actions: tuple[str, ...] = ()
    name: str = ""


class World(RecordEnvironment[WorldState]):
    """Shows what was done, for so many turns. `steps`: how many it made itself."""

    state_type: ClassVar[type[msgspec.Struct]] = WorldState

    def __init__(self, plan: TeamPlan, turns: int = 2, task: str = "task") -> None:
        views = tuple(dict.fromkeys(view_names(plan).values()))
        spec = EnvironmentSpec(name="world", seats=(plan.spec.seat,), views=views, max_turns=turns, terms=("done",))
        super().__init__(spec)
        self.steps = 0
        self.reset(Task(id=task, seed=0))

    def initial(self, task: Task) -> WorldState:
        return WorldState(name=task.id)

    def fields(self, state: WorldState, view: str) -> Mapping[str, str]:
        return {"view": view, "done": " ".join(state.actions)}

    def legal(self, seat: str) -> tuple[str, ...] | None:
        return None

    def act(self, state: WorldState, action: str) -> tuple[WorldState, dict[str, float], bool]:
        self.steps += 1
        return msgspec.structs.replace(state, actions=(*state.actions, action)), {"done": len(state.actions)}, True

    def is_over(self, state: WorldState) -> bool:
        return len(state.actions) == self.spec.max_turns

    def is_solved(self, state: WorldState) -> bool:
        return self.is_over(state)

    def render(self) -> str:
        return " ".join(self.state.actions)


class Voices(ScriptedEngine):
    """Takes its time. `asked`: the seeds of what was asked, `answered`: of what was answered."""

    def __init__(self, takes: Takes, says: Says) -> None:
        super().__init__(lambda role, _, seed: says(role, seed))
        self.takes = takes
        self.asked: list[int] = []
        self.answered: list[int] = []

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        (seed,) = request.seeds
        self.asked.append(seed)
        await asyncio.sleep(self.takes(self.tokenizer.decode(request.prompt_ids), seed))
        answer = await super().generate(request)
        self.answered.append(seed)
        return answer


class MemoryPlays(Plays):
    """The plays of a journal without its file: a test can have hundreds. `sync_s`: what a sync takes."""

    def __init__(self, sync_s: float = 0.0) -> None:
        self.sync_s, self.syncs = sync_s, 0
        self.path = Path("bus.sqlite")
        self.held: dict[str, PlayRow] = {}
        self.frames: list[tuple[str, bytes]] = []
        self.said: dict[str, str] = {}

    def rows(self) -> list[PlayRow]:
        return list(self.held.values())

    def row(self, team: str, episode: str) -> PlayRow | None:
        return next((row for row in self.rows() if (row.team, row.episode) == (team, episode)), None)

    def events(self, play: str) -> list[bytes]:
        return [frame for name, frame in self.frames if name == play]

    def replies(self) -> dict[str, str]:
        return dict(self.said)

    def begin(self, play: str, team: str, episode: str, frame: bytes) -> None:
        self.held[play] = PlayRow(
            id=play, team=team, episode=episode, frame=frame, at=0, clock_s=0, lives=0, ended=None, failure=None
        )

    def live(self, play: str) -> None:
        self._change(play, lives=self.held[play].lives + 1, failure=None)

    def add(self, play: str, frame: bytes) -> None:
        self.frames.append((play, frame))

    def tick(self, play: str, clock_s: float) -> None:
        self._change(play, clock_s=clock_s)

    def fail(self, play: str, failure: str) -> None:
        self._change(play, failure=failure)

    def end(self, play: str) -> None:
        self._change(play, ended=len(self.frames))

    def reply(self, question: str, text: str) -> None:
        self.said[question] = text

    async def is_safe(self) -> None:
        if self.sync_s:
            self.syncs += 1  # who waits first wakes first
            await asyncio.sleep(self.sync_s + self.syncs * 1e-9)

    async def flush(self) -> None:
        return None

    def written(self) -> list[Event]:
        """What is written down, in order."""
        return [read_event(frame) for _, frame in self.frames]

    def cut(self, number: int) -> "MemoryPlays":
        """A copy as a kill would have left it after so many events."""
        copy = deepcopy(self)
        del copy.frames[number:]
        for name in copy.held:
            copy._change(name, ended=None, failure=None, clock_s=0.0)
        return copy

    def _change(self, play: str, **fields: object) -> None:
        self.held[play] = msgspec.structs.replace(self.held[play], **fields)


class MemoryLog(ReplayLog):
    """A log of `MemoryPlays`."""

    def __init__(self, plays: MemoryPlays) -> None:
        self.path, self._plays, self._replies = plays.path, plays, plays.replies()
        self._open, self._has_written = set(), False


class Life:
    """One life of a play, and what its player saw."""

    def __init__(self, plan: TeamPlan, plays: MemoryPlays, takes: Takes, says: Says, *, task: str = "task") -> None:
        self.plan, self.plays = plan, plays
        self.engine = Voices(takes, says)
        self.world = World(plan, task=task)
        self.turns: list[tuple[str, object, Step]] = []
        self.lines: list[tuple[int, str, int, str]] = []
        self.attempts: list[Attempt] = []
        self.ids: list[str] = []
        self.error: Exception | None = None
        self.seconds = 0.0
        self.desk = HumanDesk(log=MemoryLog(plays))

    @property
    def saw(self) -> tuple[object, ...]:
        """All that the player saw, in order."""
        return self.turns, self.lines, self.attempts, self.world.state_key()

    def run(self, *, until_s: float | None = None, **settings: int) -> "Life":
        """Play in virtual time; `until_s`: the process is killed then."""
        play(self._run(until_s, settings))
        return self

    async def _run(self, until_s: float | None, settings: dict[str, int]) -> None:
        bus = MemoryBus(clock=asyncio.get_running_loop().time)
        addresses = {f"{self.plan.spec.name}/{name}" for name in (*self.plan.roles, *self.plan.stand_ins)}
        bus.tap(lambda envelope: self.ids.append(envelope.id) if envelope.target in addresses else None)
        log = MemoryLog(self.plays)
        async with TeamRuntime(self.plan, self.engine, bus, adapters={}, log=log, desk=self.desk) as self.runtime:
            try:
                async with asyncio.timeout(until_s):
                    await self.runtime.play(
                        "e", self.world, self.decide, self.on_turn, on_attempt=self.attempts.append, settings=settings
                    )
            except Exception as error:  # noqa: BLE001 - looked at by the test
                self.error = error
            self.seconds = asyncio.get_running_loop().time()
        await bus.close()

    async def decide(self, point: DecisionPoint) -> Payload:
        visit = point.flow.visits(point.agent)
        seed = derive_seed(point.turn, point.agent, visit)
        (candidate,) = await self.runtime.ask(point, (seed,), episode="e")
        self.lines.append((point.turn, point.agent, visit, candidate.text))
        return candidate.payload

    def on_turn(self, turn: int, flow: Flow, step: Step) -> None:
        self.turns.append((flow.key(), flow.outputs, step))
