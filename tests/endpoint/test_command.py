"""`mas serve` from a trained run to the signal that ends it, and every mistake as one line."""

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import BaseFor
from served import Serving, serving, trained

from mas.bus.journal import Journal
from mas.config.load import load_config
from mas.endpoint import RoleModel
from mas.endpoint.command import role_models, served_team
from mas.runs.resolve import resolve
from mas.scenarios import build_scenario
from mas.training.saved import initial_adapters
from mas.training.session import open_team

Mas = Callable[..., Any]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, small_overrides: tuple[str, ...]) -> Path:
    """A trained run of relay."""
    return trained(tmp_path_factory.mktemp("runs") / "relay", small_overrides)


@pytest.mark.nightly(of=16)
@pytest.mark.slow
def test_a_run_is_served_from_its_directory_until_it_is_told_to_end(run: Path) -> None:
    with serving(str(run), "--port", "0") as served:
        names = [card["id"] for card in httpx.get(f"{served.address}/v1/models").json()["data"]]
        assert names == ["tiny", "executor", "planner", "team:relay"]
        assert "executor  (adapter, version 1)" in served.greeting
        role = {"model": "executor", "prompt": "E0123;a>", "temperature": 0, "logprobs": 0}
        answer = httpx.post(f"{served.address}/v1/completions", json=role).json()
        assert len(answer["choices"][0]["logprobs"]["token_logprobs"]) == 1, "the role's max_tokens"
        assert answer["adapter"] == {"name": "executor", "version": 1}, "one step was trained"
        team = {"model": "team:relay", "messages": [{"role": "user", "content": '{"goal": "A", "table": "0123"}'}]}
        (choice,) = httpx.post(f"{served.address}/v1/chat/completions", json=team).json()["choices"]
        assert choice["passed"] == (choice["message"]["content"] == "")
        check_end(served, signal.SIGTERM)


@pytest.mark.slow
@pytest.mark.nightly
def test_the_curl_line_that_is_printed_works_as_it_stands_and_ctrl_c_ends_the_server(run: Path) -> None:
    with serving(str(run), "--port", "0", MAS_API_KEY="sesame") as served:
        assert httpx.get(f"{served.address}/v1/models").status_code == 401
        (line,) = [line.strip() for line in served.greeting.splitlines() if line.strip().startswith("curl ")]
        assert "sesame" not in served.greeting
        names = os.environ | {"MAS_API_KEY": "sesame"}
        if shutil.which("curl"):
            done = subprocess.run(
                ["bash", "-c", f"{line} --silent --fail"], capture_output=True, text=True, env=names, check=False
            )
            assert json.loads(done.stdout)["model"] == "team:relay", done.stderr
        check_end(served, signal.SIGINT)


@pytest.mark.nightly
@pytest.mark.slow
def test_a_server_that_was_killed_has_the_result_when_it_is_started_again(run: Path, tmp_path: Path) -> None:
    team = {"model": "team:relay", "messages": [{"role": "user", "content": '{"goal": "A", "table": "0123"}'}]}
    answers = []
    for _ in range(2):
        with serving(str(run), "--port", "0", "--journal", str(tmp_path)) as served:
            place, key = f"{served.address}/v1/chat/completions", {"Idempotency-Key": "one"}
            answers.append(httpx.post(place, json=team, headers=key).json()["choices"])
            served.process.kill()
    assert answers[0] == answers[1], "drawn without a seed"


def check_end(served: Serving, number: signal.Signals) -> None:
    """The signal ends the command as it should."""
    served.process.send_signal(number)
    out, err = served.process.communicate(timeout=60)
    assert (served.process.returncode, err) == (0, "")
    assert "closing" in out


def test_what_cannot_be_served_is_one_line_and_exit_code_2(
    run: Path, mas: Mas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAS_API_KEY", raising=False)
    monkeypatch.setattr("mas.endpoint.command.open_base", lambda *_: pytest.fail("weights were loaded first"))
    untrained_run = tmp_path / "untrained"
    untrained_run.mkdir()
    (untrained_run / "config.yaml").write_text((run / "config.yaml").read_text())
    journal = str(tmp_path / "bus.sqlite")
    with socket.create_server(("127.0.0.1", 0)) as taken, Journal.open(journal):
        port = str(taken.getsockname()[1])
        for words, text in (
            ((str(tmp_path / "none"),), "holds no run"),
            ((str(untrained_run), "--port", "0"), "holds no trained adapters yet"),
            ((str(run), "--host", "0.0.0.0"), "there is no key"),
            ((str(run), "--port", "0", "--allow-host", "http://a.example"), "no host name or address"),
            ((str(run), "--port", "0", "engine.name=openai"), "nothing can be published to it"),
            ((str(run), "--port", port), "cannot be listened at"),
            ((str(run), "--port", "0", "--journal", journal), "is open already, here or in another process"),
            ((str(run), "learner.lr=0.1"), "has no effect on `mas serve`"),
            ((str(run), "train.seed=1"), "has no effect on `mas serve`"),
        ):
            ran = mas("serve", *words)
            assert ran.code == 2, words
            assert ran.err.startswith("error: ")
            assert text in ran.err
            assert ran.err.count("\n") == 1


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        (
            "algorithm.policy=per_role",
            {name: RoleModel(max_tokens=1, temperature=1.0) for name in ("planner", "executor")},
        ),
        ("algorithm.policy=shared", {"shared": RoleModel(max_tokens=1)}),
    ],
)
async def test_adapters_are_asked_as_the_roles_that_speak_through_them(
    base_for: BaseFor, override: str, expected: dict[str, RoleModel]
) -> None:
    base = base_for("relay")
    config = load_config(["scenario=relay", override])
    scenario = build_scenario(config.scenario)
    async with open_team(resolve(config, scenario), base, initial_adapters(resolve(config, scenario), base)) as crew:
        served = served_team(crew, base)
        chatting = role_models(crew, chats=True)
    assert (served.base, served.context) == ("tiny", base.limits.context)
    assert served.roles == expected
    for name, role in chatting.items():
        begins = "" if name == "shared" else "You see "
        assert role.chats
        assert role.system[: len(begins)] == begins
        assert bool(role.system) == bool(begins), "roles that share an adapter have no system message in common"


def test_an_address_is_refused_before_torch_is_imported(run: Path) -> None:
    code = (
        "import sys; from typer.testing import CliRunner; from mas.cli import app\n"
        f"ran = CliRunner().invoke(app, ['serve', {str(run)!r}, '--host', '203.0.113.7'])\n"
        "print(type(ran.exception).__name__, sorted({'torch', 'transformers'} & sys.modules.keys()))"
    )
    names = os.environ | {"MAS_API_KEY": "sesame"}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=names, check=False)
    assert done.stdout == "ConfigError []\n", done.stderr
