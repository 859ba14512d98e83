"""The bridge to verifiers, with small tasksets of the tests in a Python that has verifiers.

verifiers needs an older openai than mas. So it is in another environment, which `make install-foreign` makes, or whose
Python MAS_VERIFIERS_PYTHON names; without it those tests are skipped.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import SMALL, TINY, BaseFor
from foreign import foreign_python, why_none
from verifiers_tasksets import ALL

from mas.config.access import option_accesses
from mas.config.load import load_config
from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError, EnvironmentFault
from mas.core.role import View
from mas.graph.plan import compile_team
from mas.roles import build_roles
from mas.runs.resolve import resolve_training
from mas.scenarios import build_scenario
from mas.scenarios.bridges import open_bridge
from mas.scenarios.bridges.verifiers import VARIABLE, close_workers, conversation, worker_of
from mas.testing.environment import EnvironmentContract
from mas.training.trainer import Trainer
from mas.training.watch import Silent

PYTHON = foreign_python("verifiers")
real = pytest.mark.skipif(not PYTHON, reason=why_none("verifiers"))


@pytest.fixture(autouse=True)
def _interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VARIABLE, PYTHON)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    written = tmp_path_factory.mktemp("tasksets")
    for name, text in ALL.items():
        (written / f"{name}.py").write_text(text)
    yield written
    close_workers()


def begun(name: str, folder: Path, seed: int = 1, **options: Any) -> Environment:
    more = "".join(f",{key}={value}" for key, value in options.items())
    environment = open_bridge(f"verifiers:{name}(path={folder},timeout_s=250{more})")
    environment.reset(Task(id="train-1", seed=seed))
    return environment


def seen(environment: Environment) -> str:
    return environment.observe("player").fields["seen"]


@real
class TestVerifiers(EnvironmentContract):
    @pytest.fixture(autouse=True)
    def _written(self, folder: Path) -> None:
        self.id = f"verifiers:guess(path={folder},timeout_s=250)"

    def make_environment(self) -> Environment:
        return open_bridge(self.id)

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number)

    # Every task begins with the same words.
    def test_tasks_differ(self) -> None:
        assert {seen(self.started(number)) for number in range(5)} == {"system: Numbers only.\n\nuser: Guess."}


@real
def test_an_answer_is_paid_by_the_rewards_of_the_task_with_their_weights(folder: Path) -> None:
    environment = begun("sums", folder)
    number = int(seen(environment).partition("+")[0])
    assert environment.spec.terms == ("right", "short", "other")
    wrong, long = environment.clone(), environment.clone()
    assert environment.step({"player": str(number + 1)}).rewards == {"player": {"right": 1.0, "short": 0.5}}
    assert environment.success()
    assert environment.to_move() == ()
    assert wrong.step({"player": "x"}).rewards == {"player": {"right": 0.0, "short": 0.5}}
    assert not wrong.success()
    assert long.step({"player": f" {number + 1}" + " " * 9}).rewards == {"player": {"right": 1.0, "short": 0.5}}


@real
def test_options_of_the_taskset_stand_in_the_brackets_and_splits_share_no_task(folder: Path) -> None:
    name = f"verifiers:sums(path={folder},timeout_s=250,size=60)"
    assert len(worker_of(name.removeprefix("verifiers:")).keys) == 60
    scenario = build_scenario(ScenarioOptions(name="bridge", options={"id": name, "style": "words"}))
    environment, found = scenario.environment(), {}
    for split in ("train", "eval"):
        tasks = set()
        for index in range(30):
            environment.reset(scenario.task(split, index))  # type: ignore[arg-type]
            tasks.add(seen(environment))
        found[split] = tasks
    assert not found["train"] & found["eval"]
    assert min(map(len, found.values())) > 1, "which task is in which split depends on the folder's name"
    for team in scenario.teams.values():
        roles = build_roles(team)
        compile_team(team, roles)
        for role in roles.values():
            assert "+1=" in role.prompt(View(observation=environment.observe(role.spec.view or "player")))


@real
def test_an_environment_that_answers_is_a_conversation(folder: Path) -> None:
    environment = begun("guess", folder, seed=2)
    assert environment.step({"player": "100"}).rewards == {"player": {}}
    assert seen(environment).endswith("user: Guess.\n\nassistant: 100\n\nuser: Less.")
    clone = environment.clone()
    clone.step({"player": "-1"})
    assert not clone.step({"player": "-1"}).rewards["player"]["found"]
    assert clone.to_move() == ()
    with pytest.raises(EnvironmentFault, match=r"the episode failed: EnvError: .*broken on purpose"):
        environment.step({"player": "break"})


@real
def test_tools_are_called_and_their_results_are_read(folder: Path) -> None:
    environment = begun("look_up", folder)
    number = int(seen(environment).split()[-1].rstrip("?"))
    (tool,) = map(json.loads, environment.observe("player").fields["tools"].splitlines())
    call = json.dumps({"name": tool["name"], "arguments": {"number": number}})
    assert environment.step({"player": f"<tool_call>{call}</tool_call>"}).rewards == {"player": {}}
    assert f"tool: word-{number}" in seen(environment)
    assert environment.step({"player": f"word-{number}"}).rewards == {"player": {"right": 1.0}}


@real
@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("nowhere", {}, "taskset 'nowhere' not found"),
        ("two", {}, "it has the agents first, second, and a team plays one"),
        ("sums", {"colour": "red"}, "colour"),
        ("sums", {"size": 0}, "it has no tasks"),
        ("sums", {"tasks": 0}, "tasks: Input should be greater than or equal to 1"),
    ],
)
def test_what_cannot_be_opened_says_why(name: str, options: dict[str, Any], why: str, folder: Path) -> None:
    with pytest.raises(ConfigError, match=why):
        begun(name, folder, **options)


@real
def test_a_process_that_is_gone_fails_the_episode_and_the_next_one_begins_another(folder: Path) -> None:
    environment = begun("sums", folder)
    worker = worker_of(f"sums(path={folder},timeout_s=250)")
    worker._process.kill()
    worker._process.wait()
    with pytest.raises(EnvironmentFault, match="its process has ended"):
        environment.step({"player": "1"})
    assert "+1=" in seen(begun("sums", folder))


TEAM = """
name: short
roles:
  solo: {type: executor, view: player, template: "{seen}>", max_tokens: 1}
