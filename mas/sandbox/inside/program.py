"""The life of one program: a process of its own, locked in before the first line of the program runs.

What it reports, on file 3, is records of one letter, four bytes of length and text. A program can write there too:
what it writes is a claim about itself and nothing more, see `mas.sandbox.box.Sandbox.check_now`.
"""

import atexit
import json
import linecache
import os
import random
import resource
import struct
import sys
import threading
import traceback
from types import ModuleType
from typing import Any, NoReturn

from mas.sandbox.inside import kernel
from mas.sandbox.inside.calls import call_filter
from mas.sandbox.inside.values import canonical
from mas.sandbox.inside.walls import WORK

REFUSED, BEGUN, VALUE, RAISED, NO_MEMORY = b"R", b"B", b"V", b"X", b"M"
HEAD = struct.Struct(">cI")
NAME = "<program>"
NOT_BEGUN = 70
_REPORT = 3
_SIGNALS = 64
"""That may wait to be delivered, beside one for each task."""


def live(files: list[int], limits: dict[str, Any], worker: int | None) -> NoReturn:
    """Lock this process in, run the program that the first file holds, and end.

    `files`: the order, standard input, output and error, and the report. `worker`: the user that programs run as;
    None: somebody else has built the walls.
    """
    order, *streams = files
    try:
        text = _read(order)
        for number, file in enumerate(streams):
            os.dup2(file, number)
        os.closerange(_REPORT + 1, resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        if worker is not None:
            _wall_in(limits, worker)
        os.chdir(WORK)
        confine(limits)
        asked = json.loads(text)
    except BaseException as error:  # noqa: BLE001 - whatever it was, the program must not begin
        _report(REFUSED, f"{type(error).__name__}: {error}")
        os._exit(NOT_BEGUN)
    _report(BEGUN, "")
    code = _run(asked["source"], asked["calls"], asked["seed"])
    _leave()
    os._exit(code)


def _wall_in(limits: dict[str, Any], worker: int) -> None:
    os.setsid()
    kernel.leave(kernel.NEW_MOUNTS)
    flags = kernel.NO_SET_USER_ID | kernel.NO_DEVICES | kernel.NO_PROGRAMS
    size = f"size={limits['disk_bytes']},nr_inodes={limits['inodes']},mode=700,uid={worker},gid={worker}"
    kernel.mount("tmpfs", WORK, "tmpfs", flags, size)
    if worker:
        os.setgroups([])
        os.setresgid(worker, worker, worker)
        os.setresuid(worker, worker, worker)
    kernel.leave(kernel.NEW_USERS)  # the number of its processes is counted in a namespace of its own


def confine(limits: dict[str, Any]) -> None:
    """Set the limits of this process for good: resources, capabilities, system calls."""
    for kind, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_CPU, limits["cpu_s"]),
        (resource.RLIMIT_FSIZE, limits["disk_bytes"]),
        (resource.RLIMIT_NOFILE, limits["files"]),
        (resource.RLIMIT_NPROC, limits["tasks"]),
        (resource.RLIMIT_AS, limits["memory_bytes"]),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_NICE, 0),
        (resource.RLIMIT_RTPRIO, 0),
        (resource.RLIMIT_SIGPENDING, limits["tasks"] + _SIGNALS),
    ):
        try:
            resource.setrlimit(kind, (most, most))
        except ValueError as error:
            raise OSError(f"{_name_of(kind)} of {most} cannot be set ({error}): it must be as high outside") from error
    allowed = call_filter(limits["may_fork"])
    kernel.drop_rights()
    kernel.filter_calls(allowed)


def _name_of(kind: int) -> str:
    """A limit's name as the manual has it."""
    return next(name for name in dir(resource) if name.startswith("RLIMIT_") and getattr(resource, name) == kind)


def _run(source: str, calls: list[str], seed: int) -> int:
    """The exit code of the program: as Python's, and afterwards the values of the calls are reported."""
    random.seed(seed)
    os.environ.clear()
    main = ModuleType("__main__")
    sys.modules["__main__"] = main
    sys.argv = [NAME]
    linecache.cache[NAME] = (len(source), None, source.splitlines(keepends=True), NAME)
    try:
        exec(compile(source, NAME, "exec", dont_inherit=True), main.__dict__)  # noqa: S102 - this is the sandbox
        for call in calls:
            _value(call, main)
    except SystemExit as stop:
        return _exit_code(stop)
    except MemoryError:
        _report(NO_MEMORY, "")
        return 1
    except BaseException as error:  # noqa: BLE001 - the program's own, shown as Python shows it
        traceback.print_exception(error.with_traceback(error.__traceback__ and error.__traceback__.tb_next))
        return 1
    return 0


def _value(call: str, main: ModuleType) -> None:
    """Report the value of one expression, or what it raised; a program that ends itself here reports no more."""
    try:
        text = canonical(eval(compile(call, "<call>", "eval", dont_inherit=True), main.__dict__))  # noqa: S307
    except Exception as error:  # noqa: BLE001 - the program's own
        _report(RAISED, type(error).__name__)
    else:
        _report(VALUE, text)


def _exit_code(stop: SystemExit) -> int:
    if stop.code is None:
        return 0
    if isinstance(stop.code, int):
        return stop.code & 0xFF
    print(stop.code, file=sys.stderr)
    return 1


def _leave() -> None:
    """End as a program does: wait for its threads, do what it left for the end, write out what is buffered."""
    try:
        for thread in threading.enumerate():
            if thread is not threading.current_thread() and not thread.daemon:
                thread.join()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:  # noqa: BLE001 - a stream that the program closed, for one
        return


def _read(file: int) -> bytes:
    parts = []
    while part := os.read(file, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def _report(kind: bytes, text: str) -> None:
    content = text.encode("utf-8", "backslashreplace")
    left = HEAD.pack(kind, len(content)) + content
    try:
        while left:
            left = left[os.write(_REPORT, left) :]
    except OSError:
        return  # the program closed it: it reports nothing
