"""Processes of a study end at once where it is stopped or fails."""

import os
import signal
import time
from concurrent.futures import Future
from pathlib import Path

import pytest

from mas.study.worker_pool import worker_pool

LONG_S = 300.0


def work(begun: Path) -> None:
    begun.write_text(str(os.getpid()))
    time.sleep(LONG_S)


def ignores_ctrl_c() -> bool:
    os.kill(os.getpid(), signal.SIGINT)
    return True


def test_nobody_waits_for_what_is_worked_on_when_a_study_is_stopped(tmp_path: Path) -> None:
    begun, futures = tmp_path / "begun", list[Future[None]]()
    began = time.monotonic()

    def study() -> None:
        with worker_pool(1) as pool:
            assert pool.submit(ignores_ctrl_c).result(LONG_S), "Ctrl-C at a terminal is for the process that waits"
            futures.extend(pool.submit(work, begun) for _ in range(3))
            while not begun.exists():
                assert time.monotonic() - began < LONG_S
                time.sleep(0.01)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        study()
    assert time.monotonic() - began < LONG_S
    assert all(future.done() for future in futures)
    with pytest.raises(ProcessLookupError):
        os.kill(int(begun.read_text()), 0)
