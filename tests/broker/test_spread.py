"""A team over processes: `mas broker` with its rights, `mas agent` for each agent, and `mas run --bus`."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from brokers import MAIN, Broker, broker, needs_mosquitto, read_env

pytestmark = needs_mosquitto
Mas = Callable[..., Any]


@contextmanager
def agent(running: Broker, name: str, words: tuple[str, ...]) -> Iterator[subprocess.Popen[str]]:
    """`mas agent` as soon as it speaks; killed at the end."""
    variables = os.environ | read_env(running.directory / "passwords" / f"relay.{name}.env")
    command = [sys.executable, "-c", MAIN, "agent", name, "scenario=relay", *words]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any("speaks on the bus" in line for line in process.stdout)
            yield process
        finally:
            process.kill()


@pytest.mark.slow
def test_agents_in_processes_of_their_own_play_as_in_one(
    tmp_path: Path, mas: Mas, small_overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = mas("run", "scenario=relay", *small_overrides)
    assert here.code == 0, here.err
    with (
        broker("relay", tmp_path / "bus") as running,
        agent(running, "planner", small_overrides),
        agent(running, "executor", small_overrides) as executor,
    ):
        for name, value in read_env(running.directory / "passwords" / "coordinator.env").items():
            monkeypatch.setenv(name, value)
        url = os.environ["MAS_BUS_URL"]
        there = mas("run", "scenario=relay", *small_overrides, "--bus", url)
        assert there.code == 0, there.err
        conversation = here.out[here.out.index("planner") :]
        assert conversation in there.out
        executor.send_signal(signal.SIGTERM)
        assert executor.wait(timeout=30) == 0
        monkeypatch.setattr("mas.training.spread.WAIT_S", 1.0)
        alone = mas("run", "scenario=relay", *small_overrides, "--bus", url)
        assert alone.code == 2
        assert "nobody speaks for 'executor' of team 'relay'" in alone.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("agent", "planner", "scenario=relay"), "mas agent needs a bus: --bus mqtt://"),
        (("agent", "plannr", "scenario=relay", "--bus", "mqtt://relay%2Fplanner@127.0.0.1/x"), "no agent 'plannr'"),
        (
            ("agent", "planner", "scenario=relay", "--bus", "mqtt://bob@127.0.0.1/x"),
            "write relay%2Fplanner@ before the host",
        ),
        (("agent", "planner", "scenario=relay", "--bus", "http://bob@127.0.0.1/x"), "begins with 'http'"),
        (("run", "scenario=relay", "--ca", "x.pem"), "--bus, which is not given"),
    ],
)
def test_a_mistake_is_one_line(mas: Mas, words: tuple[str, ...], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAS_BUS_URL", raising=False)
    found = mas(*words)
    assert found.code == 2
    assert problem in found.err
