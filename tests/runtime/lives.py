"""A team that is played in several lives: each a runtime of its own on one journal, in virtual time."""

import asyncio
import shutil
import sqlite3
from collections.abc import Callable, Mapping
from contextlib import closing
from pathlib import Path
from typing import ClassVar

import msgspec
from virtual_time import play

from mas.bus.journal import Journal
from mas.bus.memory import MemoryBus
from mas.core.engine import Generation, Request
from mas.core.environment import EnvironmentSpec, Step, Task
from mas.core.messages import Payload
from mas.core.records import Attempt
from mas.core.seeds import derive_seed
from mas.graph import Plan
from mas.runtime.events import Event, read_event
from mas.runtime.flow import Flow
from mas.runtime.play import Point, view_names
from mas.runtime.runlog import RunLog
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

    def __init__(self, plan: Plan, turns: int = 2, task: str = "task") -> None:
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


class Life:
    """One life of a play, and what its player saw."""

    def __init__(self, plan: Plan, path: Path, takes: Takes, says: Says, *, task: str = "task") -> None:
        self.plan, self.path = plan, path
        self.engine = Voices(takes, says)
        self.world = World(plan, task=task)
        self.turns: list[tuple[str, object, Step]] = []
        self.lines: list[tuple[int, str, int, str]] = []
        self.attempts: list[Attempt] = []
        self.ids: list[str] = []
        self.error: Exception | None = None
        self.seconds = 0.0

    @property
    def saw(self) -> tuple[object, ...]:
        """All that the player saw, in order."""
        return self.turns, self.lines, self.attempts, self.world.state_key()

    def run(self, *, until_s: float | None = None, **settings: int) -> "Life":
        """Play in virtual time; `until_s`: the process is killed then."""
        play(self._run(until_s, settings))
        return self

    async def _run(self, until_s: float | None, settings: dict[str, int]) -> None:
        with Journal.open(self.path, durability="async") as journal:
            bus = MemoryBus(clock=asyncio.get_running_loop().time)
            bus.tap(lambda envelope: self.ids.append(envelope.id) if envelope.kind == "ask" else None)
            runtime = TeamRuntime(self.plan, self.engine, bus, adapters={}, log=RunLog(journal))
            async with runtime:
                self.runtime = runtime
                try:
                    async with asyncio.timeout(until_s):
                        await runtime.play(
                            "e",
                            self.world,
                            self.decide,
                            self.on_turn,
                            on_attempt=self.attempts.append,
                            settings=settings,
                        )
                except Exception as error:  # noqa: BLE001 - looked at by the test
                    self.error = error
                self.seconds = asyncio.get_running_loop().time()
            await bus.close()

    async def decide(self, point: Point) -> Payload:
        visit = point.flow.visits(point.agent)
        seed = derive_seed(point.turn, point.agent, visit)
        (candidate,) = await self.runtime.ask(point, (seed,), episode="e")
        self.lines.append((point.turn, point.agent, visit, candidate.text))
        return candidate.payload

    def on_turn(self, turn: int, flow: Flow, step: Step) -> None:
        self.turns.append((flow.key(), flow.outputs, step))


def events(path: Path) -> list[Event]:
    """What is written down of the plays of a journal."""
    with closing(sqlite3.connect(path)) as connection:
        return [read_event(frame) for (frame,) in connection.execute("SELECT frame FROM event ORDER BY seq")]


def cut(path: Path, number: int) -> Path:
    """A copy of a journal as a kill would have left it after so many events."""
    copy = path.with_name(f"{path.stem}-{number}.sqlite")
    shutil.copy(path, copy)
    with closing(sqlite3.connect(copy)) as connection, connection:
        connection.execute("DELETE FROM event WHERE seq > ?", (number,))
        connection.execute("UPDATE play SET ended = NULL, failure = NULL, clock_s = 0")
    return copy
