"""Programs of one sandbox: none reaches another, and the end of one is the end of no other."""

import fcntl
import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from sandbox_programs import run

from mas.core.errors import SandboxError
from mas.sandbox.box import Sandbox
from mas.sandbox.flight import Flight, Order
from mas.sandbox.mechanism import Mechanism
from mas.sandbox.outcome import SandboxLimits


def test_programs_cannot_send_each_other_text(walls: Mechanism) -> None:
    listens = """
        try:
            pair = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0]
            libc.connect(pair.fileno(), bytes(2), 2)  # no more than with its other half
            pair.bind("\\0meeting")
            pair.settimeout(0.7)
            print(pair.recv(100))
        except OSError:
            print("alone")
        """
    sends = """
        for _ in range(100):
            try:
                socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)[0].sendto(b"text", "\\0meeting")
            except OSError:
                time.sleep(0.01)
        """
    with Sandbox(places=2, mechanism=walls) as box, ThreadPoolExecutor(1) as pool:
        box.run_now("pass")
        heard = pool.submit(run, box, listens)
        run(box, sends)
        assert heard.result().stdout == "alone\n"


def test_a_lock_of_a_program_lies_on_no_file_of_the_host(walls: Mechanism) -> None:
    """A lock for reading needs no right to write; the neighbour and the host would meet it."""
    source = """
        import fcntl
        file = open(os.__file__)
        fcntl.fcntl(file, fcntl.F_SETLK, struct.pack("hhqqi4x", fcntl.F_RDLCK, 0, 0, 0, 0))
        print("ready", flush=True)
        time.sleep(1.0)
        """
    seen = """
        import fcntl
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 0, 0, 0)
        for _ in range(40):
            answer = struct.unpack("hhqqi4x", fcntl.fcntl(open(os.__file__), fcntl.F_GETLK, asked))
            if answer[0] != fcntl.F_UNLCK:
                print("the neighbour is there")
                break
            time.sleep(0.01)
        """
    with Sandbox(places=2, mechanism=walls) as box, ThreadPoolExecutor(1) as pool:
        box.run_now("pass")
        holds = pool.submit(run, box, source)
        assert run(box, seen).stdout == ""
        assert holds.result().stdout == "ready\n"


def test_the_host_can_lock_its_files_while_programs_run(walls: Mechanism) -> None:
    source = "libc.flock(os.open(os.__file__, os.O_RDONLY), 6)\nos.read(0, 1)\ntime.sleep(1)\n"
    with Sandbox(mechanism=walls) as box, ThreadPoolExecutor(1) as pool, Path(os.__file__).open() as file:
        box.run_now("pass")
        runs = pool.submit(run, box, source)
        while not runs.done():
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.flock(file, fcntl.LOCK_UN)
            time.sleep(0.01)
        assert runs.result().status == "ok"


def test_output_that_somebody_else_holds_open_delays_no_end(walls: Mechanism) -> None:
    """The writing end of standard output is kept open here, as a neighbour could that had been sent it."""
    with Sandbox(mechanism=walls) as box:
        box.run_now("pass")
        flight = Flight(Order(source="print('done')"), box.limits)
        kept: list[int] = []
        make = os.pipe

        def pipe() -> tuple[int, int]:
            read, write = make()
            kept.append(os.dup(write))
            return read, write

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("mas.sandbox.flight.os.pipe", pipe)
            assert box._server is not None
            outcome, _ = flight.fly(box._server)
        flight.close()
        for file in kept:
            os.close(file)
    assert (outcome.status, outcome.stdout) == ("ok", "done\n")
    assert outcome.seconds < 3


def test_all_output_before_the_end_is_read_though_nobody_waits_for_more(sandbox: Sandbox) -> None:
    most = sandbox.limits.output_kib * 1024
    assert len(run(sandbox, f"print('x' * {most - 1})").stdout) == most
    over = run(sandbox, f"os.write(1, b'x' * {most})\nos.write(2, b'y' * 60000)\nos.write(1, b'z')")
    assert (over.status, len(over.stdout), len(over.stderr)) == ("output", most, 60000)


def test_a_program_whose_end_is_not_known_fails_alone(walls: Mechanism, monkeypatch: pytest.MonkeyPatch) -> None:
    with Sandbox(SandboxLimits(time_s=30), places=2, mechanism=walls) as box, ThreadPoolExecutor(1) as pool:
        box.run_now("pass")
        neighbour = pool.submit(run, box, "time.sleep(1.5)\nprint('done')")
        server = box._server
        assert server is not None
        with monkeypatch.context() as patch:
            patch.setattr("mas.sandbox.flight.Flight._end", lambda _: {"error": "unknown"})
            with pytest.raises(SandboxError, match="unknown"):
                box.run_now("pass")
        assert box._server is not server
        assert box.run_now("print(1)").stdout == "1\n"
        assert neighbour.result().stdout == "done\n"


@pytest.mark.parametrize("may_fork", [False, True])
def test_children_that_live_on_hold_neither_output_nor_a_place(walls: Mechanism, may_fork: bool) -> None:
    source = """
        try:
            for _ in range(3):
                if os.fork() == 0:
                    os.setsid()
                    time.sleep(60)
        except PermissionError:
            pass
        print("end", flush=True)
        """
    with Sandbox(SandboxLimits(time_s=20, may_fork=may_fork), places=1, mechanism=walls) as box:
        outcomes = [run(box, source) for _ in range(2)]
    assert [(outcome.status, outcome.stdout) for outcome in outcomes] == [("ok", "end\n")] * 2
    assert max(outcome.seconds for outcome in outcomes) < 10
