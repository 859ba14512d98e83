"""A team over processes: `mas broker` with its rights, `mas agent` for each agent, and `mas run --bus`."""

import os
import signal
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from brokers import Broker, broker, needs_mosquitto, read_env
from spans import spans_in, tree_of
from started import COMMAND

pytestmark = needs_mosquitto
Mas = Callable[..., Any]


@contextmanager
def agent(running: Broker, name: str, words: tuple[str, ...]) -> Iterator[subprocess.Popen[str]]:
    """`mas agent` as soon as it speaks; killed at the end."""
    variables = os.environ | read_env(running.directory / "passwords" / f"relay.{name}.env")
    command = [*COMMAND, "agent", name, "scenario=relay", *words]
    with subprocess.Popen(command, env=variables, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert any("serves on the bus" in line for line in process.stdout)
            yield process
        finally:
            process.kill()


def check_trace(run: Path, planner: Path, executor: Path) -> None:
    """The spans of the three processes are one trace; what the agents did is in their own files."""
    tree = tree_of(run, planner, executor)
    assert [name for name in tree if not name.startswith(" ")] == ["run"]
    for agent, place in (("planner", planner), ("executor", executor)):
        within = tree.index(f"      invoke_agent {agent}")
        assert [name.split()[0] for name in tree[within : within + 4]] == [
            "invoke_agent", "send", "process", "text_completion",
        ]  # fmt: skip
        assert {span.name.split()[0] for span in spans_in(place)} == {"process", "text_completion"}


@pytest.mark.nightly
@pytest.mark.slow
def test_agents_in_processes_of_their_own_play_as_in_one(
    tmp_path: Path, mas: Mas, small_overrides: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    here = mas("run", "scenario=relay", *small_overrides)
    assert here.code == 0, here.err
    with (
        broker("relay", tmp_path / "bus") as running,
        agent(running, "planner", (*small_overrides, "--trace", str(tmp_path / "planner"))) as planner,
        agent(running, "executor", (*small_overrides, "--trace", str(tmp_path / "executor"))) as executor,
    ):
        for name, value in read_env(running.directory / "passwords" / "coordinator.env").items():
            monkeypatch.setenv(name, value)
        url = os.environ["MAS_BUS_URL"]
        there = mas("run", "scenario=relay", *small_overrides, "--bus", url, "--trace", str(tmp_path / "run"))
        assert there.code == 0, there.err
        conversation = here.out[here.out.index("planner") :]
        assert conversation in there.out
        executor.send_signal(signal.SIGTERM)
        assert executor.wait(timeout=30) == 0
        assert executor.stdout is not None
        assert "leaving: requests that have begun are finished" in executor.stdout.read()
        check_trace(tmp_path / "run", tmp_path / "planner", tmp_path / "executor")
        monkeypatch.setattr("mas.training.distributed.WAIT_S", 1.0)
        alone = mas("run", "scenario=relay", *small_overrides, "--bus", url)
        assert alone.code == 2
        assert "no process serves 'executor' of team 'relay' on this bus (agents there: 'relay/planner')" in alone.err
        stopped = mas("stop", "--bus", url)
        assert stopped.code == 0, stopped.err
        assert stopped.out.count("relay/planner") == 2
        assert planner.wait(timeout=30) == 0
        nobody = mas("stop", "--now", "--bus", url)
        assert (nobody.code, "the word of 'coordinator'. No agent is on it now" in nobody.err) == (2, True)


def test_what_is_wrong_with_the_bus_is_said_before_any_weights_are_loaded(
    tmp_path: Path, mas: Mas, monkeypatch: pytest.MonkeyPatch
) -> None:
    def too_late(*given: object, **named: object) -> None:
        raise AssertionError("something was loaded")

    monkeypatch.setattr("mas.training.distributed.serve_agent", too_late)
    monkeypatch.setattr("mas.training.distributed.open_distributed", too_late)
    monkeypatch.setenv("MAS_BUS_PASSWORD", "wrong")
    with broker("relay", tmp_path / "bus") as running:
        for words, user in ((("agent", "planner"), "relay%2Fplanner"), (("run",), "coordinator")):
            url = f"mqtt://{user}@127.0.0.1:{running.port}/default"
            refused = mas(*words, "scenario=relay", "--bus", url)
            assert (refused.code, "(MAS_BUS_PASSWORD was given)" in refused.err) == (2, True), refused.err
            ca = mas(
                *words, "scenario=relay", "--bus", url.replace("mqtt:", "mqtts:"), "--ca", str(tmp_path / "no.crt")
            )
            assert (ca.code, "the CA file" in ca.err) == (2, True), ca.err
    gone = mas("agent", "planner", "scenario=relay", "--bus", f"mqtt://relay/planner@127.0.0.1:{running.port}/default")
    assert (gone.code, "no connection to the broker" in gone.err) == (2, True), gone.err


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("agent", "planner", "scenario=relay"), "mas agent needs a bus: --bus mqtt://"),
        (("agent", "scenario=relay"), "mas agent needs the agent's name first: mas agent AGENT scenario=relay"),
        (
            ("run", "scenario=relay", "--bus", "mqtt://relay%2Fplanner@127.0.0.1/x"),
            "'relay/planner', which is an agent of the team; the user that plays or trains it is 'coordinator'",
        ),
        (("agent", "plannr", "scenario=relay", "--bus", "mqtt://relay%2Fplanner@127.0.0.1/x"), "no agent 'plannr'"),
        (
            ("agent", "planner", "scenario=relay", "--bus", "mqtt://bob@127.0.0.1/x"),
            "write relay%2Fplanner@ before the host",
        ),
        (("agent", "planner", "scenario=relay", "--bus", "http://bob@127.0.0.1/x"), "begins with 'http'"),
        (("run", "scenario=relay", "--ca", "x.pem"), "--ca is for a bus, and --bus is not given"),
        (("stop",), "mas stop needs a bus: --bus mqtt://"),
        (("stop", "--bus", "http://bob@127.0.0.1/x"), "begins with 'http'"),
        (("run", "scenario=relay", "--store", "file:///x"), "--store is for a bus, and --bus is not given"),
        (
            ("run", "scenario=relay", "--bus", "mqtt://bob@127.0.0.1/x", "--store", "x"),
            "the store 'x' says no kind of place",
        ),
        (
            (
                "agent",
                "planner",
                "scenario=relay",
                "--bus",
                "mqtt://relay%2Fplanner@127.0.0.1/x",
                "--store",
                "file://x",
            ),
            "names no directory by its whole path",
        ),
    ],
)
def test_a_mistake_is_one_line(mas: Mas, words: tuple[str, ...], problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MAS_BUS_URL", raising=False)
    found = mas(*words)
    assert found.code == 2
    assert problem in found.err
