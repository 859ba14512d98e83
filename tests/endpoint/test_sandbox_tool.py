"""The sandbox as a tool of a role in `mas run` and `mas serve`: a peer plays the role, and a call is denied."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
import yaml
from clients import offer
from loopback import in_thread
from served import serving, trained

from mas.endpoint import build_app, running
from mas.testing.scripted import ScriptedEngine

Mas = Callable[..., Any]
TEAM: dict[str, Any] = {
    "name": "programmers",
    "tools": {"code": {"sandbox": {"time_s": 20}}},
    "roles": {
        "planner": {"type": "planner", "template": "P{goal}>", "choices": ["a", "b", "c", "d"], "max_tokens": 1},
        "solver": {
            "type": "executor",
            "view": "executor",
            "peer": "writer",
            "trainable": False,
            "max_tokens": 400,
            "context": "turn",
            "tools": {"code.python": "Runs a program. Arguments: source (string)."},
            "privileges": {"code.python": {"arguments": {"source": "(?s)print.*"}, "instead": "Only print."}},
        },
        "clerk": {"voice": "tools", "view": "executor"},
    },
    "edges": [
        "start -> planner",
        "planner -> solver",
        "solver -> clerk when call",
        "clerk -> solver loop 4",
        "solver -> done when answer",
    ],
    "joins": {"solver": "any"},
    "output": "solver",
}
TABLES = {"6789": "print(6 * 7)", "0123": "import os; print(6 * 7)"}
"""What is seen -> the program that is called; of others, too."""


def writes(prompt: str, adapter: str | None, seed: int) -> str:
    """A program, and then what it printed, or what the agent that calls tools said in place of it."""
    said = prompt.partition("clerk says: ")[2].split("\n")[0]
    if said:
        return f"It is {said}"
    source = next((source for table, source in TABLES.items() if table in prompt), "print(1)")
    return json.dumps({"name": "code.python", "arguments": {"source": source}})


@pytest.fixture(scope="module")
def peer() -> Iterator[str]:
    app = build_app(offer(ScriptedEngine(writes, context=20_000, has_chat=True)))
    with in_thread(lambda: running(app)) as address:
        yield f"{address}/v1"


@pytest.fixture(scope="module")
def words(peer: str, tmp_path_factory: pytest.TempPathFactory, small_overrides: tuple[str, ...]) -> list[str]:
    team = tmp_path_factory.mktemp("team") / "team.yaml"
    team.write_text(yaml.safe_dump(TEAM))
    return [f"algorithm.team={team}", f"peers.writer.url={peer}", *small_overrides]


def test_a_played_team_shows_the_call_and_what_came_of_it(words: list[str], mas: Mas, tmp_path: Path) -> None:
    ran = mas("run", "scenario=relay", *words)
    assert ran.code == 0, ran.err
    assert '"code.python"' in ran.out
    assert "It is 1" in ran.out
    denying = tmp_path / "denying.yaml"
    roles = TEAM["roles"] | {"solver": TEAM["roles"]["solver"] | {"privileges": {"code.python": {"most": 0}}}}
    denying.write_text(yaml.safe_dump(TEAM | {"roles": roles}))
    ran = mas("run", "scenario=relay", f"algorithm.team={denying}", *words[1:])
    assert ran.code == 0, ran.err
    assert "It is denied: 'solver' may not call 'code.python' so: 0 calls in an episode are allowed" in ran.out


@pytest.mark.slow
@pytest.mark.nightly
def test_a_served_team_runs_the_programs_that_are_allowed(words: list[str], tmp_path: Path) -> None:
    run = trained(tmp_path / "run", words)
    with (
        serving(str(run), "--port", "0", "--show-messages") as served,
        openai.OpenAI(base_url=f"{served.address}/v1", api_key="none") as client,
    ):
        for table, printed in (("6789", "42"), ("0123", "Only print.")):
            answer = client.chat.completions.create(
                model="team:programmers",
                messages=[{"role": "user", "content": json.dumps({"goal": "A", "table": table})}],
                extra_body={"return_messages": True},
            )
            (choice,) = answer.choices
            assert choice.message.content == f"It is {printed}"
            said = choice.model_dump()["messages"]
            assert [one["content"] for one in said if one["agent"] == "clerk"] == [printed]
