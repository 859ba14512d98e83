"""Adventures of TextWorld: one always, more of them with `pytest --all`. Skipped where the package is missing."""

from collections.abc import Mapping
from pathlib import Path
from random import Random

import pytest

from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError
from mas.scenarios.bridges.textworld import SIZES, VIEWS, adventure, open_environment
from mas.scenarios.replay import ReplayEnvironment
from mas.testing.environment import EnvironmentContract, everything

pytest.importorskip("textworld", reason="textworld is not installed: pip install 'mas[textworld]'")

pytestmark = pytest.mark.filterwarnings("ignore:Game .* is not fully supported")
"""Jericho says so of every generated adventure; TextWorld asks it for nothing that needs more."""


def started(name: str = "small", seed: int = 3) -> ReplayEnvironment:
    environment = open_environment(name)
    assert isinstance(environment, ReplayEnvironment)
    environment.reset(Task(id=f"train-{seed}", seed=seed))
    return environment


def walk(environment: Environment, random: Random, steps: int) -> None:
    """So many admissible commands, or to the end."""
    for _ in range(steps):
        if environment.to_move():
            environment.step({"team": random.choice(environment.legal("team") or ("",))})


@pytest.mark.nightly(shard=False)
@pytest.mark.timeout(1800)
class TestSmall(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = dict.fromkeys(
        VIEWS, frozenset({"objective", "feedback", "room", "inventory", "commands"})
    )

    def make_environment(self) -> Environment:
        return open_environment("small")

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number)


@pytest.mark.nightly(of=16)
def test_an_adventure_is_the_same_again_and_its_clone_goes_the_same_way() -> None:
    first, second = started(), started()
    walk(first, Random(1), 4)
    walk(second, Random(1), 4)
    assert everything(first) == everything(second) == everything(first.clone())
    assert first.snapshot() == second.snapshot()


@pytest.mark.nightly(of=16)
def test_only_admissible_commands_reach_the_interpreter() -> None:
    environment = started()
    before = environment.render()
    for hostile in ("restart", "quit", "save", "x" * 5000, "look\x00", "go nowhere"):
        assert environment.step({"team": hostile}).illegal == ("team",)
    assert environment.step({"team": ""}).illegal == ()
    assert environment.render() == before
    assert environment.step({"team": "look"}).illegal == ()


def test_what_an_adventure_says_has_neither_banner_nor_status_line() -> None:
    fields = started().observe("solo").fields
    assert fields["feedback"].startswith(fields["objective"])
    assert "$$" not in fields["feedback"]
    assert not fields["feedback"].endswith("/1")
    assert set(fields["commands"].splitlines()) >= {"look", "inventory"}


def test_an_adventure_is_compiled_once(mas_cache: Path) -> None:
    path = adventure(SIZES["small"], 3)
    made = path.stat().st_mtime_ns
    assert adventure(SIZES["small"], 3) == path
    assert path.stat().st_mtime_ns == made
    assert mas_cache in path.parents
    assert [*path.parent.parent.glob(f".{path.parent.name}*")] == []


def test_an_unknown_size_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"no size 'smal' of TextWorld's adventures\. Did you mean 'small'"):
        open_environment("smal")


@pytest.mark.nightly(shard=False)
@pytest.mark.timeout(1800)
def test_ten_thousand_random_steps_break_nothing() -> None:
    random, steps, seed = Random(0), 0, 0
    while steps < 10_000:
        environment = started("medium", seed % 5)
        while environment.to_move():
            walk(environment, random, 1)
            steps += 1
        seed += 1
