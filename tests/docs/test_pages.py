"""What the pages say holds: links, teams, keys, metrics, file names and examples."""

import asyncio
import importlib
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest
from conftest import BaseFor
from pages import PAGES, ROOT, blocks, prose, read
from pydantic import BaseModel

from mas.algorithms.registry import SHIPPED, find_algorithm
from mas.bus.journal import Journal
from mas.config.load import load_config
from mas.config.options import Config
from mas.config.servers import PeerOptions, RemoteOptions
from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError
from mas.core.messages import PAYLOADS
from mas.core.role import RoleSpec
from mas.core.team import TeamSpec
from mas.endpoint import KeptRequests, Served, build_app, running
from mas.endpoint.client_keys import read_keys
from mas.endpoint.command import served_team
from mas.graph import compile_team, load_team
from mas.observe.metrics import read_metrics
from mas.roles import BUILT_IN, build_roles
from mas.runs.resolve import resolve
from mas.runtime.replay_log import ReplayLog
from mas.scenarios import build_scenario
from mas.scenarios.measure import measure
from mas.study.protocol import find_protocol
from mas.testing.environment import EnvironmentContract
from mas.testing.scripted import ScriptedEngine
from mas.testing.suite import properties
from mas.training.saved import initial_adapters
from mas.training.session import open_team


def anchors(page: Path) -> set[str]:
    """Anchors of a page's headings."""
    titles = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


def named(pattern: str) -> list[tuple[str, str]]:
    """Every page with each text in its prose that the pattern finds."""
    return [(page, text) for page in PAGES for text in re.findall(pattern, prose(page))]


def leads_somewhere(page: str, link: str) -> bool:
    """Whether a link's file is there, and its heading in it."""
    file, _, anchor = link.partition("#")
    path = (ROOT / page).parent / file if file else ROOT / page
    return path.exists() and (not anchor or anchor in anchors(path))


def test_every_link_leads_somewhere() -> None:
    links = named(r"\]\((?!https://)([^)\s]+)\)")
    assert [link for link in links if not leads_somewhere(*link)] == []
    assert len(links) > 100


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "yaml")])
def test_every_team_loads_and_compiles(page: str, tmp_path: Path) -> None:
    for block in blocks(page, "yaml"):
        path = tmp_path / "team.yaml"
        path.write_text(block.text)
        if block.text.startswith("keys:"):
            assert read_keys(path)
            continue
        if block.text.startswith("cases:"):
            assert find_protocol(str(path))
            continue
        team = load_team(path)
        compile_team(team, build_roles(team))


@pytest.mark.parametrize(("section", "model"), [("The team", TeamSpec), ("Roles", RoleSpec)])
def test_every_key_of_a_team_is_documented(section: str, model: type[BaseModel]) -> None:
    (text,) = re.findall(rf"^## {section}\n(.*?)^## ", read("docs/teams.md"), re.MULTILINE | re.DOTALL)
    rows = "".join(line.split("|")[1] for line in text.splitlines() if line.startswith("|"))
    in_files = {"protocol"} if model is TeamSpec else set()  # read into the keys that it stands for
    assert set(re.findall(r"`(\w+)`", rows)) == set(model.model_fields) | in_files


def test_the_page_on_teams_says_what_each_type_of_role_emits_and_accepts() -> None:
    rows = read("docs/teams.md").partition("| type | emits |")[2].partition("\n\n")[0].splitlines()[2:]
    said = {}
    for row in rows:
        name, *cells = [cell.strip() for cell in row.strip("|").split("|")]
        said[name] = [set(PAYLOADS) if cell == "every kind" else set(re.findall(r"`(\w+)`", cell)) for cell in cells]
    found = {
        name: [{kind.default_emits}, {*kind.default_accepts}, set(kind.default_routes)]
        for name, kind in BUILT_IN.items()
    }
    assert said == found


def test_every_key_of_a_server_is_documented() -> None:
    text = read("docs/serving.md")
    rows = "".join(line.split("|")[1] for line in text.splitlines() if line.startswith("| `"))
    for key in RemoteOptions.model_fields:
        assert f"`{key}`" in rows
    for key in PeerOptions.model_fields:
        assert f"`{key}`" in text.partition("## Remote servers")[2]


def exists(key: str) -> bool:
    """Whether a dotted key is one of the configuration's, or of an algorithm of mas."""
    if key.startswith("algorithm.options."):
        name = key.split(".")[2]
        return any(name in find_algorithm(one).options.model_fields for one in SHIPPED)
    model: Any = Config
    for part in key.split("."):
        if get_origin(model) is dict and issubclass(get_args(model)[1], BaseModel):
            model = get_args(model)[1]
            continue
        fields = getattr(model, "model_fields", None)
        if fields is None:
            return key.startswith(("scenario.options.", "engine.vllm."))
        if part not in fields:
            return False
        kinds = get_args(fields[part].annotation)
        model = kinds[0] if type(None) in kinds else fields[part].annotation
    return True


