"""A sandbox in a process that was started oddly: ignored signals, nothing to write, few files, closed input."""

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NoReturn

import pytest

from mas.core.errors import SandboxError
from mas.sandbox.box import Sandbox
from mas.sandbox.flight import Flight, Order
from mas.sandbox.mechanism import Mechanism, probe
from mas.sandbox.outcome import SandboxLimits


@pytest.fixture
def _children_ignored() -> Iterator[None]:
    before = signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    yield
    signal.signal(signal.SIGCHLD, before)


@pytest.mark.usefixtures("_children_ignored")
def test_a_process_whose_children_are_reaped_unasked_has_a_sandbox(walls: Mechanism) -> None:
    with Sandbox(mechanism=walls) as box:
        assert box.run_now("print(6 * 7)").stdout == "42\n"


def refused(*_: object, **__: object) -> NoReturn:
    raise OSError(24, "Too many open files")


def test_the_self_test_needs_no_file_of_its_own(walls: Mechanism, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mas.sandbox.mechanism.NamedTemporaryFile", refused)
    assert probe(walls).mechanism == walls


@pytest.mark.parametrize("call", ["os.pipe", "mas.sandbox.flight._sealed"])
def test_a_program_that_gets_no_files_is_one_error_and_the_next_one_runs(
    walls: Mechanism, monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    with Sandbox(mechanism=walls) as box:
        box.run_now("pass")
        with monkeypatch.context() as patched:
            patched.setattr(call, refused)
            with pytest.raises(SandboxError, match=r"a program could not be started on this machine: .*Too many open"):
                box.run_now("pass")
        assert box.run_now("print(6 * 7)").stdout == "42\n"


def test_without_sockets_and_without_processes_there_is_one_error(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("socket.socketpair", refused)
        with pytest.raises(SandboxError, match="Too many open files"):
            Flight(Order(source=""), SandboxLimits())
    monkeypatch.setattr("os.open", refused)
    with pytest.raises(SandboxError, match=r"namespaces: .*Too many open files"):
        probe()


def test_a_limit_that_is_lower_outside_is_named(walls: Mechanism) -> None:
    source = "from mas.sandbox.box import Sandbox; print(Sandbox().run_now('pass').stderr)"

    def lowered() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (200 << 20, 200 << 20))

    if walls == "bubblewrap":
        pytest.skip("its programs have another way to begin")
    ran = subprocess.run(
        [sys.executable, "-c", source], capture_output=True, text=True, preexec_fn=lowered, timeout=60, check=False
    )
    assert "RLIMIT_AS of 268435456 cannot be set" in ran.stdout, ran.stderr


def test_a_command_with_closed_input_gives_the_program_none(
    mas: Callable[..., Any], walls: Mechanism, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a program.py"
    path.write_text("import sys\nprint(repr(sys.stdin.read()))\n")
    monkeypatch.setattr(sys, "stdin", None)
    ran = mas("sandbox", os.fspath(path), "--walls", walls)
    assert (ran.code, ran.out, ran.err) == (0, "''\n", "")
