"""A process that plays several episodes is killed again and again: they go on, and nobody is asked twice."""

import asyncio
import json
import os
import random
import sqlite3
import subprocess
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path

import life_worker
import pytest

from mas.runtime.replay_events import CallEvent, read_event

WORKER = Path(life_worker.__file__)
ENVIRONMENT = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
KILLS, LINES = 3, 70
"""An undisturbed run says some 170 lines; a life is killed after 1 to so many."""


def life(journal: Path, kill_after: int | None) -> tuple[list[str], int]:
    """The lines of one life and how it ended; it is killed after that many lines."""
    lines: list[str] = []
    command = [sys.executable, str(WORKER), str(journal)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        for line in process.stdout:
            lines.append(line)
            if len(lines) == kill_after:
                process.kill()
    return [line for line in lines if line.endswith("\n")], process.returncode


def recorded(journal: Path) -> set[str]:
    """`EPISODE TURN AGENT VISIT` of every answer on the disk."""
    with closing(sqlite3.connect(journal)) as connection:
        rows = connection.execute("SELECT episode, event.frame FROM event JOIN play ON play.id = play").fetchall()
    calls = [(episode, read_event(frame)) for episode, frame in rows]
    return {f"{name} {call.turn} {call.agent} {call.visit}" for name, call in calls if isinstance(call, CallEvent)}


@pytest.mark.matrix("seed", range(10), default=[0])
def test_every_agent_is_asked_once_but_for_what_was_under_way(tmp_path: Path, seed: int) -> None:
    wanted = json.loads(json.dumps(asyncio.run(life_worker.live(str(tmp_path / "undisturbed.sqlite")))))
    journal, draw = tmp_path / "bus.sqlite", random.Random(seed)
    asked: Counter[str] = Counter()
    known: set[str] = set()
    under_way = killed = 0
    for kill_after in [*(draw.randrange(1, LINES) for _ in range(KILLS)), None]:
        lines, code = life(journal, kill_after)
        said = [line.partition(" ")[::2] for line in lines if not line.startswith("{")]
        now = [what.strip() for word, what in said if word == "asked"]
        assert not known & set(now), "somebody was asked what is on the disk"
        assert len(now) == len(set(now))
        asked.update(now)
        known = recorded(journal)
        under_way += len(set(now) - known)
        killed += code != 0
        if code == 0:
            break
    assert code == 0
    assert json.loads(lines[-1]) == wanted
    again = sum(number - 1 for number in asked.values())
    assert again <= under_way
    assert {what for what in asked if what.split()[2] not in life_worker.NEVER} == known
    print(f"seed {seed}: killed {killed} times, {again} of {len(asked)} asked again, none of them answered on the disk")
