"""`mas openenv --others`: a trained run, and a model of a server, against OpenEnv's own client."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from clients import offer
from loopback import in_thread
from rich.console import Console
from started import COMMAND, greeting_of
from test_openenv import PYTHON, real

from mas.config.load import load_config
from mas.endpoint import build_app, running
from mas.runs.train import train_in_directory
from mas.scenarios import build_scenario
from mas.testing.scripted import ScriptedEngine

pytest.importorskip("websockets")
pytest.importorskip("pyspiel")

CLIENT = Path(__file__).with_name("openenv_client.py")
pytestmark = [real, pytest.mark.nightly, pytest.mark.timeout(900)]


@contextmanager
def opposed(player: str) -> Iterator[str]:
    """The command, with a player in the other seat."""
    words = [*COMMAND, "openenv", "two_player", "--others", player, "--port", "0"]
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            found = re.search(r"http://127\.0\.0\.1:\d+", greeting := greeting_of(process))
            assert found, greeting + str(process.stderr and process.stderr.read())
            yield found[0]
            process.send_signal(signal.SIGINT)
            out, _ = process.communicate(timeout=120)
            assert (process.returncode, "closing" in out) == (0, True)
        finally:
            process.kill()


def games(address: str) -> list[list[dict[str, Any]]]:
    """Games that the package's client plays, as each seat in turn."""
    words = [PYTHON, str(CLIENT), "games", address]
    done = subprocess.run(
        words, capture_output=True, text=True, timeout=290, check=False, env={**os.environ, "PYTHONPATH": ""}
    )
    assert done.returncode == 0, done.stderr
    found: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return found


def check(played: list[list[dict[str, Any]]]) -> None:
    """Every game ends, and chips went from one seat to the other."""
    assert len(played) == 8
    for told in played:
        assert told[-1]["done"]
        assert sum(one["reward"] or 0 for one in told) in (-2, -1, 1, 2)


def test_a_trained_run_plays_the_other_seats(small_overrides: tuple[str, ...], tmp_path: Path) -> None:
    short = ("train.steps=1", "train.tasks_per_step=2", "train.eval_tasks=2")
    words = ["scenario=two_player", "algorithm=spiral", *short, *small_overrides, f"run_dir={tmp_path / 'run'}"]
    config = load_config(words)
    train_in_directory(config, build_scenario(config.scenario), console=Console(quiet=True))
    with opposed(f"run:{tmp_path / 'run'}") as address:
        played = games(address)
    check(played)


def test_a_model_of_a_server_plays_the_other_seats() -> None:
    """It always bets, so that games go on where it moves first."""
    asked: list[str] = []

    def bets(prompt: str, adapter: str | None, seed: int) -> str:
        asked.append(prompt)
        return "I know.\nMOVE Bet"

    app = build_app(offer(ScriptedEngine(bets, context=20_000, has_chat=True)))
    with in_thread(lambda: running(app)) as url, opposed(f"openai:org/base:1@{url}/v1") as address:
        played = games(address)
    check(played)
    assert len(asked) >= 8
    assert all("Kuhn" in prompt or "card" in prompt for prompt in asked)
    begun = [told[0]["observation"] for told in played[1::2]]
    assert all("Bet" in json.dumps(one) for one in begun), "player_1 sees that player_0 has bet"
