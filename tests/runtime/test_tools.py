"""Episodes of teams that call tools of a real MCP server: results, refusals, the record, and what a kill leaves."""

import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

from tool_teams import good, played, team_with

from mas.bus.journal import Journal
from mas.bus.memory import MemoryBus
from mas.core.errors import ConfigError
from mas.graph import compile_team, load_team
from mas.roles import build_roles
from mas.runtime.replay_log import ReplayLog
from mas.runtime.team import TeamRuntime
from mas.testing.scripted import ScriptedEngine
from mas.tools.recorded import open_tools


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", os.environ.get("PYTHONPATH", ""))


def call(tool: str, **arguments: object) -> str:
    return json.dumps({"name": f"good.{tool}", "arguments": arguments})


def saying(*texts: str) -> ScriptedEngine:
    """An engine that says these texts one after the other."""
    left: Iterator[str] = iter(texts)
    return ScriptedEngine(lambda prompt, adapter, seed: next(left), context=20_000)


def lines(log: Path) -> list[str]:
    return log.read_text().splitlines()


async def test_a_role_calls_tools_and_then_acts(tmp_path: Path) -> None:
    log = tmp_path / "log"
    engine = saying(call("add", a=20, b=22), f"I count.<tool_call>\n{call('count')}\n</tool_call>", "7")
    async with open_tools(team_with(good(log), {"good.add": "Adds a and b.", "good.count": ""})) as tools:
        said = await played(team_with(good(log), {"good.add": "Adds a and b.", "good.count": ""}), engine, tools)
    assert [one for one in said if one[0] == "clerk"] == [("clerk", "42"), ("clerk", "1")]
    assert said[-1] == ("solver", "7")
    assert lines(log) == ["add 20 22", "count"]
    prompts = [engine.tokenizer.decode(request.prompt_ids) for request in engine.requests]
    assert "- good.add: Adds a and b.\n- good.count" in prompts[0]
    assert "clerk says: 42" in prompts[1]


async def test_what_a_role_may_not_call_is_denied_and_the_server_never_hears_of_it(tmp_path: Path) -> None:
    log = tmp_path / "log"
    team = team_with(good(log), ["good.add"])
    texts = (call("count"), '{"name": "other.tool", "arguments": {}}', '{"name": 3}', call("add", a="1"), "7")
    async with open_tools(team) as tools:
        said = [text for agent, text in await played(team, saying(*texts), tools) if agent == "clerk"]
    assert said[:2] == [
        "denied: 'solver' may not call 'good.count'; it may call: good.add",
        "denied: 'solver' may not call 'other.tool'; it may call: good.add",
    ]
    assert said[2].startswith("error: this is no tool call")
    assert said[3].startswith("error: tool 'good.add': parameter 'a' is '1'")
    assert lines(log) == []


async def test_an_agent_has_the_tools_of_its_own_role_alone(tmp_path: Path) -> None:
    log = tmp_path / "log"
    team = load_team(
        {
            "name": "two",
            "tools": {"good": good(log)},
            "roles": {
                "first": {"view": "solo", "tools": ["good.add"], "max_tokens": 200},
                "second": {"view": "solo", "tools": ["good.count"], "max_tokens": 200},
                "clerk": {"voice": "tools", "view": "solo"},
                "judge": {"type": "executor", "view": "solo"},
            },
            "edges": [
                "start -> first",
                "start -> second",
                "first -> clerk",
                "second -> clerk",
                "clerk -> judge",
                "judge -> done",
            ],
            "output": "judge",
        }
    )
    engine = ScriptedEngine(lambda prompt, adapter, seed: "7" if "clerk says" in prompt else call("count"))
    async with open_tools(team) as tools:
        said = dict(await played(team, engine, tools))
    assert said["clerk"] == "first: denied: 'first' may not call 'good.count'; it may call: good.add\nsecond: 1"


async def test_equal_calls_of_an_episode_are_numbered_and_another_episode_calls_anew(tmp_path: Path) -> None:
    log, team = tmp_path / "log", team_with(good(tmp_path / "log"), ["good.count"])
    async with open_tools(team) as tools:
        first = await played(team, saying(call("count"), call("count"), "7"), tools)
        again = await played(team, saying(call("count"), call("count"), "7"), tools)
        other = await played(team, saying(call("count"), "7"), tools, episode="f")
    assert [text for agent, text in first if agent == "clerk"] == ["1", "2"]
    assert again == first
    assert [text for agent, text in other if agent == "clerk"] == ["3"]
    assert len(lines(log)) == 3


async def test_calls_are_known_to_the_next_process_and_are_on_disk_at_once(tmp_path: Path) -> None:
    log, record = tmp_path / "log", tmp_path / "calls.sqlite"
    team = team_with(good(log), ["good.count"])
    found = []
    for _ in range(2):
        async with open_tools(team, record) as tools:
            found.append(await played(team, saying(call("count"), "7"), tools))
            with closing(sqlite3.connect(record)) as other:  # what a process would find that comes after a kill
                assert other.execute("SELECT tool, result FROM calls").fetchall() == [("good.count", "1")]
    assert found[0] == found[1]
    assert lines(log) == ["count"]


async def test_a_play_with_a_log_goes_on_without_calling_again(tmp_path: Path) -> None:
    log, team = tmp_path / "log", team_with(good(tmp_path / "log"), ["good.count"])

    class Killed(Exception):
        pass

    def first(prompt: str, adapter: str | None, seed: int) -> str:
        if "clerk says" in prompt:
            raise Killed
        return call("count")

    with Journal.open(tmp_path / "journal") as journal:
        async with open_tools(team) as tools:
            with pytest.raises(Exception, match="Killed"):
                await played(team, ScriptedEngine(first), tools, log=ReplayLog(journal))
    assert lines(log) == ["count"]
    with Journal.open(tmp_path / "journal") as journal:
        async with open_tools(team) as tools:
            said = await played(team, saying("7"), tools, log=ReplayLog(journal))
    assert said == [("solver", call("count")), ("clerk", "1"), ("solver", "7")]
    assert lines(log) == ["count"]


async def test_items_of_a_list_are_called_at_the_same_time(tmp_path: Path) -> None:
    log = tmp_path / "log"
    team = load_team(
        {
            "name": "parallel",
            "tools": {"good": good(log)},
            "roles": {
                "planner": {
                    "type": "planner",
                    "view": "solo",
                    "emits": "items",
                    "tools": ["good.add"],
                    "max_tokens": 200,
                },
                "clerk": {"voice": "tools", "view": "solo"},
                "judge": {"type": "executor", "view": "solo"},
            },
            "edges": ["start -> planner", "planner -> clerk map", "clerk -> judge", "judge -> done"],
            "output": "judge",
        }
    )
    listed = "\n".join([call("add", a=1, b=1), call("add", a=2, b=2)])
    async with open_tools(team) as tools:
        said = await played(team, ScriptedEngine(lambda prompt, *_: "7" if "clerk says" in prompt else listed), tools)
    assert ("clerk[0]", "2") in said
    assert ("clerk[1]", "4") in said


def test_without_tools_that_are_open_the_runtime_says_what_opens_them(tmp_path: Path) -> None:
    team = team_with(good(tmp_path / "log"), ["good.add"])
    with pytest.raises(ConfigError, match=r"role 'clerk' is played by tools .* none are open: `mas train`"):
        TeamRuntime(compile_team(team, build_roles(team)), saying(), MemoryBus(), adapters={})
