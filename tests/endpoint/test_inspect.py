"""Inspect evaluates a served role, a served team, and a run's held-out tasks."""

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from clients import offer, playing
from loopback import in_thread
from pages import blocks
from served import serving, trained

import mas
from mas.api import inspect_task
from mas.core.errors import ConfigError, MissingPackage
from mas.core.records import Episode
from mas.endpoint import RoleModel, build_app, running
from mas.endpoint.client_keys import Entrance
from mas.runs.evaluate import asked_of
from mas.testing.scripted import ScriptedEngine
from mas.training import saved

# Inspect takes six seconds to be imported.
pytestmark = [pytest.mark.filterwarnings("ignore"), pytest.mark.nightly(of=8)]

Eval = Callable[..., Any]


@pytest.fixture
def evaluate(tmp_path: Path) -> Iterator[Eval]:
    """Inspect's `eval` of one task, whose log it returns.

    Inspect leaves streams open, which warn when they are collected: that happens here, not in a later test.
    """
    inspect_ai = pytest.importorskip("inspect_ai")

    def evaluate(task: Any, **options: Any) -> Any:
        (log,) = inspect_ai.eval(task, log_dir=str(tmp_path / "logs"), display="none", max_retries=0, **options)
        return log

    yield evaluate
    gc.collect()


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory, small_overrides: tuple[str, ...]) -> Path:
    return trained(tmp_path_factory.mktemp("runs") / "relay", small_overrides)