edges: [start -> solo, solo -> done]
output: solo
seat: player
"""


@real
async def test_a_team_is_trained_on_a_taskset_by_name(base_for: BaseFor, folder: Path, tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(TEAM)
    model = SMALL.model_copy(update={"tiny": TINY})
    words = [
        "scenario=bridge",
        f'scenario.options.id="verifiers:sums(path={folder},timeout_s=250)"',
        "scenario.options.style=words",
    ]
    few = ["train.steps=2", "train.tasks_per_step=2", "train.eval_tasks=2", "train.eval_every=0"]
    config = load_config([*words, *few, "algorithm=parallel_grpo", f"algorithm.team={tmp_path}/team.yaml"])
    config = config.model_copy(update={"model": model.model_copy(update={"path": "anything"})})
    setup = resolve_training(config, build_scenario(config.scenario))
    outcome = await Trainer(setup, base_for("relay", model)).run(Silent())
    assert len(outcome.history) == 2
    assert all(metrics["episodes"]["failed"] == 0 < metrics["tokens"] for metrics in outcome.history)


def test_without_an_interpreter_the_error_says_how_to_make_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(ConfigError, match=r"gsm8k\(python=PATH\), or set MAS_VERIFIERS_PYTHON.*verifiers==0"):
        open_bridge("verifiers:gsm8k")
    with pytest.raises(ConfigError, match="/no/python cannot be run: No such file"):
        open_bridge("verifiers:gsm8k(python=/no/python)")
    with pytest.raises(ConfigError, match=r"cannot be opened in .*: ModuleNotFoundError: No module named 'verifiers'"):
        open_bridge(f"verifiers:gsm8k(python={sys.executable})")


def test_a_run_of_others_asks_before_it_runs_an_environment() -> None:
    (access,) = option_accesses({"id": "verifiers:gsm8k(python=/x/python)"}, "scenario.options")
    assert (access.kind, access.what) == ("code", "run the verifiers environment gsm8k(python=/x/python)")


def test_messages_are_read_as_text() -> None:
    parts = [{"type": "text", "text": "What?"}, {"type": "image_url"}]
    call = {"function": {"name": "look", "arguments": '{"number": 1}'}}
    assert conversation([{"role": "user", "content": parts}]) == "What?\n[image_url]"
    assert conversation([{"role": "user", "content": "a"}, {"role": "assistant", "tool_calls": [call]}]) == (
        'user: a\n\nassistant: {"name": "look", "arguments": {"number": 1}}'
    )
