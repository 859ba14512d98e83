"""The sandbox as a tool of a role: results, errors and limits are answers, recorded and read again."""

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tool_teams import played, team_with

from mas.bus.journal import Journal
from mas.config.access import team_accesses
from mas.core.errors import ConfigError, GraphError
from mas.core.team import TeamSpec
from mas.graph import load_team
from mas.runtime.replay_log import ReplayLog
from mas.sandbox.box import Sandbox
from mas.testing.scripted import ScriptedEngine
from mas.tools.recorded import offered_tools, open_tools

TOOLS = {"code.python": "Runs a program. Arguments: source (string), stdin (string, optional)."}


def call(source: str, **more: Any) -> str:
    return json.dumps({"name": "code.python", "arguments": {"source": source, **more}})


def saying(*texts: str) -> ScriptedEngine:
    left: Iterator[str] = iter(texts)
    return ScriptedEngine(lambda prompt, adapter, seed: next(left), context=20_000)


def team(**limits: Any) -> TeamSpec:
    return team_with({"sandbox": limits}, TOOLS, "code")


def ruled(**rule: Any) -> TeamSpec:
    content = team().model_dump(mode="json", exclude_defaults=True)
    content["tools"] = {"code": {"sandbox": {}}}
    content["roles"]["solver"]["privileges"] = {"code.python": rule}
    return load_team(content)


async def clerk(spec: TeamSpec, *texts: str, record: Path | None = None) -> list[str]:
    async with open_tools(spec, record) as tools:
        said = await played(spec, saying(*texts, "7"), tools)
    return [text for agent, text in said if agent == "clerk"]


async def test_a_role_runs_programs_and_reads_what_they_print() -> None:
    answers = await clerk(team(), call("print(6 * 7)"), call("print(int(input()) + 1)", stdin="1"), call("x = 1"))
    assert answers == ["42", "2", "it ended, and printed nothing"]


async def test_errors_and_limits_are_answers_and_the_episode_goes_on() -> None:
    spec = team(time_s=0.5, memory_mib=64, output_kib=1)
    programs = ("print('so far'); 1 / 0", "while True: pass", "bytearray(10 ** 9)", "print('x' * 5000)")
    wrong, endless, large, long = await clerk(spec, *map(call, programs))
    assert wrong.startswith("so far\nTraceback")
    assert wrong.endswith("ZeroDivisionError: division by zero\nerror: it ended with exit code 1")
    assert endless == "error: it did not end within 0.5 s"
    assert large == "error: it needs more than 64 MiB"
    assert long.endswith("error: it writes more than 1 KiB")


