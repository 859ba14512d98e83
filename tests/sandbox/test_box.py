"""The sandbox as its callers use it."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from mas.core.errors import SandboxError
from mas.sandbox import mechanism
from mas.sandbox.box import Sandbox
from mas.sandbox.flight import Order
from mas.sandbox.mechanism import Mechanism
from mas.sandbox.outcome import ProgramCase, SandboxLimits


def until(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_program_reads_its_input_and_says_how_it_ended(sandbox: Sandbox) -> None:
    outcome = sandbox.run_now("import sys\nprint(input()[::-1])\nprint('no', file=sys.stderr)\nsys.exit(3)", "abc\n")
    assert (outcome.status, outcome.stdout, outcome.stderr, outcome.exit_code) == ("wrong", "cba\n", "no\n", 3)
    assert 0 < outcome.seconds < sandbox.limits.time_s


def test_an_exception_is_shown_as_python_shows_it(sandbox: Sandbox) -> None:
    outcome = sandbox.run_now("def f():\n    raise KeyError('x')\nf()")
    assert outcome.status == "wrong"
    assert outcome.stderr.splitlines()[0] == "Traceback (most recent call last):"
    assert outcome.stderr.splitlines()[-1] == "KeyError: 'x'"
    assert 'File "<program>", line 2, in f' in outcome.stderr
    assert "mas" not in outcome.stderr


def test_what_cannot_be_compiled_is_wrong(sandbox: Sandbox) -> None:
    for source in ("1 +", "x = '\ud800'", "\0"):
        assert sandbox.run_now(source).status == "wrong"


def test_binary_output_is_kept_as_text(sandbox: Sandbox) -> None:
    outcome = sandbox.run_now("import sys\nsys.stdout.buffer.write(bytes([0, 255, 10]))")
    assert outcome.stdout == "\0\\xff\n"


def test_a_program_that_closes_its_output_ends_as_it_likes(sandbox: Sandbox) -> None:
    assert sandbox.run_now("import sys\nsys.stdout.close()").status == "ok"
    assert (
        sandbox.run_now("import os\nfor n in range(64):\n    try: os.close(n)\n    except OSError: pass").status == "ok"
    )


def test_a_signal_that_ends_a_program_is_told(sandbox: Sandbox, walls: Mechanism) -> None:
    outcome = sandbox.run_now("import ctypes\nctypes.string_at(0)")
    expected = ("killed", None) if walls == "namespaces" else ("wrong", 128 + signal.SIGSEGV)
    assert (outcome.status, outcome.exit_code) == expected


def test_threads_and_exit_handlers_of_a_program_come_to_their_end(sandbox: Sandbox) -> None:
    source = (
        "import atexit, threading, time\natexit.register(print, 'last')\n"
        "threading.Thread(target=lambda: (time.sleep(.05), print('thread'))).start()\nprint('main')"
    )
    assert sandbox.run_now(source).stdout.split() == ["main", "thread", "last"]


def test_the_same_program_says_the_same_again(walls: Mechanism) -> None:
    source = "import random\nprint(random.random(), {'a', 'b', 'c'}, hash('x'))"
    with Sandbox(seed=1, mechanism=walls) as one, Sandbox(seed=2, mechanism=walls) as other:
        said = [one.run_now(source).stdout, one.run_now(source).stdout, other.run_now(source).stdout]
    assert said[0] == said[1]
    assert said[0].split()[0] != said[2].split()[0]
    assert said[0].split()[1:] == said[2].split()[1:]


def test_what_is_too_long_is_refused_with_the_limit(walls: Mechanism) -> None:
    with Sandbox(SandboxLimits(source_kib=1), mechanism=walls) as box:
        outcome = box.run_now("#" * 1025)
    assert outcome.status == "refused"
    assert "1025 bytes" in outcome.stderr
    assert "source_kib" in outcome.stderr


def test_a_program_that_cannot_be_locked_in_is_not_begun(walls: Mechanism, monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox(mechanism=walls) as box:
        box.run_now("pass")
        monkeypatch.setattr("mas.sandbox.flight.MIB", 1 << 70)  # more than the kernel can count
        outcome = box.run_now("print('begun')")
    assert outcome.status == "refused"
    assert outcome.stdout == ""
    assert outcome.stderr


async def test_programs_run_side_by_side_and_no_more_than_there_are_places(walls: Mechanism) -> None:
    source = "import time\nbegan = time.monotonic()\ntime.sleep(.2)\nprint(began, time.monotonic())"
    with Sandbox(places=2, mechanism=walls) as box:
        outcomes = await asyncio.gather(*(box.run(source) for _ in range(6)))
    spans = sorted(tuple(map(float, outcome.stdout.split())) for outcome in outcomes)
    at_once = [sum(begin <= at < end for begin, end in spans) for at, _ in spans]
    assert max(at_once) == 2


async def test_a_cancelled_task_ends_its_program(walls: Mechanism) -> None:
    with Sandbox(SandboxLimits(time_s=60), places=1, mechanism=walls) as box:
        await box.run("pass")
        task = asyncio.create_task(box.run("while True: pass"))
        await asyncio.sleep(0.1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        began = time.monotonic()
        assert (await box.check("x = 1", [ProgramCase("x", 1)])).ratio == 1
        assert time.monotonic() - began < 30


def test_many_threads_share_a_sandbox(walls: Mechanism) -> None:
    with Sandbox(places=4, mechanism=walls) as box, ThreadPoolExecutor(8) as pool:
        outcomes = list(pool.map(lambda number: box.run_now(f"print({number})"), range(40)))
    assert [int(outcome.stdout) for outcome in outcomes] == list(range(40))


def test_a_server_that_dies_is_an_error_once_and_then_there_is_another(walls: Mechanism) -> None:
    with Sandbox(mechanism=walls) as box:
        assert box.run_now("pass").status == "ok"
        assert box._server is not None
        os.kill(box._server.pid, signal.SIGKILL)
        with pytest.raises(SandboxError, match="gone"):
            box.run_now("import time\ntime.sleep(2)")
        assert box.run_now("print(1)").stdout == "1\n"


def test_nothing_survives_a_killed_caller(walls: Mechanism) -> None:
    if walls != "namespaces":
        pytest.skip("bubblewrap does not promise it")
    program = (
        "import os, sys\nfrom mas.sandbox.box import Sandbox\nfrom mas.sandbox.outcome import SandboxLimits\n"
        f"box = Sandbox(SandboxLimits(time_s=600), mechanism={walls!r})\nbox.run_now('pass')\n"
        "print(box._server.pid, flush=True)\nbox.run_now('while True: pass')\n"
    )
    caller = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    with caller:
        assert caller.stdout is not None
        server = int(caller.stdout.readline())
        until(lambda: _busy(server) >= 2)
        family = _family(server)
        caller.kill()
    until(lambda: not any(_lives(pid) for pid in family))


def _family(pid: int) -> set[int]:
    """The process and all that descend from it."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return set()
    return {pid}.union(*(_family(int(child)) for child in children))


