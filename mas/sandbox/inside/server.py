"""The server: begins programs, watches them and says how they ended.

With namespaces it is one Python interpreter inside the walls that is forked for every program; with bubblewrap it
stands outside and begins a walled interpreter for every program.

A request is one packet with six open files: the leash, the order, standard input, output and error, and the report.
The server never reads an order, so that its memory, of which every program gets a copy, holds nothing of any other.
A leash that is cut ends the program and everything that it started; the packet on the leash says how it ended.
"""

import gc
import importlib
import json
import os
import selectors
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any, NoReturn

from mas.sandbox.inside import kernel, program
from mas.sandbox.inside.walls import HOST_NAME, SPACES, build_root, seen_directories, user_maps
from mas.sandbox.inside.wrapped import Wrapped

READY, FAILED = b"ready", b"failed: "
FILES = 6
PACKET = 4096
PRELOADED = (
    "argparse", "bisect", "collections", "copy", "dataclasses", "datetime", "decimal", "enum", "fractions",
    "functools", "heapq", "io", "itertools", "json", "math", "operator", "random", "re", "statistics", "string",
    "threading", "traceback", "types", "typing",
)  # fmt: skip
"""Modules that programs often want: loaded once."""


Begin = Callable[[list[int], dict[str, Any]], int]
"""Begins a program with these files and limits; the process to wait for."""


def main(control: int, modules: int, bubblewrap: str) -> NoReturn:
    """Build the walls, then serve until the other end of the socket is closed. What fails is said on the socket.

    `modules`: the open directory that these modules come from, of no more use. `bubblewrap`: the path of its command;
    empty: namespaces are made here.
    """
    channel = socket.socket(fileno=control)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)  # ignored, as it may be inherited, it hides how children end
    try:
        for name in PRELOADED:
            importlib.import_module(name)
        directories = seen_directories()
        if bubblewrap:
            _Server(channel, Wrapped(bubblewrap, directories, os.readlink(f"/proc/self/fd/{modules}"))).serve()
        os.close(modules)
        worker = _leave_all()
        socket.sethostname(HOST_NAME)
        child = os.fork()
        if child == 0:
            kernel.die_with_parent(signal.SIGKILL)
            space = os.open("/proc/self/ns/pid", os.O_RDONLY | os.O_CLOEXEC)
            build_root(directories)
            _Server(channel, _Forked(space, worker)).serve()
    except OSError as error:
        channel.send(FAILED + str(error).encode()[: PACKET - len(FAILED)])
        os._exit(1)
    channel.close()
    os.waitpid(child, 0)
    os._exit(0)


def _leave_all() -> int:
    """Enter new namespaces, with the maps of users written by somebody who stayed outside; as whom programs run."""
    users, groups, worker = user_maps()
    parent = os.getpid()
    asked, ask = os.pipe()
    writer = os.fork()
    if writer == 0:
        os.close(ask)
        os.read(asked, 1)
        try:
            for name, text in (("gid_map", groups), ("uid_map", users)):
                if name == "gid_map" and worker == 0:
                    _write(f"/proc/{parent}/setgroups", "deny")
                _write(f"/proc/{parent}/{name}", text)
        except OSError as error:
            os._exit(error.errno or 1)
        os._exit(0)
    try:
        kernel.leave(SPACES)
    finally:
        os.close(asked)
        os.close(ask)
        problem = os.waitstatus_to_exitcode(os.waitpid(writer, 0)[1])
    if problem:
        raise OSError(problem, f"uid_map: {os.strerror(problem)}")
    return worker


def _write(path: str, text: str) -> None:
    file = os.open(path, os.O_WRONLY)
    os.write(file, text.encode())
    os.close(file)


class _Forked:
    """Begins a program as a fork of this process, the first of a namespace of processes."""

    def __init__(self, space: int, worker: int) -> None:
        self._space = space
        self._worker = worker

    def __call__(self, files: list[int], limits: dict[str, Any]) -> int:
        kernel.enter(self._space, kernel.NEW_PROCESSES)
        kernel.leave(kernel.NEW_PROCESSES)
        child = os.fork()
        if child == 0:
            program.live(files, limits, self._worker)
        return child


class _Server:
    def __init__(self, channel: socket.socket, begin: Begin) -> None:
        self._channel = channel
        self._start = begin
        self._selector = selectors.DefaultSelector()

    def serve(self) -> NoReturn:
        self._selector.register(self._channel, selectors.EVENT_READ)
        sys.modules.pop("__main__", None)
        gc.freeze()
        self._channel.send(READY)
        while True:
            for key, _ in self._selector.select():
                if key.fileobj is self._channel:
                    self._begin()
                elif isinstance(key.fileobj, socket.socket):
                    self._cut(key.fileobj, key.data)
                else:
                    self._end(key.fd, *key.data)

    def _begin(self) -> None:
        packet, files, _, _ = socket.recv_fds(self._channel, PACKET, FILES)
        if not packet:
            os._exit(0)
        leash = socket.socket(fileno=files[0])
        try:
            child = self._start(files[1:], json.loads(packet))
        except OSError as error:
            _tell(leash, {"error": str(error)})
        else:
            watch = os.pidfd_open(child)
            self._selector.register(watch, selectors.EVENT_READ, (child, leash))
            self._selector.register(leash, selectors.EVENT_READ, child)
        for file in files[1:]:
            os.close(file)

    def _cut(self, leash: socket.socket, child: int) -> None:
        """Whoever sent the order wants no more of it, or is gone."""
        if leash.fileno() < 0:
            return  # it ended in the same moment
        os.kill(child, signal.SIGKILL)
        self._selector.unregister(leash)

    def _end(self, watch: int, child: int, leash: socket.socket) -> None:
        _, status, used = os.wait4(child, 0)
        self._selector.unregister(watch)
        os.close(watch)
        if leash in self._selector.get_map():
            self._selector.unregister(leash)
        _tell(leash, {"exit": os.waitstatus_to_exitcode(status), "cpu_s": used.ru_utime + used.ru_stime})


def _tell(leash: socket.socket, answer: dict[str, Any]) -> None:
    try:
        leash.send(json.dumps(answer).encode())
    except OSError:
        return  # nobody holds the other end any more
    finally:
        leash.close()
