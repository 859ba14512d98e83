"""A sending process is killed again and again and goes on from its journal: nothing is lost, and nothing done twice.

A default run draws once when it is killed, `make chaos` ten times.
"""

import os
import random
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from chaos.test_mqtt_chaos import ROOT, every_seed, working
from mosquitto import Mosquitto, needs_mosquitto, running_mosquitto

pytestmark = [needs_mosquitto, pytest.mark.slow]
MESSAGES, KILLS = 3_000, 3
COORDINATOR = Path(__file__).with_name("coordinator.py")


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[Mosquitto]:
    with running_mosquitto(tmp_path) as broker:
        yield broker


def live(url: str, journal: Path, kill_after: int | None) -> tuple[list[str], int]:
    """The numbers that one life printed, and how it ended; it is killed after that many."""
    command = [sys.executable, str(COORDINATOR), url, str(journal), str(MESSAGES)]
    printed: list[str] = []
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            printed.append(line.strip())
            if len(printed) == kill_after:
                process.kill()
    return printed, process.returncode


@pytest.mark.nightly(of=16)
@every_seed
def test_a_sender_that_is_killed_and_started_again_loses_nothing_and_has_nothing_done_twice(
    broker: Mosquitto, tmp_path: Path, seed: int
) -> None:
    random_ = random.Random(seed)
    kills = sorted(random_.sample(range(50, MESSAGES - 50), KILLS))
    with ExitStack() as workers:
        both = [workers.enter_context(working(broker.url("worker"), tmp_path / name)) for name in "ab"]
        for kill_after in kills:
            printed, code = live(broker.url("asker"), tmp_path / "asker.sqlite", kill_after)
            assert code != 0
            done = sum((worker.handled() for worker in both), Counter())
            assert {number for number in printed if int(number) % 3} <= set(done)
        printed, code = live(broker.url("asker"), tmp_path / "asker.sqlite", None)
        handled = sum((worker.handled() for worker in both), Counter())
    assert code == 0
    everything = {str(number) for number in range(MESSAGES)}
    assert set(printed) == everything
    assert set(handled) == everything, "lost"
    assert {number: times for number, times in handled.items() if times > 1} == {}, "done twice"
