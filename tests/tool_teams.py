"""Teams that call tools of the small MCP servers in `mcp_servers`, and an episode of one."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from mas.bus.memory import MemoryBus
from mas.config.options import ScenarioOptions
from mas.core.messages import Payload
from mas.core.team import TeamSpec
from mas.graph import compile_team, load_team
from mas.roles import build_roles
from mas.runtime.play import DecisionPoint
from mas.runtime.replay_log import ReplayLog
from mas.runtime.team import TeamRuntime
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine
from mas.tools.recorded import RecordedTools

SERVERS = Path(__file__).parent / "mcp_servers"
TOOLS = ("add", "count", "tell", "die", "fail", "long")


def good(log: Path, **more: Any) -> dict[str, Any]:
    """The server that does right; `log`: where it writes down its calls."""
    log.touch()
    return {"command": sys.executable, "args": [str(SERVERS / "good.py"), str(log)], "env": ["PYTHONPATH"], **more}


def hostile(wrong: str, **more: Any) -> dict[str, Any]:
    """The server that does wrong."""
    return {"command": sys.executable, "args": [str(SERVERS / "hostile.py"), wrong], **more}


def team_with(server: Mapping[str, Any], tools: Mapping[str, str] | list[str], name: str = "good") -> TeamSpec:
    """A solver that calls tools, as often as four times a turn, before it acts."""
    return load_team(
        {
            "name": "callers",
            "tools": {name: server},
            "roles": {
                "solver": {"type": "executor", "view": "solo", "tools": tools, "context": "turn", "max_tokens": 400},
                "clerk": {"voice": "tools", "view": "solo"},
            },
            "edges": [
                "start -> solver",
                "solver -> clerk when call",
                "clerk -> solver loop 4",
                "solver -> done when answer",
            ],
            "joins": {"solver": "any"},
            "output": "solver",
        }
    )


async def played(
    team: TeamSpec, engine: ScriptedEngine, tools: RecordedTools, episode: str = "e", log: ReplayLog | None = None
) -> list[tuple[str, str]]:
    """Who said what in an episode of `relay`."""
    environment = build_scenario(ScenarioOptions(name="relay")).environment()
    environment.reset(build_scenario(ScenarioOptions(name="relay")).task("eval", 0))
    said = []
    bus = MemoryBus()
    plan = compile_team(team, build_roles(team))
    async with TeamRuntime(plan, engine, bus, adapters={}, chats=True, tools=tools, log=log) as runtime:

        async def decide(point: DecisionPoint) -> Payload:
            (candidate,) = await runtime.ask(point, (1,), episode=episode)
            said.append((point.agent, candidate.payload.content))
            return candidate.payload

        await runtime.play(episode, environment, decide, lambda turn, flow, step: None, settings={"seed": 1})
    await bus.close()
    return said
