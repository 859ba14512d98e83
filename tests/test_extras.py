"""Extras as users write them, and what is said without them."""

import json
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
EXTRAS = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
OTHERS = {"test", "docs", "bench", "dev", "lm-eval"}
"""Extras that no command of an installed package needs, but for `test`."""
MODULES = [
    *("a2a", "accelerate", "datasets", "gguf", "gymnasium", "hypothesis", "inspect_ai", "jaxmarl", "mcp", "mlflow"),
    *("opentelemetry.exporter", "pettingzoo", "pyarrow", "pyspiel", "ray", "reasoning_gym", "textarena", "textworld"),
    *("tinker", "trackio", "vllm", "wandb", "websockets"),
]
"""What the extras bring."""
BRIDGE = "train scenario=bridge scenario.options.id="
QUESTIONS = "train scenario=questions scenario.options.path="
WORDS = "run scenario=relay model=smollm2 scenario.options.style=words --trust algorithm.team="
CASES = {
    "vllm": ["train scenario=relay engine=vllm", "run scenario=relay engine=vllm"],
    "ray": ["train scenario=relay cluster=ray cluster.workers=1"],
    "mcp": ["tools tools.yaml", f"{WORDS}tools.yaml"],
    "a2a": [f"{WORDS}remote.yaml"],
    "otel": ["run scenario=relay --trace spans.jsonl"],
    "open-spiel": ["scenarios two_player", "train scenario=two_player", "league demo", f"{BRIDGE}open_spiel:chess"],
    "gymnasium": [f"{BRIDGE}gymnasium:FrozenLake-v1", "play gymnasium:FrozenLake-v1"],
    "openenv": [f"{BRIDGE}openenv:http://127.0.0.1:1", "openenv relay"],
    "tinker": ["tinker"],
    "pettingzoo": [f"{BRIDGE}pettingzoo:classic/chess_v6"],
    "data": [f"{QUESTIONS}rows.parquet", f"{QUESTIONS}rows", f"{QUESTIONS}hf://owner/name"],
    "jaxmarl": [f"{BRIDGE}jaxmarl:coin_game"],
    "textarena": [f"{BRIDGE}textarena:TicTacToe-v0-raw"],
    "reasoning-gym": ["train scenario=reasoning", f"{BRIDGE}reasoning_gym:chain_sum"],
    "textworld": [f"{BRIDGE}textworld:small"],
    "smollm": ["base smollm2", "demo"],
    **{name: [f"train scenario=relay train.sinks=[{name}]"] for name in ("wandb", "trackio", "mlflow")},
    "inspect": ["inspect_task"],
    "test": ["check relay"],
}
"""Extra -> commands that need it."""
TEAM = """
name: team
{more}roles:
  solver: {{type: executor, view: solo, max_tokens: 4}}
  helper: {{view: solo, {helper}}}
edges: {edges}
output: solver
"""
TOOLS = TEAM.replace("max_tokens: 4", "max_tokens: 4, tools: [files.read]").format(
    more="tools: {files: {command: none}}\njoins: {solver: any}\n",
    helper="voice: tools",
    edges="[start -> solver, solver -> helper when call, helper -> solver loop 1, solver -> done when answer]",
)
REMOTE = TEAM.format(
    more="",
    helper="type: planner, a2a: {url: 'http://127.0.0.1:1'}",
    edges="[start -> helper, helper -> solver, solver -> done]",
)
PROGRAM = """
import contextlib, io, json, os, sys
modules, commands = json.loads(sys.argv[1])
sys.modules.update(dict.fromkeys(modules))
import mas
from mas.cli import main
said = {}
for command in commands:
    os.environ.pop("OTEL_EXPORTER_OTLP_ENDPOINT", None)
    if "--trace" in command:
        os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = "http://127.0.0.1:1"
    error, sys.argv = io.StringIO(), ["mas", *command.split()]
    with contextlib.redirect_stderr(error), contextlib.redirect_stdout(io.StringIO()):
        try:
            mas.inspect_task("runs/none") if command == "inspect_task" else main()
        except mas.core.errors.MasError as raised:
            print("error:", raised, file=sys.stderr)
        except SystemExit as ended:
            assert ended.code == 2, (command, ended.code)
    said[command] = error.getvalue()
print(json.dumps(said))
"""


@pytest.fixture(scope="module")
def said(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Command -> its errors, in a process in which nothing that an extra brings can be imported."""
    folder = tmp_path_factory.mktemp("plain")
    for name, text in (("tools.yaml", TOOLS), ("remote.yaml", REMOTE), ("rows.parquet", "PAR1")):
        (folder / name).write_text(text)
    (folder / "rows").mkdir()
    asked = json.dumps([MODULES, [command for commands in CASES.values() for command in commands]])
    env = os.environ | {"MAS_CACHE": str(folder / "cache")}  # no model of another test
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, asked], cwd=folder, env=env, capture_output=True, text=True, timeout=850
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout)
    return found


@pytest.mark.nightly(of=8)  # ten CPU seconds
@pytest.mark.timeout(900)  # a busy machine
@pytest.mark.parametrize("extra", CASES)
def test_what_needs_an_extra_that_is_not_installed_is_one_error_that_names_it(said: dict[str, str], extra: str) -> None:
    for command in CASES[extra]:
        assert f"pip install 'mas[{extra}]'" in said[command], command
        assert said[command].startswith("error: "), command
        assert said[command].count("\n") == 1, command


def test_every_extra_has_a_case() -> None:
    assert CASES.keys() - {"test"} == EXTRAS.keys() - OTHERS


def test_extras_have_names_that_every_pip_finds_and_what_is_told_to_install_exists() -> None:
    """Packaging writes `_` as `-` into what is installed, and older pips do not find the extra then."""
    assert all(re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name) for name in EXTRAS)
    texts = [*ROOT.glob("mas/**/*.py"), *ROOT.glob("mas/**/*.md"), *ROOT.glob("docs/*.md"), ROOT / "README.md"]
    told = {name for path in texts for name in re.findall(r"mas\[([\w-]+)\]", path.read_text())}
    assert told
    assert told <= set(EXTRAS)
