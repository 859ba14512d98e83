"""A team trained with a role that an agent elsewhere plays: it takes part, its teammates learn, its key is not kept."""

from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import yaml
from conftest import Ran
from loopback import in_thread

pytest.importorskip("a2a", reason="needs the extra a2a")

from remote_agents import Script, agent, begin

from mas.config.load import load_config
from mas.core.errors import ConfigError
from mas.runs.resolve import resolve
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario
from mas.training.distributed import peers_elsewhere

KEY = "sesame-4711"
SHORT = ("train.steps=2", "train.tasks_per_step=2", "train.eval_tasks=2", "algorithm.sampler.candidates=2")


def written(path: Path, url: str) -> Path:
    """A team of two trained roles and a judge elsewhere."""
    choices = {"planner": list("abcd"), "executor": list("0123456789")}
    trained = {
        name: {"type": name, "choices": some, "max_tokens": 1, "template": template}
        for (name, some), template in zip(choices.items(), ("P{goal}>", "E{table};{from.planner}>"), strict=True)
    }
    judge = {
        "type": "verifier",
        "view": "executor",
        "instructions": "Accept what the table holds.",
        "a2a": {"url": url, "key_env": "JUDGE_KEY", "timeout_s": 30},
    }
    team = {
        "name": "judged",
        "roles": trained | {"judge": judge},
        "edges": [
            "start -> planner",
            "planner -> executor",
            "executor -> judge",
            "judge -> done when accept",
            "judge -> executor when reject loop 1",
        ],
        "joins": {"executor": "any"},
        "policies": {"judge": {"retries": {"attempts": 2, "wait_s": 0.0}}},
        "output": "executor",
    }
    path.write_text(yaml.safe_dump(team, sort_keys=False))
    return path


def judge() -> Script:
    """Rejects every third answer, and breaks its first task."""
    asked = []

    async def play(text: str, updater: Any, queue: Any) -> None:
        asked.append(text)
        await begin(updater, queue)
        if len(asked) == 1:
            await updater.failed()
            return
        await updater.add_artifact([part("reject" if len(asked) % 3 == 0 else "accept")])
        await updater.complete()

    return Script(play)


def part(text: str) -> Any:
    from a2a.types import Part

    return Part(text=text)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, Script]]:
    """The judge's address, and what it was asked."""
    monkeypatch.setenv("JUDGE_KEY", KEY)
    script = judge()

    @asynccontextmanager
    async def serving() -> AsyncIterator[str]:
        async with agent(script) as url:
            yield url

    with in_thread(serving) as url:
        yield url, script


def test_the_team_learns_and_the_agent_does_not(
    elsewhere: tuple[str, Script], tmp_path: Path, small_overrides: Sequence[str], mas: Any
) -> None:
    url, script = elsewhere
    run = tmp_path / "run"
    team = written(tmp_path / "judged.yaml", url)
    words = ["scenario=relay", f"algorithm.team={team}", *SHORT, *small_overrides, f"run_dir={run}"]
    ran: Ran = mas("train", *words)
    assert ran.code == 0, ran.err
    saved = {path.name for path in (run / "checkpoints").rglob("*") if path.is_dir()}
    assert {"planner", "executor"} <= saved
    assert "judge" not in saved
    assert script.asked[0].startswith("Accept what the table holds.")
    assert "table" in script.asked[0]
    assert len(script.asked) > 4
    assert {headers["authorization"] for headers in script.headers} == {f"Bearer {KEY}"}
    kept = [path for path in run.rglob("*") if path.is_file()]
    assert kept
    assert not [path for path in kept if KEY.encode() in path.read_bytes()]
    assert KEY not in ran.out + ran.err
    played: Ran = mas("eval", str(run), "train.eval_tasks=2")
    assert played.code == 0, played.err


def test_without_the_agent_nothing_is_written(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, small_overrides: Sequence[str]
) -> None:
    monkeypatch.setenv("JUDGE_KEY", KEY)
    team = written(tmp_path / "judged.yaml", "http://127.0.0.1:9")
    words = ["scenario=relay", f"algorithm.team={team}", *SHORT, *small_overrides, f"run_dir={tmp_path}/run"]
    config = load_config(words)
    setup = resolve(config)
    assert setup.role_keys == ("JUDGE_KEY",)
    assert set(setup.trained_adapters) == {"planner", "executor"}
    assert peers_elsewhere(setup).keys() == {"judge"}
    with pytest.raises(ConfigError, match=r"the A2A agent that plays 'judge' cannot be used: http://127.0.0.1:9/"):
        train_in_directory(config, build_scenario(config.scenario))
    assert not (tmp_path / "run").exists()
