"""Roles played by models from elsewhere: they take part, cost what they cost, and are never trained."""

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import BaseFor, Ran
from loopback import in_thread
from parts import SKILLED, quiet_adapters

from mas.config.load import load_config
from mas.config.options import Config
from mas.core.engine import Engine
from mas.core.errors import ConfigError, EngineError
from mas.core.role import RoleSpec
from mas.core.scenario import Scenario
from mas.endpoint import Served, build_app
from mas.endpoint.server import running
from mas.runs.resolve import resolve, resolve_training
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario
from mas.serving.model import BaseModel
from mas.serving.model_text import END
from mas.serving.transformers_engine import TransformersEngine
from mas.testing.scripted import ScriptedEngine
from mas.training.compare import compare_taught
from mas.training.distributed import peers_elsewhere
from mas.training.engines import served_adapters
from mas.training.evaluate import evaluate
from mas.training.session import open_team
from mas.training.trainer import Trainer
from mas.training.watch import Silent

DIGITS = list("0123456789")
TEAM: dict[str, Any] = {
    "name": "judged",
    "roles": {
        "planner": {"type": "planner", "template": "P{goal}>", "choices": list("abcd"), "max_tokens": 1},
        "executor": {
            "type": "executor",
            "template": "E{table};{from.planner}>",
            "choices": DIGITS,
            "max_tokens": 1,
        },
        "judge": {
            "type": "verifier",
            "view": "executor",
            "instructions": "Accept what the table holds.",
            "max_tokens": 8,
            "trainable": False,
            "peer": "elsewhere",
        },
    },
    "edges": [
        "start -> planner",
        "planner -> executor",
        "executor -> judge",
        "judge -> done when accept",
        "judge -> executor when reject loop 1",
    ],
    "joins": {"executor": "any"},
    "output": "executor",
}


@pytest.fixture
def team(tmp_path: Path) -> Path:
    path = tmp_path / "judged.yaml"
    path.write_text(yaml.safe_dump(TEAM, sort_keys=False))
    return path


@asynccontextmanager
async def offered(engine: Engine) -> AsyncIterator[str]:
    """An engine behind an endpoint; its address with the path."""
    served = Served(engine=engine, base="tiny", context=4096, roles={}, teams=(), created=1)
    async with running(build_app(served, max_waiting=4096)) as address:
        yield f"{address}/v1"


def judge() -> ScriptedEngine:
    """Accepts what is in the table of the prompt, mostly."""
    return ScriptedEngine(lambda prompt, adapter, seed: "reject" if seed % 5 == 0 else "accept", ("verifier",))


def configured(team: Path, url: str, *words: str) -> Config:
    tiny = SKILLED.tiny.model_dump(exclude_defaults=True)
    return load_config(
        [
            *("scenario=relay", f"algorithm.team={team}", "train.steps=2", "train.tasks_per_step=3"),
            *("train.eval_tasks=4", "train.eval_every=0", "algorithm.sampler.candidates=3", "model.lora.rank=4"),
            *(f"model.tiny.{name}={value}" for name, value in tiny.items()),
            f"peers.elsewhere.url={url}",
            *words,
        ]
    )


@pytest.fixture(scope="module")
def base(base_for: BaseFor) -> BaseModel:
    return base_for("relay", SKILLED)


class Episodes(Silent):
    """Keeps what was played."""

    def on_step(self, step: int, metrics: Any, episodes: Any) -> None:
        self.turns = [turn for episode in episodes for turn in episode.turns]
        self.metrics = metrics


async def test_a_peer_takes_part_in_training_and_is_not_trained(base: BaseModel, team: Path) -> None:
    behind, watcher = judge(), Episodes()
    async with offered(behind) as url:
        config = configured(team, url, "peers.elsewhere.model=verifier")
        outcome = await Trainer(resolve_training(config), base).run(watcher)
    assert set(outcome.adapters) == {"planner", "executor"}
    assert outcome.progress.versions == {"planner": 2, "executor": 2}
    said = [turn for turn in watcher.turns if turn.role == "judge"]
    assert {turn.text for turn in said} <= {"accept", "reject"}
    assert {(turn.logprobs, turn.completion_ids[-1], turn.failure) for turn in said} == {((), END, None)}
    assert {str(turn.adapter) for turn in said} == {"verifier@0"}
    assert {turn.role for turn in watcher.turns if turn.logprobs} == {"planner", "executor"}
    assert {request.adapter for request in behind.requests} == {"verifier"}
    prompt = behind.tokenizer.decode(behind.requests[0].prompt_ids)
    assert "Accept what the table holds." in prompt
    assert "table" in prompt