def test_every_option_that_a_page_names_exists() -> None:
    keys = named(r"`((?:train|learner|algorithm|model|scenario|engine)\.[a-z_.]+)[=`]")
    assert [(page, key) for page, key in keys if not (exists(key) or key.endswith((".yaml", ".py")))] == []
    assert len(keys) > 100


def test_no_page_names_one_thing_twice_in_a_row() -> None:
    assert [(page, twice[0]) for page in PAGES for twice in re.finditer(r"(`[^`\n]+`), \1(?!\w)", prose(page))] == []


def test_every_file_that_a_page_names_exists() -> None:
    names = named(r"`((?:mas|training|core|runtime|serving|docs|tests)/[\w/]+(?:\.py|/)?)`")
    assert [
        (page, name) for page, name in names if not ((ROOT / name).exists() or (ROOT / "mas" / name).exists())
    ] == []
    assert len(names) > 100


def test_every_metric_is_documented(mas: Callable[..., Any], small_overrides: tuple[str, ...], tmp_path: Path) -> None:
    short = ("train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.loss.kl=0.1")
    assert mas("train", "scenario=relay", *short, *small_overrides, f"run_dir={tmp_path / 'run'}").code == 0
    names = set(re.findall(r"[\w]+", read("docs/training.md").partition("## Metrics")[2]))
    for line in read_metrics(tmp_path / "run" / "metrics.jsonl"):
        assert leaves(line) <= names


def leaves(metrics: dict[str, Any], within: str = "") -> set[str]:
    """Names of all metrics but those of roles, adapters and reward terms, which scenarios choose."""
    found: set[str] = set()
    for name, value in metrics.items():
        if isinstance(value, dict):
            found |= (
                leaves(value, name) | {name} if within not in ("roles", "adapters", "canary") else leaves(value, "")
            )
        elif within not in ("terms", "canary"):
            found.add(name)
    return found


def test_python_examples_of_the_pages_on_teams_run() -> None:
    names: dict[str, Any] = {}
    for block in (*blocks("docs/teams.md", "python"), *blocks("docs/protocols.md", "python")):
        exec(compile(block.text, "the page", "exec"), names)  # noqa: S102 - our own page
    assert names["Critic"]("critic", RoleSpec()).accepts == {"plan", "failure"}
    assert len(names["team"].members()) == 6


