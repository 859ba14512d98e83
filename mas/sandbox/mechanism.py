"""Which walls this machine offers, and whether they hold: no sandbox opens before its server passed the self-test."""

import shutil
import sys
from collections.abc import Mapping
from contextlib import ExitStack, closing, suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Literal

import msgspec

from mas.core.errors import SandboxError
from mas.sandbox.flight import Flight, Order
from mas.sandbox.outcome import SandboxLimits
from mas.sandbox.server_process import ServerProcess

Mechanism = Literal["namespaces", "bubblewrap"]
MECHANISMS: tuple[Mechanism, ...] = ("namespaces", "bubblewrap")
"""In the order in which they are tried: a program in bubblewrap is as safe and takes ten times as long."""

ADVICE = (
    "Needed is Linux 5.14 or later that lets this user make namespaces, or an installed bubblewrap that may; in a "
    "container, an option such as `--security-opt seccomp=unconfined`"
)

_LIMITS = SandboxLimits(time_s=20.0, memory_mib=128, tasks=4)
_TEST = """
import ctypes, fcntl, os, socket, threading, time

def fails(attempt):
    try:
        attempt()
    except (OSError, MemoryError, RuntimeError):
        return True
    return False

def pins():
    pages = (ctypes.c_ulong * 2)(ctypes.addressof(ctypes.create_string_buffer(4096)), 4096)
    number = 278 if os.uname().machine == "x86_64" else 75
    if ctypes.CDLL(None).syscall(number, os.pipe()[1], ctypes.byref(pages), 1, 0) < 0:
        raise OSError

def threads():
    wait = threading.Event()
    for _ in range(8):
        threading.Thread(target=wait.wait, daemon=True).start()

ATTEMPTS = {
    "a file outside can be read": [lambda path=path: os.stat(path) for path in PATHS],
    "a file can be written outside its directory": [
        lambda path=path: open(path, "w") for path in ("/x", "/etc/x", "/dev/x", os.__file__)
    ],
    "the network can be used": [socket.socket],
    "programs can reach each other": [
        lambda: socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM), lambda: socket.socketpair()[0].bind("\\0x")
    ],
    "files of the host can be locked": [lambda: fcntl.flock(os.open(os.__file__, os.O_RDONLY), fcntl.LOCK_SH)],
    "processes can be made": [os.fork],
    "there is no limit of threads": [threads],
    "there is no limit of memory": [lambda: bytearray(256 << 20), pins],
    "another user's rights can be had": [lambda: os.setuid(1), lambda: os.chroot("/")],
}
for problem, attempts in ATTEMPTS.items():
    if not all(fails(attempt) for attempt in attempts):
        print(problem)
if os.uname().nodename != "sandbox":
    print("the name of the host can be read")
if os.environ:
    print("there are environment variables")
"""


class IsolationReport(msgspec.Struct, frozen=True, kw_only=True):
    """What this machine offers.

    Attributes:
        mechanism: the one that a sandbox takes.
        refused: why those that were tried before it cannot be taken.
    """

    mechanism: Mechanism
    refused: Mapping[Mechanism, str]


def open_server(wanted: Mechanism | None = None) -> tuple[ServerProcess, IsolationReport]:
    """A server whose walls hold, of the wanted mechanism or of the first that works.

    Raises:
        SandboxError: there is none.
    """
    refused: dict[Mechanism, str] = {}
    for mechanism in (wanted,) if wanted else MECHANISMS:
        try:
            return _tested(mechanism), IsolationReport(mechanism=mechanism, refused=refused)
        except (SandboxError, OSError) as error:
            refused[mechanism] = str(error)
    reasons = "; ".join(f"{mechanism}: {reason}" for mechanism, reason in refused.items())
    raise SandboxError(f"code cannot be run safely on this machine: {reasons}. {ADVICE}; see docs/sandbox.md")


def probe(wanted: Mechanism | None = None) -> IsolationReport:
    """Try whether the wanted mechanism works here, or which one does.

    Raises:
        SandboxError: none; the message says why.
    """
    server, finding = open_server(wanted)
    server.close()
    return finding


def _tested(mechanism: Mechanism) -> ServerProcess:
    if not sys.platform.startswith("linux"):
        raise SandboxError(f"{sys.platform} is not Linux")
    server = ServerProcess(_bubblewrap() if mechanism == "bubblewrap" else "")
    try:
        _test(server)
    except SandboxError:
        server.close()
        raise
    return server


def _bubblewrap() -> str:
    path = shutil.which("bwrap")
    if path is None:
        raise SandboxError("the command bwrap is not installed")
    return path


def _test(server: ServerProcess) -> None:
    """Run a program that tries to get out.

    Raises:
        SandboxError: it could, or it could not be run.
    """
    with ExitStack() as held:
        paths = [str(Path(__file__)), "/etc/passwd", "/proc/self", "/sys/kernel", "/var"]
        with suppress(OSError):  # where nothing can be written the others are left
            paths.append(held.enter_context(NamedTemporaryFile(prefix="outside-")).name)
        with closing(Flight(Order(source=f"PATHS = {paths!r}\n{_TEST}"), _LIMITS)) as flight:
            outcome, _ = flight.fly(server)
    if outcome.status != "ok" or outcome.stdout:
        problems = outcome.stdout.strip().replace("\n", ", ") or f"{outcome.status}: {outcome.stderr.strip()}"
        raise SandboxError(f"the self-test failed: {problems}")
