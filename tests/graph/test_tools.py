"""What a team's file says about tools, checked before anything starts. Needs no MCP."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

import mas
from mas.config.access import stored_classes
from mas.config.trust import check_accesses
from mas.core.errors import ConfigError, GraphError, RunDirectoryError, TrustError
from mas.core.messages import Action, Failure
from mas.core.team import TeamSpec
from mas.graph import compile_team, load_team
from mas.roles import build_role, build_roles


def content() -> dict[str, Any]:
    return {
        "name": "callers",
        "tools": {"files": {"command": "serve", "args": ["a b"], "env": ["FILE_KEY"]}},
        "roles": {
            "solver": {"type": "executor", "tools": {"files.read": "Reads."}},
            "clerk": {"voice": "tools"},
        },
        "edges": [
            "start -> solver",
            "solver -> clerk when call",
            "clerk -> solver loop 2",
            "solver -> done when answer",
        ],
        "joins": {"solver": "any"},
        "output": "solver",
    }


def compiled(given: dict[str, Any]) -> TeamSpec:
    team = load_team(given)
    return compile_team(team, build_roles(team)).spec


def test_a_team_with_tools_is_written_and_read_again() -> None:
    team = compiled(content())
    assert team.roles["solver"].tools == {"files.read": "Reads."}
    assert not team.roles["clerk"].trainable
    assert load_team(team.model_dump(mode="json", exclude_defaults=True)) == team
    listed = content()
    listed["roles"]["solver"]["tools"] = ["files.read"]
    assert compiled(listed).roles["solver"].tools == {"files.read": ""}


def without(key: str, *path: str) -> Callable[[dict[str, Any]], None]:
    def change(given: dict[str, Any]) -> None:
        for part in path:
            given = given[part]
        del given[key]

    return change


def with_value(value: object, *path: str) -> Callable[[dict[str, Any]], None]:
    def change(given: dict[str, Any]) -> None:
        for part in path[:-1]:
            given = given[part]
        given[path[-1]] = value

    return change


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (
            with_value({}, "tools", "files"),
            "a server of tools has a command, a url or a sandbox: write one of the three",
        ),
        (with_value({"command": "x", "url": "http://h/mcp"}, "tools", "files"), "a command, a url or a sandbox"),
        (with_value({"url": "http://h/mcp", "args": ["x"]}, "tools", "files"), "args and env belong to a command"),
        (with_value({"command": "x", "key_env": "KEY"}, "tools", "files"), "key_env belongs to a url"),
        (with_value({"url": "http://u:p@h/mcp"}, "tools", "files"), "a url with a user, a query or a fragment"),
        (with_value({"url": "http://h/mcp", "header": "X-Key"}, "tools", "files"), "no effect without key_env"),
        (with_value({"url": "http://h/mcp", "key_env": "K", "header": "a: b"}, "tools", "files"), "no name of an HTTP"),
        (with_value({"command": "x", "env": ["sk-123"]}, "tools", "files"), "no name of an environment variable"),
        (with_value({"command": "x", "comand": "y"}, "tools", "files"), "unknown key 'tools.files.comand'"),
        (with_value({"command": "x"}, "tools", "more"), "no role may call a tool of the server 'more'"),
        (with_value(["fils.read"], "roles", "solver", "tools"), "unknown server. Did you mean 'files'?"),
        (with_value(["read"], "roles", "solver", "tools"), "'read' is not of the form SERVER.TOOL"),
        (
            without("tools", "roles", "solver"),
            "calls tools for 'solver': lead edges to it from roles with 'tools' alone",
        ),
        (with_value("agent", "roles", "clerk", "voice"), "roles.clerk.voice"),
        (with_value("engine", "roles", "clerk", "voice"), "agent 'solver' has tools, and no edge leads from it to an"),
        (with_value("Be kind.", "roles", "clerk", "instructions"), "so that instructions has no effect: leave it out"),
        (with_value(True, "roles", "clerk", "trainable"), "leave trainable and history out"),
        (with_value("verifier", "roles", "solver", "type"), "has tools, and emits 'verdict' by rules of its own"),
        (with_value("feedback", "roles", "solver", "emits"), "has tools, and emits 'feedback' by rules of its own"),
        (with_value({"solver": {"fallback": "clerk"}}, "policies"), "must have the same tools"),
    ],
)
def test_what_is_wrong_is_said(change: Callable[[dict[str, Any]], None], said: str) -> None:
    given = content()
    change(given)
    with pytest.raises((GraphError, ConfigError)) as refused:
        compiled(given)
    assert said in str(refused.value)
    assert "sk-123" not in str(refused.value)


def test_a_team_within_a_team_brings_its_servers() -> None:
    outer = {
        "name": "outer",
        "roles": {"judge": {"type": "executor"}},
        "agents": {"inner": {"team": content()}, "judge": "judge"},
        "edges": ["start -> inner", "inner -> judge", "judge -> done"],
        "output": "judge",
    }
    assert set(compiled(outer).tools) == {"files"}
    with pytest.raises(GraphError, match="server 'files' of the team of 'inner' is another outside it"):
        compiled({**outer, "tools": {"files": {"command": "other"}}})


@pytest.mark.parametrize(
    ("text", "route", "read"),
    [
        ('{"name": "files.read", "arguments": {}}', "call", '{"name": "files.read", "arguments": {}}'),
        ('Look.\n<tool_call>\n{"name": 1}\n</tool_call> x', "call", '{"name": 1}'),
        ('<think>{"name": 2}</think> { "name": oops', "call", '{ "name": oops'),
        ('{"a": "name"}', "answer", '{"a": "name"}'),
        ("seven", "answer", "seven"),
        ("", "answer", "?"),
    ],
)
def test_an_output_is_a_call_or_an_answer(text: str, route: str, read: str) -> None:
    role = build_role("solver", load_team(content()).roles["solver"])
    payload = role.parse(text)
    assert (payload.route, payload.content) == (route, read)
    assert isinstance(payload, Failure if not text else Action)


def test_a_command_in_the_file_of_somebody_else_needs_trust(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    given = content()
    given["tools"]["web"] = {"url": "https://tools.example/mcp", "key_env": "WEB_KEY"}
    given["roles"]["solver"]["tools"]["web.find"] = ""
    path = tmp_path / "team.yaml"
    path.write_text(yaml.safe_dump(given))
    whats = [access.what for access in stored_classes(path)]
    assert whats == [
        'run ["serve", "a b"] with the environment variables FILE_KEY',
        "call tools of https://tools.example/mcp with the environment variables WEB_KEY",
    ]
    with pytest.raises(TrustError, match="wants to:\n  run "):
        check_accesses(stored_classes(path), "run directory x")
    with pytest.raises(TrustError, match=r"call tools of https://tools\.example/mcp"):
        mas.Team.load(path)
    with mas.trusting():
        assert set(mas.Team.load(path).spec.tools) == {"files", "web"}
    path.write_text("tools: {files: {comand: x}}")
    with pytest.raises(RunDirectoryError, match="its 'tools' cannot be read"):
        stored_classes(path)