@pytest.fixture
def address(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    def script(prompt: str, adapter: str | None, seed: int) -> str:
        return "hop" if adapter in ("planner", "executor") else f"{adapter} heard {prompt.split()[-1]}"

    @asynccontextmanager
    async def serve() -> AsyncIterator[str]:
        engine = ScriptedEngine(script, ("a",), context=100_000)
        players = ScriptedEngine(script, ("planner", "executor"))
        async with playing(players, chats=True) as team:
            app = build_app(
                offer(engine, {"a": RoleModel(chats=True, max_tokens=40)}, [team]), entrance=Entrance(key="sesame")
            )
            async with running(app) as url:
                yield f"{url}/v1"

    with in_thread(serve) as url:
        monkeypatch.setenv("MAS_BASE_URL", url)
        monkeypatch.setenv("MAS_API_KEY", "sesame")
        yield url


def of_samples(log: Any) -> list[Any]:
    """The samples of an evaluation that went well."""
    assert log.status == "success", log.error
    return list(log.samples)


@pytest.mark.nightly(of=16)
def test_a_served_role(evaluate: Eval, address: str) -> None:
    from inspect_ai import Task
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import includes

    samples = [Sample(input=f"Say {word}", target=f"a heard {word}") for word in ("one", "two")]
    wrong = Sample(input="Say three", target="four")
    log = evaluate(Task(dataset=[*samples, wrong], scorer=includes()), model="openai-api/mas/a", temperature=0.0)
    assert [sample.output.completion for sample in of_samples(log)] == ["a heard one", "a heard two", "a heard three"]
    assert log.results.scores[0].metrics["accuracy"].value == pytest.approx(2 / 3)
    usage = log.stats.model_usage["openai-api/mas/a"]
    assert usage.input_tokens > 0
    assert usage.output_tokens == sum(len(f"a heard {word}") + 1 for word in ("one", "two", "three"))


@pytest.mark.nightly(of=16)
def test_a_served_team(evaluate: Eval, address: str) -> None:
    from inspect_ai import Task
    from inspect_ai.dataset import Sample
    from inspect_ai.scorer import exact

    cards = httpx.get(f"{address}/models", headers={"Authorization": "Bearer sesame"}).json()["data"]
    (example,) = [card["example"] for card in cards if card["kind"] == "team"]
    task = Task(dataset=[Sample(input=example, target="hop") for _ in range(3)], scorer=exact())
    samples = of_samples(evaluate(task, model="openai-api/mas/team:plan_path", seed=3))
    assert [sample.scores["exact"].value for sample in samples] == ["I", "I", "I"]


def test_a_wrong_key_is_an_error_of_the_evaluation(
    evaluate: Eval, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    from inspect_ai import Task
    from inspect_ai.dataset import Sample

    monkeypatch.setenv("MAS_API_KEY", "open")
    log = evaluate(Task(dataset=[Sample(input="hello")]), model="openai-api/mas/a")
    assert log.status == "error"
    assert "401" in log.error.message


@pytest.mark.slow
@pytest.mark.nightly
def test_a_run_that_is_served_by_the_command(evaluate: Eval, run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The tiny base does not chat: contents are raw prompts, as its roles write them."""
    from inspect_ai import Task
    from inspect_ai.dataset import Sample

    with serving(str(run), "--port", "0") as served:
        monkeypatch.setenv("MAS_BASE_URL", f"{served.address}/v1")
        monkeypatch.setenv("MAS_API_KEY", "none needed")
        prompts = [Sample(input=f"E{table};a>") for table in ("0723", "1230", "3102")]
        situations = [Sample(input=f'{{"goal": "{goal}", "table": "0723"}}') for goal in "ABC"]
        role = of_samples(evaluate(Task(dataset=prompts), model="openai-api/mas/executor"))
        team = of_samples(evaluate(Task(dataset=situations), model="openai-api/mas/team:relay"))
    assert len(role) == len(team) == 3
    assert all(sample.output.usage.output_tokens > 0 for sample in (*role, *team))


def as_scored(sample: Any) -> tuple[str, float, float, int, int]:
    score = sample.scores["mas_scenario"]
    told = score.metadata
    return sample.id, score.value["success"], score.value["reward"], told["turns"], told["calls"]


def as_played(episode: Episode) -> tuple[str, float, float, int, int]:
    reward = sum(episode.rewards.values())
    return episode.task, float(episode.success), reward, episode.length, episode.calls


@pytest.mark.slow
@pytest.mark.parametrize("is_sampled", [False, True])
def test_the_held_out_tasks_of_a_run_are_played_as_by_mas_eval(evaluate: Eval, run: Path, is_sampled: bool) -> None:
    right = mas.evaluate(run, tasks=6, is_sampled=is_sampled, quiet=True)
    for name, is_trained in (("trained", True), ("untrained", False)):
        task = mas.inspect_task(run, tasks=6, is_sampled=is_sampled, is_trained=is_trained)
        log = evaluate(task, max_samples=3)
        samples = of_samples(log)
        assert [as_scored(sample) for sample in samples] == [as_played(one) for one in right[name].episodes]
        metrics = {score.name: score.metrics["mean"].value for score in log.results.scores}
        assert metrics["success"] == pytest.approx(right[name].success)
        spoken = [line for line in right[name].episodes[0].lines for line in (line.prompt, line.text)]
        assert [message.text for message in samples[0].messages[1:]] == spoken
    assert log.eval.metadata == {
        "run": str(run), "team": "relay", "is_trained": False, "is_sampled": is_sampled, "seed": 0,
    }  # fmt: skip


@pytest.mark.slow
def test_further_epochs_are_sampled_anew_and_one_sample_at_a_time_is_the_same(evaluate: Eval, run: Path) -> None:
    log = evaluate(mas.inspect_task(run, tasks=4, is_sampled=True), epochs=3, max_samples=1)
    right = mas.evaluate(run, tasks=4, is_sampled=True, quiet=True)["trained"]
    samples = of_samples(log)
    said = {epoch: [one.messages[-1].text for one in samples if one.epoch == epoch] for epoch in (1, 2, 3)}
    assert said[1] == [episode.lines[-1].text for episode in right.episodes]
    assert len({tuple(texts) for texts in said.values()}) > 1


def of_the_page(run: Path) -> str:
    """The ten lines of the page on evaluation, for this run."""
    (block,) = blocks("docs/evaluation.md", "python")
    assert block.file == "held_out.py"
    return block.text.replace("runs/relay", str(run))


@pytest.mark.slow
def test_the_ten_lines_of_the_page_are_enough(evaluate: Eval, run: Path) -> None:
    names: dict[str, Any] = {}
    exec(compile(of_the_page(run), "held_out.py", "exec"), names)  # noqa: S102 - our own page
    samples = of_samples(evaluate(names["relay"](tasks=2)))
    assert [sample.id for sample in samples] == [
        episode.task for episode in mas.evaluate(run, tasks=2, quiet=True)["trained"].episodes
    ]


@pytest.mark.slow
@pytest.mark.nightly
def test_the_command_of_inspect_plays_them(run: Path, tmp_path: Path) -> None:
    logs = pytest.importorskip("inspect_ai.log")
    (tmp_path / "held_out.py").write_text(of_the_page(run))
    command = [sys.executable, "-m", "inspect_ai", "eval", "held_out.py", "-T", "tasks=2", "--display", "plain"]
    done = subprocess.run(
        [*command, "--log-dir", "logs"], cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "logs").iterdir()
    found = logs.read_eval_log(str(path))
    assert (found.status, len(found.samples)) == ("success", 2)
    assert "Traceback" not in done.stdout + done.stderr
    assert "never" not in done.stderr, "no coroutine or task is left"


@pytest.mark.slow
async def test_a_team_is_opened_once_for_samples_side_by_side_and_again_after_it_was_idle(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, opened, opens = asked_of(run, [], 3), list[str](), saved.open_run

    @asynccontextmanager
    async def counted(*arguments: Any) -> AsyncIterator[Any]:
        async with opens(*arguments) as session:
            opened.append("opened")
            yield session
            opened.append("closed")

    monkeypatch.setattr(saved, "open_run", counted)
    monkeypatch.setattr(inspect_task, "_IDLE_S", 0.01)
    player = inspect_task._TeamPlayer(asked, is_trained=True)
    first = await asyncio.gather(*(player.play(index, 1) for index in range(3)))
    assert opened == ["opened"]
    keeper = player._keeper
    assert keeper is not None
    await keeper
    assert opened == ["opened", "closed"]
    again = await player.play(0, 1)
    assert opened == ["opened", "closed", "opened"]
    assert again.lines == first[0].lines
    keeper = player._keeper
    assert keeper is not None
    keeper.cancel()  # as the end of the event loop does
    await asyncio.wait([keeper])
    assert opened[-1] == "opened", "the block that was left by the cancellation did not go on"


def test_what_cannot_be_played_is_said_before_anything_is(run: Path, tmp_path: Path) -> None:
    pytest.importorskip("inspect_ai")
    with pytest.raises(ConfigError, match="0 tasks: at least one is played"):
        mas.inspect_task(run, tasks=0)
    with pytest.raises(ConfigError, match=r"train\.steps"):
        mas.inspect_task(run, ["train.steps=3"])


def test_a_team_that_cannot_be_opened_is_the_error_of_the_evaluation(evaluate: Eval, run: Path) -> None:
    from inspect_ai import Task

    task = mas.inspect_task(run, ["train.seed=1"], tasks=2)
    assert isinstance(task, Task)
    away = run.rename(run.with_name("elsewhere"))
    try:
        log = evaluate(task)
    finally:
        away.rename(run)
    assert log.status == "error"
    assert "holds no trained adapters yet" in log.error.message


def test_without_inspect_the_extra_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("mas.api.inspect_task.find_spec", lambda name: None)
    with pytest.raises(MissingPackage, match=r"pip install 'mas\[inspect\]'"):
        mas.inspect_task(tmp_path)