async def test_a_peer_that_exchanges_tokens_speaks_as_its_own_server_says(base: BaseModel, team: Path) -> None:
    engine = TransformersEngine(base)
    await engine.store.publish("verifier", quiet_adapters(base, ["verifier"])["verifier"])
    watcher = Episodes()
    async with offered(engine) as url:
        words = ["peers.elsewhere.api=completions", "peers.elsewhere.model=verifier", "train.steps=1"]
        config = configured(team, url, *words)
        await Trainer(resolve_training(config), base).run(watcher)
    await engine.close()
    said = [turn for turn in watcher.turns if turn.role == "judge"]
    assert said
    assert all(len(turn.logprobs) == len(turn.completion_ids) for turn in said)
    assert {str(turn.adapter) for turn in said} == {"verifier@0"}


def test_without_its_peers_server_nothing_is_written(team: Path, tmp_path: Path) -> None:
    config = configured(team, "http://127.0.0.1:9/v1", f"run_dir={tmp_path}/run", "peers.elsewhere.retries=0")
    with pytest.raises(EngineError, match=r"no connection to http://127.0.0.1:9/v1/models.*peers.elsewhere.url"):
        train_in_directory(config, build_scenario(config.scenario))
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], r"role 'judge' of team 'judged' is played by peer 'elsewhere', which is not configured: set peers.else"),
        (["peers.elsewere.url=http://x/v1"], r"'elsewhere', which is not configured.*Did you mean 'elsewere'"),
        (
            ["peers.elsewhere.url=http://x/v1", "peers.b.url=http://x/v1"],
            r"peers.b is configured, but no role of team 'judged' has 'peer: b'",
        ),
        (["peers.elsewhere.api=chat"], "peers.elsewhere.url must be set"),
        (
            ["peers.elsewhere.url=http://x/v1", "peers.elsewhere.ulr=y"],
            "'peers.elsewhere.ulr'.*Did you mean 'url'",
        ),
    ],
)
def test_a_team_and_its_configuration_name_the_same_peers(
    mas: Callable[..., Ran], team: Path, words: list[str], message: str
) -> None:
    ran = mas("config", "scenario=relay", f"algorithm.team={team}", *words)
    assert ran.code == 2
    assert ran.err.count("\n") == 1
    with pytest.raises(AssertionError, match=message):
        raise AssertionError(ran.err)


def test_a_configured_peer_that_no_team_names_is_refused(mas: Callable[..., Ran]) -> None:
    ran = mas("run", "scenario=relay", "peers.judge.url=http://127.0.0.1:9/v1")
    assert (ran.code, "peers.judge is configured, but no role of team 'relay'" in ran.err) == (2, True)


@pytest.mark.parametrize("wrong", [{"trainable": True}, {"trainable": False, "adapter": "planner"}])
def test_a_peers_role_is_frozen_and_has_no_adapter(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="peer 'x' plays this role: set trainable: false, and name no adapter"):
        RoleSpec(peer="x", **wrong)


async def test_a_trained_team_is_played_as_its_server_has_it(base: BaseModel) -> None:
    engine = TransformersEngine(base)
    for name, weights in quiet_adapters(base, ["planner", "executor"]).items():
        await engine.store.publish(name, weights)
    async with offered(engine) as url:
        config = load_config(["scenario=relay", "engine=openai", f"engine.remote.url={url}"])
        scenario: Scenario = build_scenario(config.scenario)
        async with open_team(resolve(config, scenario), None) as players:
            far = await evaluate(players.runtime, scenario, 8, temperature=0.0, seed=0)
    await engine.close()

    near_config = load_config(["scenario=relay"])
    adapters = quiet_adapters(base, ["planner", "executor"])
    async with open_team(resolve(near_config, scenario), base, adapters) as crew:
        near = await evaluate(crew.runtime, scenario, 8, temperature=0.0, seed=0)
    assert [episode.lines for episode in far.episodes] == [episode.lines for episode in near.episodes]


