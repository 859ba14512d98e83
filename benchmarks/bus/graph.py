"""A planner and an executor, one after the other: `relay`'s team, whose second agent needs what the first one says.

Two rows: the scheduler alone, whose nodes are functions, as langgraph's are; and all that an episode is.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from mas.bus.memory import MemoryBus
from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Step, Task
from mas.core.errors import RunError
from mas.core.messages import Action, Payload, Plan
from mas.core.scenario import Scenario
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runtime.flow import Flow
from mas.runtime.play import DecisionPoint, look, play_turn
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine

FLOW = "mas: token flow"
EPISODE = "mas: episode"
SIGNALS = "abcd"
"""What the planner says for the keys A to D."""


def relay() -> Scenario:
    """The scenario."""
    return build_scenario(ScenarioOptions(name="relay"))


def signal_for(goal: str) -> str:
    """What a planner says that sees this key."""
    return goal.lower()


def digit_for(table: str, signal: str) -> str:
    """What an executor answers that sees this table."""
    return table[SIGNALS.index(signal)]


def say(prompt: str, adapter: str | None, seed: int) -> str:
    """The script of both agents: `PB>` is answered by `b`, `E0123;b>` by `1`."""
    kind, content = prompt[0], prompt[1:-1]
    return signal_for(content) if kind == "P" else digit_for(*content.split(";"))


class TokenFlow:
    """`play_turn` from `start` to the team's action; an agent is a function from its view to its payload."""

    name = FLOW

    def __init__(self, runs: int) -> None:
        scenario = relay()
        team = scenario.teams["team"]
        self._runs = runs
        self._plan = compile_team(team, build_roles(team))
        self._environment = scenario.environment()
        self._environment.reset(scenario.task("train", 0))
        self._observations = look(self._plan, self._environment)
        fields = self._environment.observe("solo").fields
        self._right = digit_for(fields["table"], signal_for(fields["goal"]))

    async def run(self, number: int) -> int:
        for _ in range(self._runs):
            start = Flow.start(self._plan)
            flow = await play_turn(start, self._environment, self._observations, 0, self._decide)
            check_digit(flow.action(), self._right)
        return self._runs

    async def _decide(self, point: DecisionPoint) -> Payload:
        view = point.view
        if point.agent == "planner":
            return Plan(text=signal_for(view.observation.fields["goal"]))
        return Action(text=digit_for(view.observation.fields["table"], view.messages[-1].payload.content))


class PlayedEpisode:
    """`TeamRuntime.play`: environment and agents on the bus, prompts, tokens, a scripted engine, parsing, the step."""

    name = EPISODE

    def __init__(self, runs: int, runtime: TeamRuntime, environment: Environment, task: Task) -> None:
        self._runs = runs
        self._runtime = runtime
        self._environment = environment
        self._task = task

    async def run(self, number: int) -> int:
        for index in range(self._runs):
            self._environment.reset(self._task)
            await self._runtime.play(f"{number}/{index}", self._environment, self._decide, _ignore)
            if not self._environment.success():
                raise RunError("an episode was not solved by the script: the measurement means nothing")
        return self._runs

    async def _decide(self, point: DecisionPoint) -> Payload:
        (candidate,) = await self._runtime.ask(point, (0,), episode="")
        return candidate.payload


@asynccontextmanager
async def open_episode(runs: int) -> AsyncIterator[PlayedEpisode]:
    """The team at work on a bus of its own."""
    scenario = relay()
    team, bus = scenario.teams["team"], MemoryBus()
    engine = ScriptedEngine(say)
    plan = compile_team(team, build_roles(team))
    async with TeamRuntime(plan, engine, bus, adapters=dict.fromkeys(team.roles)) as runtime:
        yield PlayedEpisode(runs, runtime, scenario.environment(), scenario.task("train", 0))
    await bus.close()


def check_digit(action: Payload | None, right: str) -> None:
    """Refuse a wrong answer.

    Raises:
        RunError: the measurement means nothing.
    """
    if action is None or action.content != right:
        raise RunError(f"a run ended with {action!r} instead of {right!r}: the measurement means nothing")


def _ignore(turn: int, flow: Flow, step: Step) -> None:
    """Nobody looks at the turns."""
