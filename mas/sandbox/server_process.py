"""The process of the server, seen from outside: it is begun, given orders, and ends when nobody holds its socket."""

import os
import socket
import subprocess
import sys
import weakref
from contextlib import ExitStack, suppress
from pathlib import Path

from mas.core.errors import SandboxError
from mas.sandbox.inside.server import PACKET, READY

ANSWER_S = 30.0
"""How long the server may take to begin, and to take an order."""
_MODULES = Path(__file__).parent / "inside"
_BEGIN = """
import sys
for name in ("mas", "mas.sandbox", "mas.sandbox.inside"):
    package = sys.modules[name] = type(sys)(name)
    package.__path__ = []
package.__path__.append(f"/proc/self/fd/{sys.argv[2]}")
sys.pycache_prefix = "/none"
from mas.sandbox.inside.server import main
sys.pycache_prefix = None
main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3])
"""
"""Programs are forks of this process: it must not hold where the project lies, which compiled modules would say."""
_END_S = 10.0


class ServerProcess:
    """A server. `bubblewrap`: the path of that command, which builds the walls; empty: the server itself does.

    Raises:
        SandboxError: the walls cannot be built here; the message says what the kernel refused.
    """

    def __init__(self, bubblewrap: str = "") -> None:
        self._control, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs, ExitStack() as held, ExitStack() as unless_begun:
            unless_begun.callback(self._control.close)
            modules = os.open(_MODULES, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            held.callback(os.close, modules)
            # -I would ignore the seed of hashes; the environment is empty, so -E has nothing to ignore.
            self._process = subprocess.Popen(
                [
                    _python(),
                    "-s",
                    "-S",
                    "-B",
                    "-P",
                    "-X",
                    "utf8",
                    "-c",
                    _BEGIN,
                    str(theirs.fileno()),
                    str(modules),
                    bubblewrap,
                ],
                env={"PYTHONHASHSEED": "0"},
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[theirs.fileno(), modules],
                start_new_session=True,
            )
            unless_begun.pop_all()
        self._finish = weakref.finalize(self, _end, self._control, self._process, os.getpid())
        self._await_ready()

    @property
    def pid(self) -> int:
        """Of the process outside the walls."""
        return self._process.pid

    def send(self, limits: bytes, files: list[int]) -> None:
        """Have a program begun.

        Raises:
            OSError: the server is gone, or takes no orders.
        """
        socket.send_fds(self._control, [limits], files)

    def close(self) -> None:
        """End it, with every program in it."""
        self._finish()

    def _await_ready(self) -> None:
        self._control.settimeout(ANSWER_S)
        try:
            answer = self._control.recv(PACKET)
        except OSError as error:
            answer = f"no answer within {ANSWER_S:g} s ({error})".encode()
        if answer != READY:
            self.close()
            raise SandboxError(answer.decode(errors="replace") or "the interpreter ended at once")


def _python() -> str:
    """The interpreter itself: one of a virtual environment is only a link to it."""
    return os.path.realpath(getattr(sys, "_base_executable", sys.executable))


def _end(control: socket.socket, process: "subprocess.Popen[bytes]", owner: int) -> None:
    """Hang up and wait. A fork of the owner, which has the same objects, ends nothing."""
    if os.getpid() != owner:
        return
    with control, suppress(OSError):
        control.shutdown(socket.SHUT_RDWR)
    try:
        process.wait(_END_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
