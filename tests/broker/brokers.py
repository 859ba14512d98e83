"""`mas broker` in a process of its own, and plain MQTT clients."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import aiomqtt
import pytest
from started import COMMAND, greeting_of

needs_mosquitto = pytest.mark.skipif(
    shutil.which("mosquitto", path=os.environ.get("PATH", "") + ":/usr/sbin") is None,
    reason="mosquitto is not installed (apt-get install mosquitto)",
)
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="the program openssl is not installed")


def free_port() -> int:
    """A port of this machine that nobody listens at."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def read_env(path: Path) -> dict[str, str]:
    """The variables that a file for a host sets."""
    return dict(line.split("=", 1) for line in path.read_text().splitlines())


def to_topic(space: str, address: str, sender: str | None) -> str:
    """Messages to an address; None: from anybody."""
    return f"mas/{space}/to/{_level(address)}/{_level(sender)}"


def back_topic(space: str, principal: str, process: str | None, sender: str | None) -> str:
    """What comes back to a process."""
    return f"mas/{space}/back/{_level(principal)}/{_level(process)}/{_level(sender)}"


def presence_topic(space: str, principal: str | None, process: str | None) -> str:
    """Presence of a process."""
    return f"mas/{space}/presence/{_level(principal)}/{_level(process)}"


def shared_filter(space: str, address: str, group: str) -> str:
    """What a listener at an address subscribes to."""
    return f"$share/{_level(group)}/{to_topic(space, address, None)}"


def _level(name: str | None) -> str:
    return "+" if name is None else name.replace("/", "%2F")


@dataclass(frozen=True)
class Broker:
    """A broker that runs."""

    process: subprocess.Popen[str]
    directory: Path
    port: int
    greeting: str

    def password(self, principal: str) -> str:
        """The password in the principal's file."""
        return read_env(self.directory / "passwords" / f"{principal.replace('/', '.')}.env")["MAS_BUS_PASSWORD"]

    def client(self, principal: str, **options: Any) -> aiomqtt.Client:
        """A client that connects as the principal, MQTT 5."""
        login = {"username": principal, "password": self.password(principal), "protocol": aiomqtt.ProtocolVersion.V5}
        return aiomqtt.Client("127.0.0.1", self.port, **(login | options))


@contextmanager
def broker(team: str, directory: Path, *words: str, port: int | None = None) -> Iterator[Broker]:
    """`mas broker TEAM` as soon as it has said that it listens; killed at the end unless it has ended."""
    port = port or free_port()
    command = [*COMMAND, "broker", team, "--dir", str(directory), "--port", str(port)]
    log = directory.parent / f"{directory.name}.log"
    with (
        log.open("w") as errors,
        subprocess.Popen([*command, *words], stdout=subprocess.PIPE, stderr=errors, text=True) as process,
    ):
        greeting = greeting_of(process)
        try:
            assert greeting.endswith("Ctrl-C ends it.\n"), greeting + log.read_text()
            yield Broker(process, directory, port, greeting)
        finally:
            if process.poll() is None:
                process.terminate()
                process.wait(timeout=30)