def _busy(pid: int) -> int:
    return len(_family(pid)) - 1


def _lives(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def test_a_closed_sandbox_runs_nothing_and_leaves_nothing(walls: Mechanism) -> None:
    with Sandbox(mechanism=walls) as box:
        box.run_now("pass")
        assert box._server is not None
        family = _family(box._server.pid)
    assert not any(_lives(pid) for pid in family)
    with pytest.raises(SandboxError, match="closed"):
        box.run_now("pass")
    with pytest.raises(SandboxError, match="closed"):
        await box.run("pass")


def test_without_places_there_is_no_sandbox() -> None:
    with pytest.raises(SandboxError, match="places=0"):
        Sandbox(places=0)


def test_where_nothing_is_safe_every_call_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    monkeypatch.setattr("mas.sandbox.server_process._BEGIN", "import sys; sys.exit(1)")
    with Sandbox() as box:
        for _ in range(2):
            with pytest.raises(
                SandboxError, match=r"safely on this machine: namespaces: .*; bubblewrap: .*not installed"
            ):
                box.run_now("pass")


def test_walls_that_do_not_hold_are_not_taken(walls: Mechanism, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mechanism, "_TEST", mechanism._TEST.replace('"/etc/x"', '"/tmp/x"'))
    with pytest.raises(SandboxError, match="a file can be written outside"):
        mechanism.probe(walls)


def test_orders_travel_sealed(sandbox: Sandbox) -> None:
    """A program cannot keep anything in its input, where the limit of memory does not see it."""
    assert "PermissionError" in sandbox.run_now("import os\nos.write(0, b'x' * 100)", "in").stderr


def test_the_size_of_an_order_is_that_of_all_its_texts() -> None:
    assert Order(source="é", calls=("1",), stdin="a").size == 4
