"""One life of a process that plays three episodes at once, writing them down in a journal.

    python life_worker.py JOURNAL

Its team has a list that is handed out, a join with a time limit, a join of two out of three, a loop, and a budget.
Prints `asked EPISODE TURN AGENT VISIT` when an agent begins to work, `answered …` when it has, and at the end what came
of the episodes, as JSON.
"""

import asyncio
import json
import random
import sys

from play_lives import World

from mas.bus.journal import Journal
from mas.bus.memory import MemoryBus
from mas.core.engine import Generation, Request
from mas.core.environment import Step
from mas.core.messages import Payload
from mas.core.policy import Budget, Budgets
from mas.core.seeds import derive_seed
from mas.graph import TeamPlan, compile_team
from mas.runtime.flow import Flow
from mas.runtime.play import DecisionPoint, team_action
from mas.runtime.replay_log import ReplayLog
from mas.runtime.team import TeamRuntime
from mas.testing.scripted import ScriptedEngine
from mas.testing.teams import team_of

EDGES = (
    "start -> maker", "maker -> worker map", "worker -> judge", "start -> hermit", "hermit -> judge",
    "judge -> v1", "judge -> v2", "judge -> v3", "v1 -> count", "v2 -> count", "v3 -> count",
    "count -> check", "check -> fix when again loop 2", "fix -> check", "check -> done when ok",
)  # fmt: skip
JOINS = {"judge": {"timeout_s": 0.15}, "count": 2, "check": "any", "done": "any"}
EPISODES, TURNS = ("e0", "e1", "e2"), 2
NEVER = ("hermit", "v3")
"""Agents that never answer: what comes of a turn does not depend on who is quick."""


def crowd() -> TeamPlan:
    spec, roles = team_of(EDGES, "check", JOINS)
    budget = Budgets(episode=Budget(calls=60), run=Budget(calls=3 * 60))
    return compile_team(spec.model_copy(update={"budget": budget}), roles)


class Voices(ScriptedEngine):
    """Takes a few milliseconds; `points`: seed -> what it is asked for."""

    def __init__(self) -> None:
        super().__init__(lambda role, adapter, seed: "")
        self.points: dict[int, tuple[str, int, str, int]] = {}

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        (seed,) = request.seeds
        point = self.points[seed]
        print("asked", *point, flush=True)
        await asyncio.sleep(random.random() / 50 if point[2] not in NEVER else 3600)
        self.answer = lambda role, adapter, seed: words(self.points[seed][2], self.points[seed][3])
        answer = await super().generate(request)
        print("answered", *point, flush=True)
        return answer


def words(agent: str, visit: int) -> str:
    if agent == "maker":
        return "x y z"
    if agent == "check":
        return "again" if visit < 2 else "ok"
    return f"{agent}{visit}"


async def played(runtime: TeamRuntime, engine: Voices, episode: str) -> list[object]:
    """What an episode came to: every turn's outputs, action and step, and the calls that are left of its budget."""
    came: list[object] = []
    left: list[int | None] = []

    async def decide(point: DecisionPoint) -> Payload:
        key = (episode, point.turn, point.agent, point.flow.visits(point.agent))
        seed = derive_seed(*key)
        engine.points[seed] = key
        (candidate,) = await runtime.ask(point, (seed,), episode=episode)
        if point.agent == "check":
            left.append(runtime.remaining(episode)["episode"].calls)
        return candidate.payload

    def on_turn(turn: int, flow: Flow, step: Step) -> None:
        outputs = {agent: payload.content for agent, payload in flow.outputs.items()}
        came.append([turn, outputs, team_action(flow), step.rewards["team"]])

    await runtime.play(episode, World(runtime.plan, TURNS), decide, on_turn)
    return [came, left]


async def live(path: str) -> dict[str, object]:
    """Play, or go on."""
    engine = Voices()
    with Journal.open(path) as journal:
        bus = MemoryBus()
        async with TeamRuntime(crowd(), engine, bus, adapters={}, log=ReplayLog(journal)) as runtime:
            came = await asyncio.gather(*(played(runtime, engine, episode) for episode in EPISODES))
        await bus.close()
    return dict(zip(EPISODES, came, strict=True))


if __name__ == "__main__":
    print(json.dumps(asyncio.run(live(sys.argv[1]))), flush=True)
