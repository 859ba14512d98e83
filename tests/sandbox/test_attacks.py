"""Programs that attack: each is contained, and the next program runs as if nothing had been."""

import socket
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import mas
from mas.sandbox.box import Sandbox
from mas.sandbox.mechanism import Mechanism
from mas.sandbox.outcome import ProgramOutcome, SandboxLimits

SECRET = "a secret of the machine"


@pytest.fixture(autouse=True)
def unharmed(sandbox: Sandbox) -> Iterator[None]:
    yield
    assert sandbox.run_now("print(6 * 7)").stdout == "42\n"


def run(box: Sandbox, source: str) -> ProgramOutcome:
    return box.run_now(textwrap.dedent(source))


def test_a_fork_bomb_cannot_even_begin(sandbox: Sandbox) -> None:
    outcome = run(
        sandbox,
        """
        import os
        for make in (os.fork, lambda: os.posix_spawn("/x", ["/x"], {}), lambda: os.execv("/x", ["/x"])):
            try:
                make()
            except PermissionError:
                print("refused")
        os.fork()
        """,
    )
    assert (outcome.status, outcome.stdout.split()) == ("wrong", ["refused"] * 3)
    assert "PermissionError" in outcome.stderr


def test_where_processes_are_allowed_a_fork_bomb_ends_with_its_program(walls: Mechanism) -> None:
    with Sandbox(SandboxLimits(time_s=1.0, tasks=6, may_fork=True), mechanism=walls) as box:
        outcome = run(
            box,
            """
            import os, time
            made = 0
            while True:
                try:
                    if os.fork() == 0:
                        time.sleep(60)
                    made += 1
                except BlockingIOError:
                    break
            print(made, flush=True)
            while True:
                try:
                    os.fork()
                except BlockingIOError:
                    pass
            """,
        )
        assert outcome.status == "timeout"
        # Bubblewrap's own first process and the one outside are counted with the program's.
        assert int(outcome.stdout) in ({5} if walls == "namespaces" else {2, 3, 4})
        assert box.run_now("print(1)").status == "ok"


def test_a_memory_bomb_ends_at_the_limit(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "a = []\nwhile True: a.append(bytearray(1 << 20))")
    assert outcome.status == "memory"
    assert run(sandbox, "x = ' ' * (1 << 40)").status == "memory"


@pytest.mark.parametrize(
    "call",
    ["os.memfd_create('x')", "ctypes.CDLL(None).shmget(0, 1 << 30, 0o1600)", "open('/dev/shm/x', 'w').fileno()"],
)
def test_memory_cannot_be_had_where_the_limit_does_not_see_it(sandbox: Sandbox, call: str) -> None:
    outcome = run(sandbox, f"import ctypes, os, sys\nsys.exit(0 if {call} >= 0 else 3)")
    assert outcome.exit_code in (1, 3)


def test_the_working_directory_holds_no_more_than_its_limit(sandbox: Sandbox) -> None:
    outcome = run(
        sandbox,
        """
        written = 0
        try:
            for name in range(100):
                with open(str(name), "wb") as file:
                    written += file.write(bytes(1 << 20))
        except OSError:
            print(written >> 20)
        """,
    )
    assert outcome.status == "ok"
    assert 14 <= int(outcome.stdout) <= 16


def test_there_is_no_network(sandbox: Sandbox) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        outcome = run(sandbox, f"import socket\nsocket.create_connection(('127.0.0.1', {port}), 1)")
        listening.setblocking(False)
        with pytest.raises(BlockingIOError):
            listening.accept()
    assert outcome.status == "wrong"
    assert "PermissionError" in outcome.stderr


