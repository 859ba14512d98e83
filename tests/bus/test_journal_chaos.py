"""A process is killed again and again in the middle of its messages: none is lost, none that was done comes back."""

import os
import random
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from mas.bus.journal_tables import State, read_records

WORKER = Path(__file__).with_name("journal_worker.py")
MESSAGES, KILLS = 3_000, 4
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


def live(journal: Path, durability: str, kill_after: int | None) -> tuple[list[str], int]:
    """The lines of one life and how it ended; it is killed after that many lines."""
    command = [sys.executable, str(WORKER), str(journal), str(MESSAGES), durability]
    lines: list[str] = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if len(lines) == kill_after:
                process.kill()
    return lines, process.returncode


@pytest.mark.parametrize("durability", ["group", "async"])
@pytest.mark.matrix("seed", range(10), default=[0])
def test_nothing_is_lost_and_every_effect_is_there_once(tmp_path: Path, seed: int, durability: str) -> None:
    journal, draw = tmp_path / "bus.sqlite", random.Random(seed)
    handled: Counter[str] = Counter()
    done_before: set[str] = set()
    for kill_after in [*(draw.randrange(1, MESSAGES // KILLS) for _ in range(KILLS)), None]:
        lines, code = live(journal, durability, kill_after)
        ids = [line.split()[0] for line in lines if line.endswith("\n")]
        assert not done_before & set(ids), "what the journal knew as done was delivered again"
        handled.update(ids)
        records = read_records(journal)
        done_before = {record.id for record in records if record.state is State.PROCESSED}
    assert code == 0

    assert len(records) == MESSAGES
    assert {record.effect: record.id for record in records} == {
        str(number).encode(): f"m{number}" for number in range(MESSAGES)
    }
    assert {record.state for record in records} == {State.PROCESSED}
    assert set(handled) == {f"m{number}" for number in range(MESSAGES)}
    again = sum(number - 1 for number in handled.values())
    print(f"seed {seed}, {durability}: {again} of {MESSAGES} handled again, never one that was recorded as done")
