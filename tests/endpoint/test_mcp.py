"""A trained team as a tool of MCP clients, asked by the client of the SDK: over stdio and over loopback HTTP."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

from clients import offer, playing
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from served import serving, trained
from tool_teams import team_with

from mas.commands.serve import check_protocols
from mas.core.engine import Generation, Request
from mas.core.errors import ConfigError
from mas.endpoint import build_app, running
from mas.endpoint.mcp_server import mcp_route
from mas.testing.scripted import ScriptedEngine
from mas.tools import ToolCall
from mas.tools.recorded import open_tools

SITUATION = {"goal": "A", "table": "0123"}


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, small_overrides: tuple[str, ...]) -> Path:
    """A trained run of relay."""
    return trained(tmp_path_factory.mktemp("runs") / "relay", small_overrides)


@asynccontextmanager
async def over_stdio(run: Path, errors: Path) -> AsyncIterator[ClientSession]:
    given = ["-m", "mas", "mcp", str(run)]
    server = StdioServerParameters(command=sys.executable, args=given, env=dict(os.environ))
    with errors.open("w") as log:
        async with stdio_client(server, errlog=log) as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            yield session


def said(result: Any) -> tuple[str, bool]:
    whole = result.model_dump(by_alias=True)
    return whole["content"][0]["text"], bool(whole.get("isError"))


@pytest.mark.nightly(of=16)
@pytest.mark.slow
async def test_a_client_asks_the_team_over_stdio(run: Path, tmp_path: Path) -> None:
    async with over_stdio(run, tmp_path / "errors") as session:
        (tool,) = (await session.list_tools()).model_dump(by_alias=True)["tools"]
        assert tool["name"] == "ask_team"
        assert "goal" in tool["inputSchema"]["properties"]["situation"]["description"]
        answers = [
            said(await session.call_tool("ask_team", {"situation": given}))
            for given in (SITUATION, json.dumps(SITUATION))
        ]
        assert answers[0] == answers[1]
        assert answers[0][1] is False
        for wrong in ({"situation": {"goal": "A"}}, {"situation": 3}, {}, {"situation": SITUATION, "more": 1}):
            text, is_error = said(await session.call_tool("ask_team", wrong))
            assert is_error
            assert "situation" in text or "'table' is missing" in text
        assert said(await session.call_tool("ask", {}))[1] is True
    assert "answers on standard input and output" in (tmp_path / "errors").read_text()


@pytest.mark.slow
@pytest.mark.nightly
async def test_a_team_asks_a_served_team_over_http_with_its_key(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TEAM_KEY", "sesame")
    with serving(str(run), "--port", "0", "--mcp", MAS_API_KEY="sesame") as served:
        server = {"url": f"{served.address}/mcp", "key_env": "TEAM_KEY"}
        async with open_tools(team_with(server, ["relay.ask_team"], "relay")) as tools:
            call = ToolCall("relay.ask_team", {"situation": SITUATION})
            text = await tools.call("e", "clerk", call, 0)
            assert len(text) <= 1, "a digit, or a pass"
            wrong = await tools.call("e", "clerk", ToolCall("relay.ask_team", {"situation": {"goal": "A"}}), 0)
            assert wrong.startswith("error: tool 'relay.ask_team': The field 'table' is missing.")
        headers = {"Authorization": "Bearer sesame", "Content-Type": "application/json"}
        async with httpx.AsyncClient(base_url=served.address, headers=headers) as asking:
            assert (await asking.post("/mcp", content=b" " * 9_000_000)).status_code == 413
            assert (await asking.get("/mcp")).status_code == 405, "a stream that nothing is sent on"
            body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "ask_team"}}
            body["params"] |= {"arguments": {"situation": {"goal": "A" * 200_000, "table": "0123"}}}
            accepts = {"Accept": "application/json, text/event-stream"}
            answer = await asking.post("/mcp", json=body, headers=accepts)
            assert "exceed the context" in answer.text
        monkeypatch.setenv("TEAM_KEY", "wrong")
        with pytest.raises(Exception, match="cannot be used"):
            async with open_tools(team_with(server, ["relay.ask_team"], "relay")):
                pass


class Thinking(ScriptedEngine):
    """Never answers. `begun`, `ended`: of its calls."""

    def __init__(self) -> None:
        super().__init__(lambda *_: "hop", ("planner", "executor"))
        self.begun, self.ended = asyncio.Event(), asyncio.Event()

    async def generate(self, request: Request) -> tuple[Generation, ...]:
        self.begun.set()
        try:
            await asyncio.Future()
        finally:
            self.ended.set()
        raise AssertionError


async def test_a_client_that_leaves_ends_its_call() -> None:
    engine = Thinking()
    async with playing(engine, chats=True) as team:
        served = offer(engine, teams=[team])
        app = build_app(served)
        arguments = {"situation": json.loads(team.example)}
        call = {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "tools/call",
            "params": {"name": "ask_team", "arguments": arguments},
        }
        accepts = {"Accept": "application/json, text/event-stream"}
        async with mcp_route(served, app.state.gate, None) as route:
            app.router.routes.append(route)
            async with running(app, drain_s=0) as url, httpx.AsyncClient(base_url=url) as asking:
                leaving = asyncio.create_task(asking.post("/mcp", json=call, headers=accepts), name="leaving")
                async with asyncio.timeout(20):
                    await engine.begun.wait()
                    assert app.state.gate.running == 1
                    leaving.cancel()
                    await engine.ended.wait()
                    while app.state.gate.running:  # noqa: ASYNC110 - nothing tells
                        await asyncio.sleep(0.005)


def test_a_journal_does_not_go_with_it(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="--mcp and --journal do not go together"):
        check_protocols(mcp=True, journal=tmp_path / "bus.sqlite")
