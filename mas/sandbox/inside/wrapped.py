"""Programs behind walls that bubblewrap builds: an interpreter of its own for each, and so slower than a fork.

Started by root, bubblewrap runs as nobody: the limit of tasks does not hold for root.
"""

import json
import os
import signal
import sys
from typing import Any

from mas.sandbox.inside import kernel, program
from mas.sandbox.inside.walls import DEVICES, FILES, HOST_NAME, LINKS, NOBODY, WORK, third_parties

_ORDER = 4
_PLACE = "/sandbox"
_LOADERS = ("/lib64/ld-linux-x86-64.so.2", "/lib/ld-linux-aarch64.so.1")
_BEGIN = (
    f"import sys; sys.path.insert(0, {_PLACE!r}); from mas.sandbox.inside.wrapped import live; del sys.path[0]; "
    "live(sys.argv[1])"
)


class Wrapped:
    """Begins a program in bubblewrap.

    `directories`: what it sees of this machine, read-only. `modules`: where the modules lie that lock it in.
    """

    def __init__(self, bubblewrap: str, directories: list[str], modules: str) -> None:
        self._bubblewrap = bubblewrap
        self._views = _views(directories, modules)

    def __call__(self, files: list[int], limits: dict[str, Any]) -> int:
        server = os.getpid()
        child = os.fork()
        if child == 0:
            self._become(files, limits, server)
        return child

    def _become(self, files: list[int], limits: dict[str, Any], server: int) -> None:
        try:
            high = [os.dup(file) for file in files]
            for number, file in zip((_ORDER, 0, 1, 2, 3), high, strict=True):
                os.dup2(file, number)
            os.closerange(_ORDER + 1, max(high) + 1)
            if os.geteuid() == 0:
                os.setgroups([])
                os.setresgid(NOBODY, NOBODY, NOBODY)
                os.setresuid(NOBODY, NOBODY, NOBODY)
            # Bubblewrap asks for the same, but only once it runs, when the server may be gone already.
            kernel.die_with_parent(signal.SIGKILL)
            if os.getppid() != server:
                return
            work = ["--size", str(limits["disk_bytes"]), "--tmpfs", WORK, "--chdir", WORK]
            interpreter = [sys.executable, "-s", "-S", "-B", "-P", "-X", "utf8", "-c", _BEGIN, json.dumps(limits)]
            os.execv(self._bubblewrap, [self._bubblewrap, *self._views, *work, "--remount-ro", "/", *interpreter])
        finally:
            os._exit(1)


def live(limits: str) -> None:
    """What runs inside: lock the process in and run its program."""
    program.live([_ORDER, 0, 1, 2, 3], json.loads(limits), None)


def _views(directories: list[str], modules: str) -> list[str]:
    words = ["--unshare-all", "--hostname", HOST_NAME, "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    words += ["--clearenv", "--setenv", "PYTHONHASHSEED", "0"]
    for path in (*directories, sys.executable, *FILES, *_LOADERS):
        if os.path.exists(path):
            words += ["--ro-bind", path, os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))]
    for path in DEVICES:
        words += ["--dev-bind", path, path]
    for path in LINKS:
        if os.path.islink(path):
            words += ["--symlink", os.readlink(path), path]
    for path in third_parties():
        words += ["--tmpfs", path, "--remount-ro", path]
    return [*words, "--ro-bind", modules, f"{_PLACE}/mas/sandbox/inside"]
