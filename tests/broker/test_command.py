"""`mas broker` from its first line to the signal that ends it, and every mistake as one line."""

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import typer.main
from brokers import back_topic, broker, free_port, needs_mosquitto, presence_topic

from mas.broker.options import BrokerOptions
from mas.cli import app

ROOT = Path(__file__).parents[2]
Mas = Callable[..., Any]
TEAM = """
name: pair
roles:
  planner: {type: planner}
  executor: {type: executor}
edges: [start -> planner, planner -> executor, executor -> done]
output: executor
"""
PRESENCE = presence_topic("default", "coordinator", "p1")
FENCE = back_topic("default", "coordinator", "p1", "coordinator")


def is_listening(port: int) -> bool:
    """Whether somebody accepts connections."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def children(pid: int) -> list[int]:
    """Processes that a process has started."""
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


@needs_mosquitto
@pytest.mark.matrix("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP], default=[signal.SIGTERM])
def test_a_signal_ends_the_broker_and_the_command(tmp_path: Path, number: signal.Signals) -> None:
    with broker("relay", tmp_path / "broker") as running:
        assert is_listening(running.port)
        running.process.send_signal(number)
        assert running.process.wait(timeout=30) == 0
        assert not is_listening(running.port)


@needs_mosquitto
@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_command_ends_as_the_broker_does(tmp_path: Path) -> None:
    with broker("relay", tmp_path / "broker") as running:
        (child,) = children(running.process.pid)
        os.kill(child, signal.SIGKILL)
        assert running.process.wait(timeout=30) == 128 + 9


@needs_mosquitto
def test_it_says_where_it_is_who_may_connect_and_no_password(tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(TEAM)
    with broker(str(tmp_path / "team.yaml"), tmp_path / "broker", "--space", "lab") as running:
        said = running.greeting
        assert f"mosquitto serves team 'pair' at mqtt://127.0.0.1:{running.port}/lab," in said
        for principal in ("pair/planner", "pair/executor", "coordinator", "operator"):
            assert f"{tmp_path}/broker/passwords/{principal.replace('/', '.')}.env" in said
            assert running.password(principal) not in said + (tmp_path / "broker.log").read_text()
            if sys.platform == "linux":
                for pid in (running.process.pid, *children(running.process.pid)):
                    assert running.password(principal).encode() not in Path(f"/proc/{pid}/cmdline").read_bytes()


async def present(directory: Path, *words: str, writes: bool) -> bool:
    """Whether a broker knows a presence after it has started; `writes`: and then put one there."""
    with broker("relay", directory, *words, port=int((directory.parent / "port").read_text())) as running:
        async with running.client("coordinator") as client:
            if writes:
                await client.publish(PRESENCE, b"here", qos=1, retain=True)
            await client.subscribe(PRESENCE, qos=1)
            await client.subscribe(FENCE, qos=1)
            await client.publish(FENCE, b"", qos=1)
            async with asyncio.timeout(30):
                message = await anext(aiter(client.messages))
            return message.topic.value == PRESENCE


@needs_mosquitto
@pytest.mark.parametrize(
    "words", [pytest.param((), marks=pytest.mark.nightly), ("--persistence",)], ids=["default", "persistence"]
)
async def test_presence_outlives_the_broker_only_where_it_is_persistent(tmp_path: Path, words: tuple[str, ...]) -> None:
    (tmp_path / "port").write_text(str(free_port()))
    assert await present(tmp_path / "broker", *words, writes=True)
    assert await present(tmp_path / "broker", *words, writes=False) == bool(words)


def test_files_alone_need_no_mosquitto(tmp_path: Path, mas: Mas, monkeypatch: pytest.MonkeyPatch) -> None:
    no_mosquitto(monkeypatch, tmp_path)
    ran = mas("broker", "two_hop/twice", "--dir", str(tmp_path / "broker"), "--write-only")
    assert (ran.code, ran.err) == (0, "")
    assert "Written for team 'two_hop_twice' at mqtt://127.0.0.1:1883/default," in ran.out
    assert f"Start it with: mosquitto -c {tmp_path}/broker/mosquitto.conf" in ran.out
    assert "user two_hop_twice/first" in (tmp_path / "broker" / "acl").read_text()


def no_mosquitto(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A machine without mosquitto, whose PATH is a folder."""
    monkeypatch.setattr("mas.broker.process._ELSEWHERE", ())
    monkeypatch.setenv("PATH", str(folder))


def fake_mosquitto(monkeypatch: pytest.MonkeyPatch, folder: Path, version: str, *script: str) -> None:
    """A mosquitto that does what a shell script says."""
    path = folder / "mosquitto"
    path.write_text("\n".join(["#!/bin/sh", f'[ "$1" = -h ] && echo "mosquitto version {version}" && exit 1', *script]))
    path.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:/usr/bin:/bin")


def check_refused(ran: Any, text: str) -> None:
    """One line on standard error, and exit code 2."""
    assert ran.code == 2
    assert ran.err.startswith("error: ")
    assert text in ran.err
    assert ran.err.count("\n") == 1


