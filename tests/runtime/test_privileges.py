"""What a role may do with its tools: how often, with which arguments, and what it is answered instead."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("mcp", reason="needs the extra mcp")

from tool_teams import good, played, team_with

from mas.core.errors import GraphError
from mas.core.team import TeamSpec
from mas.graph import load_team
from mas.testing.scripted import ScriptedEngine
from mas.tools.recorded import open_tools

MOST = "denied: 'solver' may not call 'good.count' so: 2 calls in an episode are allowed"


def call(tool: str, **arguments: object) -> str:
    return json.dumps({"name": f"good.{tool}", "arguments": arguments})


def saying(*texts: str) -> ScriptedEngine:
    """An engine that says these texts one after the other."""
    left: Iterator[str] = iter(texts)
    return ScriptedEngine(lambda prompt, adapter, seed: next(left), context=20_000)


def ruled(log: Path, **privileges: Any) -> TeamSpec:
    """The team whose solver has these rules, by the tool's name without its server."""
    spec = team_with(good(log), ["good.add", "good.count"])
    content = spec.model_dump(mode="json", exclude_defaults=True)
    content["roles"]["solver"]["privileges"] = {f"good.{name}": rule for name, rule in privileges.items()}
    return load_team(content)


@pytest.fixture(autouse=True)
def path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))


async def clerk(team: TeamSpec, *texts: str, episodes: int = 1) -> list[list[str]]:
    """What the solver was answered in each episode."""
    found = []
    async with open_tools(team) as tools:
        for number in range(episodes):
            said = await played(team, saying(*texts, "7"), tools, episode=f"e{number}")
            found.append([text for agent, text in said if agent == "clerk"])
    return found


async def test_a_tool_is_called_so_often_in_an_episode_and_no_more(tmp_path: Path) -> None:
    log = tmp_path / "log"
    team = ruled(log, count={"most": 2})
    texts = (call("count"), call("count"), call("count"), call("add", a=1, b=2))
    found = await clerk(team, *texts, episodes=2)
    assert found == [["1", "2", MOST, "3"], ["3", "4", MOST, "3"]]
    lines = log.read_text().splitlines()
    assert lines.count("count") == 4, "the server does not hear of what is denied"


async def test_arguments_must_match_whole_and_be_there(tmp_path: Path) -> None:
    log = tmp_path / "log"
    team = ruled(log, add={"arguments": {"a": "[0-9]", "b": "2|3"}, "most": 1})
    texts = (call("add", a=10, b=2), call("add", b=2), call("add", a="1\n", b=2), call("add", a=1, b=2))
    ((long, absent, odd, right),) = await clerk(team, *texts)
    assert long == "denied: 'solver' may not call 'good.add' so: the argument 'a' is '10' and must match [0-9]"
    assert absent.endswith("the argument 'a' must be given, and match [0-9]")
    assert odd.endswith(r"the argument 'a' is '1\n' and must match [0-9]")
    assert right == "3", "denied calls do not count"
    assert log.read_text().splitlines() == ["add 1 2"]


async def test_the_role_is_answered_what_the_team_says_instead(tmp_path: Path) -> None:
    log = tmp_path / "log"
    team = ruled(log, count={"most": 0, "instead": "Ask the owner."})
    assert await clerk(team, call("count")) == [["Ask the owner."]]
    assert log.read_text() == ""


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "no tool of the role": ({"counts": {"most": 1}}, "'good.counts', which is none of the role's tools.*good.count"),
    "nothing": ({"count": {}}, "it denies nothing"),
    "no pattern": ({"add": {"arguments": {"a": "("}}}, "is not a regular expression"),
    "less than none": ({"count": {"most": -1}}, "greater than or equal to 0"),
    "an unknown key": ({"count": {"max": 1}}, "unknown key 'roles.solver.privileges.good.count.max'.*most"),
    "an empty answer": ({"count": {"most": 1, "instead": ""}}, "at least 1 character"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_rule_that_means_nothing_is_refused(name: str, tmp_path: Path) -> None:
    rules, why = WRONG[name]
    with pytest.raises(GraphError, match=why):
        ruled(tmp_path / "log", **rules)


def test_a_fallback_has_the_same_rules(tmp_path: Path) -> None:
    content = ruled(tmp_path / "log", count={"most": 1}).model_dump(mode="json", exclude_defaults=True)
    solver = {key: value for key, value in content["roles"]["solver"].items() if key != "privileges"}
    content["roles"]["spare"] = solver
    content["policies"] = {"solver": {"fallback": "spare"}}
    from mas.graph import compile_team
    from mas.roles import build_roles

    spec = load_team(content)
    with pytest.raises(GraphError, match="must have the same tools and privileges"):
        compile_team(spec, build_roles(spec))
    solver["privileges"] = content["roles"]["solver"]["privileges"]
    spec = load_team(content)
    compile_team(spec, build_roles(spec))
