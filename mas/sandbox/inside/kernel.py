"""The calls of the Linux kernel that the sandbox is built from and that Python 3.11 does not offer."""

import ctypes
import os
import platform
from typing import Any, NamedTuple

NEW_MOUNTS = 0x00020000
NEW_CONTROL_GROUPS = 0x02000000
NEW_HOST_NAME = 0x04000000
NEW_IPC = 0x08000000
NEW_USERS = 0x10000000
NEW_PROCESSES = 0x20000000
NEW_NETWORK = 0x40000000
NEW_ANYTHING = 0x7E020080
"""Every flag of `clone` that makes a namespace."""

NO_SET_USER_ID = 0x2
NO_DEVICES = 0x4
NO_PROGRAMS = 0x8
BIND = 0x1000
RECURSIVE = 0x4000
PRIVATE = 0x40000
DETACH = 0x2

_ATTRIBUTE_READ_ONLY = 0x1
_ATTRIBUTE_NO_SET_USER_ID = 0x2
_AT_HERE = -100
_AT_RECURSIVE = 0x8000
_MOUNT_SETATTR = 442
_SET_DEATH_SIGNAL, _SET_SECCOMP, _READ_BOUNDING, _DROP_BOUNDING, _SET_NO_NEW_PRIVILEGES = 1, 22, 23, 24, 38
_SECCOMP_FILTER = 2
_CAPABILITY_VERSION = 0x20080522
_LAST_CAPABILITY = 63


class Machine(NamedTuple):
    """What depends on the processor: its code in audit records, and the numbers of calls that have no wrapper."""

    audit: int
    pivot_root: int
    capset: int


MACHINES = {"x86_64": Machine(0xC000003E, 155, 126), "aarch64": Machine(0xC00000B7, 41, 91)}
_LIBC: Any = ctypes.CDLL(None, use_errno=True)


def machine() -> Machine:
    """What depends on this processor.

    Raises:
        OSError: it is none that the sandbox knows.
    """
    name = platform.machine()
    if name not in MACHINES:
        raise OSError(f"processor {name!r} is not supported; possible: {', '.join(sorted(MACHINES))}")
    return MACHINES[name]


def leave(spaces: int) -> None:
    """Leave the namespaces of these kinds for new ones; for processes, this holds for the next child."""
    _checked("unshare", _LIBC.unshare(spaces))


def enter(space: int, kind: int) -> None:
    """Enter the namespace that an open file stands for."""
    _checked("setns", _LIBC.setns(space, kind))


def mount(source: str, target: str, kind: str, flags: int, options: str = "") -> None:
    """Mount a file system, or bind what is at `source`, at `target`."""
    words = [word.encode() for word in (source, target, kind)]
    _checked(f"mount {target}", _LIBC.mount(*words, ctypes.c_ulong(flags), options.encode()))


def lock_mounts() -> None:
    """Make everything below the root read-only, and no program there get another user's rights."""
    attributes = (ctypes.c_uint64 * 4)(_ATTRIBUTE_READ_ONLY | _ATTRIBUTE_NO_SET_USER_ID, 0, 0, 0)
    size = ctypes.c_size_t(ctypes.sizeof(attributes))
    done = _LIBC.syscall(_MOUNT_SETATTR, _AT_HERE, b"/", _AT_RECURSIVE, ctypes.byref(attributes), size)
    _checked("mount_setattr", done)


def swap_root(new: str, old: str) -> None:
    """Make `new` the root; the old one is then found at `old`, a directory below it."""
    _checked("pivot_root", _LIBC.syscall(machine().pivot_root, new.encode(), old.encode()))


def unmount(target: str) -> None:
    """Take a mount and all below it out of sight."""
    _checked(f"umount {target}", _LIBC.umount2(target.encode(), DETACH))


def die_with_parent(signal: int) -> None:
    """Have this signal sent to this process when the process that forked it ends."""
    _checked("prctl", _LIBC.prctl(_SET_DEATH_SIGNAL, signal, 0, 0, 0))


def drop_rights() -> None:
    """Give up every capability, in the bounding set too, and the way back to any."""
    for number in range(_LAST_CAPABILITY + 1):
        if _LIBC.prctl(_READ_BOUNDING, number, 0, 0, 0) == 1:
            _checked("prctl", _LIBC.prctl(_DROP_BOUNDING, number, 0, 0, 0))
    header, nothing = (ctypes.c_uint32 * 2)(_CAPABILITY_VERSION, 0), (ctypes.c_uint32 * 6)()
    _checked("capset", _LIBC.syscall(machine().capset, ctypes.byref(header), ctypes.byref(nothing)))
    _checked("prctl", _LIBC.prctl(_SET_NO_NEW_PRIVILEGES, 1, 0, 0, 0))


def filter_calls(program: bytes) -> None:
    """Have the kernel ask this filter before every system call, from now on and in all children."""

    class Filter(ctypes.Structure):
        _fields_ = (("length", ctypes.c_ushort), ("program", ctypes.c_char_p))

    held = Filter(len(program) // 8, program)
    _checked("seccomp", _LIBC.prctl(_SET_SECCOMP, _SECCOMP_FILTER, ctypes.byref(held), 0, 0))


def _checked(what: str, result: int) -> None:
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")