def test_without_mosquitto_it_says_how_to_get_it_and_writes_nothing(
    tmp_path: Path, mas: Mas, monkeypatch: pytest.MonkeyPatch
) -> None:
    no_mosquitto(monkeypatch, tmp_path)
    check_refused(mas("broker", "relay", "--dir", str(tmp_path / "broker")), "apt-get install mosquitto")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("version", ["1.6.9", "unheard"])
def test_an_old_mosquitto_is_refused(tmp_path: Path, mas: Mas, monkeypatch: pytest.MonkeyPatch, version: str) -> None:
    fake_mosquitto(monkeypatch, tmp_path, version)
    check_refused(mas("broker", "relay", "--dir", str(tmp_path / "broker")), "2.0 or later needed")


def test_a_port_that_is_taken_is_named_before_anything_is_written(
    tmp_path: Path, mas: Mas, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mosquitto(monkeypatch, tmp_path, "2.0.11")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        ran = mas("broker", "relay", "--dir", str(tmp_path / "broker"), "--port", port)
    check_refused(ran, f"127.0.0.1:{port} cannot be listened at: Address already in use. Choose another --port")
    assert not (tmp_path / "broker").exists()


def test_a_mosquitto_that_fails_at_once_is_not_reported_as_serving(
    tmp_path: Path, mas: Mas, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_mosquitto(monkeypatch, tmp_path, "2.0.11", "exit 3")
    ran = mas("broker", "relay", "--dir", str(tmp_path / "broker"), "--port", str(free_port()))
    check_refused(ran, "mosquitto ended with code 3 before it listened")
    assert ran.out == ""


def test_a_mosquitto_that_never_listens_is_ended(tmp_path: Path, mas: Mas, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_mosquitto(monkeypatch, tmp_path, "2.0.11", f'echo $$ > "{tmp_path}/pid"', "exec sleep 600")
    monkeypatch.setattr("mas.broker.process._START_S", 1.0)
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)]
    ran = mas("broker", "relay", "--dir", str(tmp_path / "broker"), "--port", str(free_port()))
    check_refused(ran, "did not listen at port")
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)] == handlers


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("rely",), "Did you mean 'relay' or 'safe_reply'?"),
        (("none.yaml",), "cannot be read"),
        (("relay", "--host", "0.0.0.0"), "Add --tls"),
        (("relay", "--cert", "x.crt"), "--cert and --key belong together"),
        (("relay", "--cert", "x.crt", "--key", "x.key"), "x.crt cannot be read"),
        (("relay", "--dir", "/proc/broker"), "/proc/broker cannot be written"),
        (("relay", "--space", "a/b"), "--space 'a/b' is no name"),
    ],
    ids=lambda words: " ".join(words) if isinstance(words, tuple) else "",
)
def test_a_mistake_is_one_line(
    words: tuple[str, ...], text: str, mas: Mas, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    check_refused(mas("broker", *words, "--write-only"), text)
    assert list(tmp_path.iterdir()) == []


def test_a_team_that_is_not_well_formed_gets_no_broker(mas: Mas, tmp_path: Path) -> None:
    (tmp_path / "team.yaml").write_text(TEAM.replace("executor -> done", "exectuor -> done"))
    ran = mas("broker", str(tmp_path / "team.yaml"), "--dir", str(tmp_path / "broker"), "--write-only")
    assert ran.code == 2
    assert "Did you mean 'executor'?" in ran.err
    assert not (tmp_path / "broker").exists()


def test_neither_the_command_nor_its_help_loads_a_tensor_library(tmp_path: Path) -> None:
    code = "import sys; from mas.cli import main\ntry: main()\nexcept SystemExit: pass\nprint('LOADED', *sys.modules)\n"
    words = ["broker", "relay", "--dir", str(tmp_path / "broker"), "--write-only"]
    done = subprocess.run([sys.executable, "-c", code, *words], capture_output=True, text=True, check=True)
    assert (tmp_path / "broker" / "acl").is_file()
    assert not {"torch", "transformers", "peft"} & set(done.stdout.partition("LOADED")[2].split())


def test_every_option_is_documented() -> None:
    command = getattr(typer.main.get_command(app), "commands")["broker"]  # noqa: B009 - a group, which its type does not say
    pages = (ROOT / "docs" / "commands.md").read_text(), (ROOT / "docs" / "broker.md").read_text()
    listed = pages[0].partition("\n## broker\n")[2].partition("\n## ")[0]
    for option in (name for parameter in command.params for name in parameter.opts if name.startswith("--")):
        assert f"`{option}`" in listed
    limits = pages[1].partition("\n## Limits\n")[2]
    for name, default in re.findall(r"^\| `--([\w-]+)` \| (\d+) \|", limits, re.MULTILINE):
        field = BrokerOptions(directory=Path("x"))
        assert getattr(field, name.replace("-", "_")) == int(default)
        (parameter,) = [one for one in command.params if f"--{name}" in one.opts]
        assert parameter.default == int(default)