def test_the_example_of_the_page_on_serving_runs(
    mas: Callable[..., Any], small_overrides: tuple[str, ...], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    short = ("scenario=relay", "train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2", *small_overrides)
    assert mas("train", *short, f"run_dir={tmp_path / 'run'}").code == 0
    names: dict[str, Any] = {}
    (block,) = blocks("docs/serving.md", "python")
    exec(compile(block.text, "docs/serving.md", "exec"), names)  # noqa: S102 - our own page
    names["load_config"] = lambda words: load_config([*words, *small_overrides])
    asyncio.run(names["versions"](tmp_path / "run"))
    assert "planner" in capsys.readouterr().out
    assert (tmp_path / "run" / "kept" / "adapter_model.safetensors").is_file()


def test_the_examples_of_the_page_on_delivery_run() -> None:
    examples = blocks("docs/delivery.md", "python")
    for block in examples:
        exec(compile(block.text, "docs/delivery.md", "exec"), {})  # noqa: S102 - our own page
    assert len(examples) == 3


async def test_the_examples_of_the_page_on_the_endpoint_run(
    base_for: BaseFor, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    base = base_for("relay")
    config = load_config(["scenario=relay"])
    scenario = build_scenario(config.scenario)
    *asking, embedding = [block.text for block in blocks("docs/endpoint.md", "python") if "agents" not in block.text]
    curls = [line for block in blocks("docs/endpoint.md", "bash") for line in block.text.splitlines() if "curl" in line]
    with Journal.open(tmp_path / "bus.sqlite") as journal:
        log = ReplayLog(journal)
        async with (
            open_team(
                resolve(config, scenario), base, initial_adapters(resolve(config, scenario), base), log=log
            ) as crew,
            KeptRequests(log, (served := served_team(crew, base)).teams) as kept,
            running(build_app(served, kept=kept)) as address,
        ):
            await ask_as_shown(asking, curls, address)
        given = [play.settings["asked.is_own"] for play in await log.plays()]
    assert given.count(False) == 1, "one example has a key"
    await asyncio.to_thread(exec, compile(embedding, "docs/endpoint.md", "exec"), {"__name__": "example"})
    assert len(asking) == 2
    assert len(curls) == 3
    assert "planner heard hello" in capfd.readouterr().out


async def test_the_agent_of_the_page_on_the_endpoint_calls_its_function(capfd: pytest.CaptureFixture[str]) -> None:
    pytest.importorskip("agents")
    (example,) = [block.text for block in blocks("docs/endpoint.md", "python") if "agents" in block.text]
    call = '<tool_call>{"name": "add", "arguments": {"a": 2, "b": 3}}</tool_call>'
    engine = ScriptedEngine(lambda prompt, *_: "It is 5." if "<tool_response>\n5" in prompt else call, ("planner",))
    served = Served(engine=engine, base="base", context=4096, roles={}, teams=(), created=0)
    async with running(build_app(served)) as address:
        await ask_as_shown([example], [], address)
    assert capfd.readouterr().out == "It is 5.\n"


async def ask_as_shown(examples: list[str], curls: list[str], address: str) -> None:
    """Ask a server what the page asks."""
    for example in examples:
        code = compile(example.replace("http://127.0.0.1:8000", address), "docs/endpoint.md", "exec")
        await asyncio.to_thread(exec, code, {})
    if shutil.which("curl"):
        for line in curls:
            words = shlex.split(line.replace("http://127.0.0.1:8000", address))
            done = await asyncio.create_subprocess_exec(*words, "--silent", "--fail-with-body")
            assert await done.wait() == 0, line


SMALLER = """"model": {"tiny": {"steps": 5, "habit_steps": 5, "hidden": 32}}, "train": {"steps": 1, "eval_tasks": 2}"""


@pytest.mark.nightly
def test_the_example_scenario_passes_its_contract_and_trains(tmp_path: Path) -> None:
    for block in (*blocks("docs/scenarios.md", "python"), *blocks("docs/scenarios.md", "yaml")):
        assert block.file is not None
        path = tmp_path / block.file
        path.parent.mkdir(exist_ok=True)
        path.write_text(block.text.replace('"train": {"steps": 40}', SMALLER))
    contract = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "test_parity.py"]
    for words in (contract, [sys.executable, "train_parity.py"]):
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(path.name for path in (tmp_path / "runs/parity/adapters").iterdir()) == ["executor", "planner"]


def test_the_short_example_scenario_passes_its_contract_and_its_expert_is_right(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for block in (*blocks("docs/scenarios.md", "python"), *blocks("docs/scenarios.md", "yaml")):
        if block.file is not None and block.file.startswith("prices/"):
            path = tmp_path / block.file
            path.parent.mkdir(exist_ok=True)
            path.write_text(block.text)
    monkeypatch.syspath_prepend(tmp_path)
    entry = importlib.import_module("prices").ENTRY
    scenario = entry.build(entry.options())
    best = measure(scenario, "expert", scenario.expert, 20, 0)
    assert best is not None
    assert best.success == 1
    contents = {scenario.content_of(scenario.task("train", index)) for index in range(20)}
    environment = scenario.environment()
    for index in range(20):
        environment.reset(scenario.task("train", index))
        assert f"{environment.state.price} {environment.state.number}" in contents
    for spec in scenario.teams.values():
        compile_team(spec, build_roles(spec))
    with pytest.raises(ConfigError, match="'prices' has no demonstrations"):
        next(scenario.demonstrations(0, expert=True))


def test_the_game_on_the_page_on_leagues_keeps_its_contract_and_teaches_legal_moves(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = [block for language in ("python", "yaml") for block in blocks("docs/league.md", language) if block.file]
    for block in found:
        path = tmp_path / str(block.file)
        path.parent.mkdir(exist_ok=True)
        path.write_text(block.text)
    monkeypatch.syspath_prepend(tmp_path)
    game = importlib.import_module("nim")

    class Suite(EnvironmentContract):
        def make_environment(self) -> Environment:
            made: Environment = game.Nim()
            return made

        def task(self, number: int) -> Task:
            return Task(id=f"train-{number}", seed=number)

    assert [one for one in properties(Suite()) if one.why] == []
    scenario = game.ENTRY.build(game.ENTRY.options())
    roles = build_roles(scenario.teams["team"])
    for prompt, said in islice(scenario.demonstrations(0, expert=False), 100):
        assert 1 <= int(said.rstrip("\n")) <= int(prompt.strip("N>"))
        assert roles["player_0"].parse(said.rstrip("\n")).kind == "action"


def test_the_example_scenarios_package_holds_its_modules_its_teams_and_its_entry() -> None:
    (block,) = blocks("docs/scenarios.md", "toml")
    assert block.file == "pyproject.toml"
    package = tomllib.loads(block.text)
    files = [found.file or "" for language in ("python", "yaml") for found in blocks("docs/scenarios.md", language)]
    assert package["build-system"]["build-backend"] == "setuptools.build_meta"
    assert {"name", "version"} <= package["project"].keys()
    assert package["project"]["entry-points"]["mas.scenarios"] == {"parity": "parity:ENTRY"}
    (folder,) = package["tool"]["setuptools"]["packages"]
    (pattern,) = package["tool"]["setuptools"]["package-data"][folder]
    assert f"{folder}/__init__.py" in files
    assert [file for file in files if Path(file).match(f"{folder}/{pattern}")] == [
        "parity/team.yaml",
        "parity/solo.yaml",
    ]