async def test_a_team_of_a_server_learns_without_gradients_and_without_a_base(base: BaseModel) -> None:
    engine = TransformersEngine(base)
    words = ["scenario=relay", "algorithm=training_free", "algorithm.options.editor=quote", "train.steps=1"]
    async with offered(engine) as url:
        config = load_config([*words, "train.eval_tasks=4", "engine=openai", f"engine.remote.url={url}"])
        scenario: Scenario = build_scenario(config.scenario)
        far = await Trainer(resolve_training(config, scenario), None).run(Silent())
        known = {role: library.experiences for role, library in far.libraries.items()}
        results = await compare_taught(resolve(config, scenario), None, known, tasks=2)
    await engine.close()
    near = await Trainer(resolve_training(load_config([*words, "train.eval_tasks=4"]), scenario), base).run(Silent())
    assert far.libraries == near.libraries
    assert far.libraries["executor"].version == 1
    first = {name: result.episodes[0].lines[1].prompt for name, result in results.items()}
    assert first["trained"].startswith("".join(f"{text}\n" for text in known["executor"]))
    assert "->" not in first["untrained"]


def test_a_server_with_some_of_the_adapters_is_refused() -> None:
    wanted = {"planner": "planner", "executor": "executor", "judge": None}
    assert served_adapters(wanted, {"planner": 1, "executor": 1, "other": 1}, "u") == wanted
    assert served_adapters(wanted, {"other": 1}, "u") == dict.fromkeys(wanted)
    with pytest.raises(ConfigError, match=r"u serves only some adapters of the team, not \['planner'\]"):
        served_adapters(wanted, {"executor": 1}, "u")


def test_what_only_plays_cannot_be_trained(mas: Callable[..., Ran], tmp_path: Path) -> None:
    ran = mas("train", "scenario=relay", "engine=openai", f"run_dir={tmp_path}/run")
    assert ran.code == 2
    assert "nothing can be published to it" in ran.err
    assert not (tmp_path / "run").exists()


def test_run_and_eval_play_what_a_server_serves(
    mas: Callable[..., Ran], tmp_path: Path, small_overrides: tuple[str, ...]
) -> None:
    run = tmp_path / "run"
    words = ("scenario=relay", *small_overrides, "train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2")
    assert mas("train", *words, f"run_dir={run}").code == 0
    behind = ScriptedEngine(lambda prompt, adapter, seed: "a" if adapter == "planner" else "3", ("planner", "executor"))
    with in_thread(lambda: offered(behind)) as url:
        remote = ("engine.name=openai", f"engine.remote.url={url}", "engine.remote.api=chat")
        shown = mas("run", str(run), *remote)
        found = mas("eval", str(run), *remote, "--tasks", "3")
        swapped = mas("eval", str(run), *remote, "--swap", "planner,executor")
    assert (shown.code, "says  a" in shown.out, "says  3" in shown.out) == (0, True, True)
    assert (found.code, "served" in found.out, "untrained" in found.out) == (0, True, False)
    assert (swapped.code, "--swap exchanges adapters of this run" in swapped.err) == (2, True)
    assert {request.adapter for request in behind.requests} == {"planner", "executor"}


@pytest.mark.parametrize(
    ("words", "stop"),
    [
        (["peers.elsewhere.model=x"], (END,)),
        (["peers.elsewhere.api=completions", "peers.elsewhere.tokenizer=tiny"], (1,)),  # <eos> of the tiny base
    ],
)
def test_a_peer_of_a_team_over_processes_reads_as_its_own_model_does(
    team: Path, words: list[str], stop: tuple[int, ...]
) -> None:
    config = configured(team, "http://127.0.0.1:9/v1", *words)
    voices = peers_elsewhere(resolve(config))
    assert set(voices) == {"judge"}
    assert (voices["judge"].engine.stop_ids, voices["judge"].chats) == (stop, stop == (END,))