async def test_a_program_has_no_network_no_files_and_nothing_of_the_one_before(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text("s")
    programs = (
        "import socket; socket.create_connection(('127.0.0.1', 80))",
        f"print(open({str(tmp_path / 'secret')!r}).read())",
        "open('kept', 'w').write('1'); import os; print(os.listdir('.'))",
        "import os; print(os.listdir('.'))",
    )
    network, outside, first, second = await clerk(team(), *map(call, programs))
    assert "PermissionError" in network or "OSError" in network
    assert "FileNotFoundError" in outside
    assert (first, second) == ("['kept']", "[]")


async def test_a_result_is_cut_in_its_middle() -> None:
    spec = team_with({"sandbox": {}, "max_chars": 100}, TOOLS, "code")
    (text,) = await clerk(spec, call("print('a' * 5000 + 'end')"))
    assert text.startswith("a" * 50 + "\n[cut: 5003 characters in all]\n")
    assert text.endswith("end")


async def test_wrong_arguments_and_other_tools_do_not_reach_the_sandbox(monkeypatch: pytest.MonkeyPatch) -> None:
    ran: list[str] = []
    run = Sandbox.run

    async def watched(self: Sandbox, source: str, stdin: str = "") -> Any:
        ran.append(source)
        return await run(self, source, stdin)

    monkeypatch.setattr(Sandbox, "run", watched)
    wrong = (json.dumps({"name": "code.python", "arguments": {"code": "1"}}), '{"name": "code.shell", "arguments": {}}')
    missing, other = await clerk(team(), *wrong)
    assert missing.startswith("error: tool 'code.python': parameter 'source' is missing")
    assert other == "denied: 'solver' may not call 'code.shell'; it may call: code.python"
    assert ran == [""], "only the program that shows whether programs can be run"


async def test_rules_hold_before_a_program_is_run() -> None:
    spec = ruled(most=1, arguments={"source": "(?s)print.*"})
    answers = await clerk(spec, call("import os"), call("print(1)"), call("print(2)"))
    assert answers[0].startswith("denied: 'solver' may not call 'code.python' so: the argument 'source' is 'import os'")
    assert answers[1] == "1"
    assert answers[2].endswith("so: 1 calls in an episode are allowed")


async def test_an_equal_call_is_read_from_the_record_also_by_the_next_process(tmp_path: Path) -> None:
    """The program says something else each time it is run."""
    record, clock = tmp_path / "calls.sqlite", call("import time; print(time.time_ns())")
    first = await clerk(team(), clock, record=record)
    assert await clerk(team(), clock, record=record) == first
    with closing(sqlite3.connect(record)) as base:
        assert base.execute("SELECT agent, tool, result FROM calls").fetchall() == [("clerk", "code.python", *first)]


async def test_a_play_goes_on_after_a_kill_with_the_result_that_it_had(tmp_path: Path) -> None:
    class Killed(Exception):
        pass

    clock = call("import time; print(time.time_ns())")
    heard: list[str] = []

    def first(prompt: str, adapter: str | None, seed: int) -> str:
        if "clerk says" in prompt:
            heard.append(prompt.partition("clerk says: ")[2].split()[0])
            raise Killed
        return clock

    with Journal.open(tmp_path / "journal") as journal:
        async with open_tools(team()) as tools:
            with pytest.raises(Exception, match="Killed"):
                await played(team(), ScriptedEngine(first), tools, log=ReplayLog(journal))
    with Journal.open(tmp_path / "journal") as journal:
        async with open_tools(team()) as tools:
            said = await played(team(), saying("7"), tools, log=ReplayLog(journal))
    assert said == [("solver", clock), ("clerk", heard[0]), ("solver", "7")]


async def test_the_sandbox_is_begun_again_where_it_was_killed() -> None:
    async with open_tools(team()) as tools:
        box = tools._servers["code"]._box  # type: ignore[attr-defined]
        box._server._process.kill()
        box._server._process.wait()
        said = await played(team(), saying(call("print(1)"), "7"), tools)
    assert ("clerk", "1") in said


async def test_where_no_program_can_be_run_the_team_is_not_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    from mas.core.errors import SandboxError

    def none(*_: object) -> None:
        raise SandboxError("namespaces: not permitted")

    monkeypatch.setattr("mas.sandbox.box.open_server", none)
    with pytest.raises(SandboxError, match="namespaces: not permitted"):
        async with open_tools(team()):
            pass


async def test_the_tool_is_listed_and_needs_no_trust() -> None:
    assert list(await offered_tools(team().tools)) == ["code.python"]
    assert team_accesses(team()) == []


WRONG: dict[str, tuple[dict[str, Any], str]] = {
    "two kinds": ({"sandbox": {}, "command": "x"}, "a command, a url or a sandbox: write one of the three"),
    "none": ({}, "a command, a url or a sandbox: write one of the three"),
    "a time of a server": ({"sandbox": {}, "timeout_s": 3}, "timeout_s has no effect on a sandbox: write sandbox"),
    "no memory": ({"sandbox": {"memory_mib": 1}}, "greater than or equal to 64"),
    "an unknown limit": ({"sandbox": {"disk": 1}}, "unknown key"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_sandbox_that_is_written_wrongly_is_refused(name: str) -> None:
    server, why = WRONG[name]
    with pytest.raises(GraphError, match=why):
        team_with(server, TOOLS, "code")


async def test_a_sandbox_has_one_tool() -> None:
    spec = team_with({"sandbox": {}}, ["code.pyton"], "code")
    with pytest.raises(ConfigError, match=r"the sandbox 'code' has no tool 'pyton'.*python"):
        async with open_tools(spec):
            pass


def test_teams_with_other_servers_are_written_as_before() -> None:
    spec = team_with({"command": "x"}, ["good.add"])
    assert "sandbox" not in spec.model_dump_json()
    assert json.loads(team(time_s=2).model_dump_json())["tools"]["code"]["sandbox"]["time_s"] == 2


PATTERNS = ["(a+)+b", "(a|aa)+b", "([a-z]+)*[0-9]", "(.*)*=.*", "(x+x+)+y"]


@pytest.mark.parametrize("pattern", PATTERNS)
async def test_a_hostile_argument_cannot_make_a_rule_slow(pattern: str) -> None:
    """Python's `re` takes 2^n steps for each of these; here the time is linear in the argument."""
    from mas.core.privilege import Privilege

    rule = Privilege(arguments={"source": pattern})
    for letter in "ax":
        began = time.perf_counter()
        assert rule.problem({"source": letter * 9_000}) is not None
        assert time.perf_counter() - began < 5