def test_files_of_the_project_of_the_system_and_of_homes_are_not_there(sandbox: Sandbox, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text(SECRET)
    names = ("/etc/passwd", "/etc/shadow", "/etc/hostname", "/proc/self/environ", "/sys/kernel")
    paths = [secret, Path(mas.__file__), *map(Path, names)]
    outcome = run(
        sandbox,
        f"""
        import os
        for path in {[str(path) for path in paths]}:
            print(os.path.exists(path))
        found = [os.path.join(at, name) for at, _, names in os.walk("/") for name in names]
        print(sum(name.startswith("/etc/") and name != "/etc/ld.so.cache" for name in found))
        print(sum("site-packages" in name or "dist-packages" in name for name in found))
        print(sum(name.endswith("pyproject.toml") for name in found))
        """,
    )
    assert outcome.stdout.split() == ["False"] * len(paths) + ["0"] * 3


def test_there_is_no_environment_and_nobody_elses_process(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAS_API_KEY", SECRET)
    source = """
        import ctypes, os
        libc = ctypes.CDLL(None)
        libc.getenv.restype = ctypes.c_char_p
        print(dict(os.environ), libc.getenv(b"MAS_API_KEY"), os.getppid() in (0, 1), os.getpid() in (1, 2))
        """
    assert run(sandbox, source).stdout == "{} None True True\n"


def test_no_program_finds_anything_of_an_earlier_one_in_its_memory(sandbox: Sandbox) -> None:
    """A program is a fork of the server, whose memory it gets: the needle is put together so that it is not there."""
    run(sandbox, f"print({SECRET!r})  # {SECRET}")
    outcome = run(
        sandbox,
        f"""
        import gc
        needle = {SECRET[:8]!r} + {SECRET[8:]!r}
        texts = [thing for thing in gc.get_objects() if isinstance(thing, (str, bytes, dict))]
        print(any(needle in repr(thing) for thing in texts if thing is not globals()))
        """,
    )
    assert outcome.stdout == "False\n"


def test_killing_the_parent_or_everybody_kills_nobody_else(sandbox: Sandbox, walls: Mechanism) -> None:
    outcome = run(
        sandbox,
        """
        import os, signal
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for target in (os.getppid(), -1, 1, 2, 3, *range(4, 100)):
            if target != os.getpid():
                try:
                    os.kill(target, signal.SIGTERM if target == 0 else signal.SIGKILL)
                except (ProcessLookupError, PermissionError):
                    pass
        print("alone")
        """,
    )
    # Bubblewrap has a process of its own in there, without which the program ends.
    assert outcome.stdout == "alone\n" or walls == "bubblewrap"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_endless_output_is_cut_off(sandbox: Sandbox, stream: str) -> None:
    outcome = run(sandbox, f"import sys\nwhile True: print('x' * 1000, file=sys.{stream})")
    assert outcome.status == "output"
    assert len(getattr(outcome, stream)) == sandbox.limits.output_kib * 1024
    assert outcome.seconds < sandbox.limits.time_s


def test_a_huge_exception_text_is_cut_off(sandbox: Sandbox) -> None:
    outcome = run(sandbox, "raise ValueError('x' * 20_000_000)")
    assert outcome.status == "output"
    assert len(outcome.stderr) <= sandbox.limits.output_kib * 1024


@pytest.mark.parametrize(
    "source",
    [
        "while True: pass",
        "import time; time.sleep(1000)",
        """import signal
for number in {*range(1, 32)} - {signal.SIGKILL, signal.SIGSTOP}:
    signal.signal(number, signal.SIG_IGN)
while True: pass""",
        "import signal\nsignal.pthread_sigmask(signal.SIG_BLOCK, range(1, 65))\nwhile True: pass",
        """import signal
signal.signal(signal.SIGALRM, lambda *_: None)
signal.setitimer(signal.ITIMER_REAL, .001, .001)
while True: pass""",
        "while True:\n    try:\n        while True: pass\n    except BaseException: pass",
        "import threading, time\nthreading.Thread(target=time.sleep, args=[1000]).start()",
        "import atexit, time\natexit.register(time.sleep, 1000)",
        "9 ** 9 ** 9",
        "import re\nre.match('(a+)+b', 'a' * 64)",
        "import sys\nsys.stdin.close()\nsys.stdout.close()\nwhile True: pass",
    ],
)
def test_an_endless_program_ends_in_time(hasty: Sandbox, source: str) -> None:
    outcome = hasty.run_now(source)
    assert outcome.status == "timeout"
    assert hasty.limits.time_s <= outcome.seconds < 5


def test_a_daemonised_grandchild_does_not_outlive_its_program(walls: Mechanism) -> None:
    """It holds standard output open: the end of the program is the end of what can be read from it."""
    with Sandbox(SandboxLimits(time_s=10.0, may_fork=True), mechanism=walls) as box:
        began = time.monotonic()
        outcome = run(
            box,
            """
            import os, signal, time
            if os.fork() == 0:
                os.setsid()
                if os.fork() == 0:
                    signal.signal(signal.SIGTERM, signal.SIG_IGN)
                    while True:
                        print("still here", flush=True)
                        time.sleep(0.05)
                os._exit(0)
            os.wait()
            """,
        )
    assert outcome.status == "ok"
    assert time.monotonic() - began < 9


def test_nothing_is_written_outside_and_the_directory_is_gone_afterwards(sandbox: Sandbox, tmp_path: Path) -> None:
    target = tmp_path / "made"
    outcome = run(
        sandbox,
        f"""
        import os, shutil
        for path in ({str(target)!r}, "/x", "/etc/ld.so.cache", "/dev/x", os.__file__, "/usr/x"):
            try:
                open(path, "w").close()
                print("written", path)
            except OSError:
                pass
        shutil.rmtree(os.path.dirname(os.__file__), ignore_errors=True)
        print(os.listdir())
        open("mine", "w").close()
        """,
    )
    assert outcome.stdout == "[]\n"
    assert not target.exists()
    assert run(sandbox, "import os\nprint(os.listdir(), os.getcwd())").stdout == "[] /tmp\n"


def test_links_lead_nowhere(sandbox: Sandbox, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    outcome = run(
        sandbox,
        f"""
        import os
        os.symlink({str(tmp_path)!r}, "a")
        os.symlink("/", "b")
        os.symlink("../" * 20 + "etc/passwd", "c")
        for path in ("a/secret", "b/etc/passwd", "c", "b/proc/1/root/etc/passwd"):
            print(os.path.exists(path))
        try:
            os.link("/dev/null", "d")
        except OSError:
            print("refused")
        """,
    )
    assert outcome.stdout.split() == ["False"] * 4 + ["refused"]


def test_deep_recursion_is_an_error_of_the_program(sandbox: Sandbox) -> None:
    assert "RecursionError" in run(sandbox, "def f(): f()\nf()").stderr
    source = (
        "import sys\nsys.setrecursionlimit(10 ** 9)\nclass A:\n    def __repr__(self): return repr(self)\nrepr(A())"
    )
    wild = run(sandbox, source)
    assert wild.status in ("wrong", "memory", "killed")
    assert run(sandbox, "(" * 10_000 + ")" * 10_000).status in ("wrong", "memory", "killed")


@pytest.mark.parametrize(
    "call",
    [
        "libc.unshare(0x10000000)",
        "libc.setns(0, 0)",
        "libc.mount(b'none', b'/tmp', b'tmpfs', 0, b'')",
        "libc.umount2(b'/tmp', 2)",
        "libc.chroot(b'/tmp')",
        "libc.ptrace(0, 0, 0, 0)",
        "libc.setuid(1)",
        "libc.syscall(425, 1, 0)",
        "libc.syscall(100000)",
        "libc.prctl(22, 0, 0, 0, 0)",
    ],
)
def test_the_kernel_refuses_what_could_break_the_walls(sandbox: Sandbox, call: str) -> None:
    assert run(sandbox, f"import ctypes\nlibc = ctypes.CDLL(None)\nprint({call})").stdout == "-1\n"


def test_limits_cannot_be_raised(sandbox: Sandbox) -> None:
    source = """
        import resource
        for kind in (resource.RLIMIT_AS, resource.RLIMIT_NPROC, resource.RLIMIT_CPU, resource.RLIMIT_NOFILE):
            most = resource.getrlimit(kind)[1]
            try:
                resource.setrlimit(kind, (most + 1, most + 1))
            except (ValueError, PermissionError):
                print("refused")
        """
    assert run(sandbox, source).stdout.split() == ["refused"] * 4


def test_threads_are_counted(sandbox: Sandbox) -> None:
    source = """
        import threading
        wait = threading.Event()
        started = 1
        try:
            while True:
                threading.Thread(target=wait.wait, daemon=True).start()
                started += 1
        except RuntimeError:
            print(started)
        """
    assert 4 <= int(run(sandbox, source).stdout) <= sandbox.limits.tasks
