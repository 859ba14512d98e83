"""The filter of system calls: programs get those that Python's standard library needs, and no other.

The namespaces are the walls; this is the second one. It keeps from a program, among others: every kind of socket that
has an address (programs of one sandbox share a network namespace), memory that the limit does not see (`vmsplice` and
`splice` pin pages, `memfd_create`, System V, huge pages), other processes, mounts, locks and watches on files of the
host, and the wide or rarely tested parts of the kernel. Refused calls fail with EPERM, unknown ones with ENOSYS.
"""

import platform
import struct

from mas.sandbox.inside.kernel import NEW_ANYTHING, machine

ALLOWED: dict[str, tuple[int | None, int | None]] = {
    # Reading and writing what is open.
    "read": (0, 63), "write": (1, 64), "readv": (19, 65), "writev": (20, 66), "pread64": (17, 67),
    "pwrite64": (18, 68), "preadv": (295, 69), "pwritev": (296, 70), "lseek": (8, 62),
    "copy_file_range": (326, 285),
    # Files: all that could be changed lies in the program's own directory, everything else is read-only.
    "open": (2, None), "openat": (257, 56), "openat2": (437, 437), "creat": (85, None), "close": (3, 57),
    "close_range": (436, 436), "dup": (32, 23), "dup2": (33, None), "dup3": (292, 24), "access": (21, None),
    "faccessat": (269, 48), "faccessat2": (439, 439), "stat": (4, None), "fstat": (5, 80), "lstat": (6, None),
    "newfstatat": (262, 79), "statx": (332, 291), "readlink": (89, None), "readlinkat": (267, 78),
    "getdents": (78, None), "getdents64": (217, 61), "getcwd": (79, 17), "chdir": (80, 49), "fchdir": (81, 50),
    "mkdir": (83, None), "mkdirat": (258, 34), "rmdir": (84, None), "unlink": (87, None), "unlinkat": (263, 35),
    "rename": (82, None), "renameat": (264, 38), "renameat2": (316, 276), "link": (86, None), "linkat": (265, 37),
    "symlink": (88, None), "symlinkat": (266, 36), "mknod": (133, None), "mknodat": (259, 33), "chmod": (90, None),
    "fchmod": (91, 52), "fchmodat": (268, 53), "chown": (92, None), "fchown": (93, 55), "lchown": (94, None),
    "fchownat": (260, 54), "umask": (95, 166), "truncate": (76, 45), "ftruncate": (77, 46), "fallocate": (285, 47),
    "utime": (132, None), "utimes": (235, None), "utimensat": (280, 88), "futimesat": (261, None),
    "getxattr": (191, 8), "lgetxattr": (192, 9), "fgetxattr": (193, 10), "listxattr": (194, 11),
    "llistxattr": (195, 12), "flistxattr": (196, 13),
    # Pipes, pairs of sockets and waiting for them.
    "pipe": (22, None), "pipe2": (293, 59), "poll": (7, None), "ppoll": (271, 73), "select": (23, None),
    "pselect6": (270, 72), "epoll_create": (213, None), "epoll_create1": (291, 20), "epoll_ctl": (233, 21),
    "epoll_wait": (232, None), "epoll_pwait": (281, 22), "epoll_pwait2": (441, 441), "eventfd": (284, None),
    "eventfd2": (290, 19), "signalfd": (282, None), "signalfd4": (289, 74), "timerfd_create": (283, 85),
    "timerfd_settime": (286, 86), "timerfd_gettime": (287, 87), "recvfrom": (45, 207), "recvmsg": (47, 212),
    "shutdown": (48, 210), "getsockname": (51, 204), "getpeername": (52, 205), "getsockopt": (55, 209),
    # Memory, within the limit of the address space.
    "brk": (12, 214), "munmap": (11, 215), "mremap": (25, 216), "mprotect": (10, 226), "msync": (26, 227),
    # Threads, and the program's own processes, which are alone in their namespace.
    "futex": (202, 98), "set_robust_list": (273, 99), "get_robust_list": (274, 100), "set_tid_address": (218, 96),
    "rseq": (334, 293), "sched_yield": (24, 124), "sched_getaffinity": (204, 123), "sched_getparam": (143, 121),
    "sched_getscheduler": (145, 120), "sched_get_priority_max": (146, 125), "sched_get_priority_min": (147, 126),
    "sched_rr_get_interval": (148, 127), "exit": (60, 93), "exit_group": (231, 94), "wait4": (61, 260),
    "waitid": (247, 95), "kill": (62, 129), "tkill": (200, 130), "tgkill": (234, 131), "getpid": (39, 172),
    "getppid": (110, 173), "gettid": (186, 178), "getpgid": (121, 155), "getpgrp": (111, None),
    "setpgid": (109, 154), "getsid": (124, 156), "setsid": (112, 157), "getuid": (102, 174), "geteuid": (107, 175),
    "getgid": (104, 176), "getegid": (108, 177), "getresuid": (118, 148), "getresgid": (120, 150),
    "getgroups": (115, 158), "getpriority": (140, 141), "setpriority": (141, 140), "getrlimit": (97, 163),
    "setrlimit": (160, 164), "prlimit64": (302, 261), "getrusage": (98, 165), "times": (100, 153),
    "uname": (63, 160),
    # Signals, time, chance.
    "rt_sigaction": (13, 134), "rt_sigprocmask": (14, 135), "rt_sigreturn": (15, 139), "rt_sigpending": (127, 136),
    "rt_sigsuspend": (130, 133), "rt_sigtimedwait": (128, 137), "sigaltstack": (131, 132),
    "restart_syscall": (219, 128), "pause": (34, None), "nanosleep": (35, 101), "clock_nanosleep": (230, 115),
    "clock_gettime": (228, 113), "clock_getres": (229, 114), "gettimeofday": (96, 169), "time": (201, None),
    "alarm": (37, None), "getitimer": (36, 102), "setitimer": (38, 103), "getrandom": (318, 278),
}  # fmt: skip
"""Calls that are allowed whatever their arguments; their numbers on x86_64 and on aarch64."""

CONDITIONAL = {
    "clone": (56, 220), "fcntl": (72, 25), "ioctl": (16, 29), "madvise": (28, 233), "mmap": (9, 222),
    "prctl": (157, 167), "sendto": (44, 206), "socketpair": (53, 199),
}  # fmt: skip
"""Calls of which some arguments are allowed, see `_conditions`."""

WITHOUT_EFFECT = {"fsync": (74, 82), "fdatasync": (75, 83)}
"""Calls that succeed and do nothing: a program's directory is in memory, and the disk is the host's."""

FORKS = {"fork": (57, None), "vfork": (58, None)}
CLONE3 = 435
FIRST_UNKNOWN = 452

AS_THREAD = 0x00010000
HUGE_PAGES = 0x40000
"""`MAP_HUGETLB`: taken from the pages that the host set apart for others."""
SET_LOCK, SET_LOCK_AND_WAIT = 6, 7
FILE_COMMANDS = (0, 1, 2, 3, 4, 5, 1030, 1032, 1034)
"""`fcntl`: duplicates, flags, `F_GETLK` and sizes; no leases, notices, owners, nor larger pipes."""
DEVICE_COMMANDS = (0x5401, 0x5413, 0x541B, 0x5421, 0x5450, 0x5451)
"""`ioctl`: terminal or not, its size, bytes to read, blocking and closing on `exec`."""
ADVICE = (0, 1, 2, 3, 4, 8, 14, 15)
"""`madvise`: none that merges pages with those of others or pushes them out."""
PROCESS_OPTIONS = (1, 2, 15, 16)
"""`prctl`: the signal at the parent's death, and the name of a thread."""
LOCAL, STREAM, KIND = 1, 1, 0xF

_LOAD, _AND, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x54, 0x15, 0x35, 0x45, 0x06
_NUMBER, _PROCESSOR, _ARGUMENTS = 0, 4, 16
_ALLOW, _KILL, _NOT_PERMITTED, _UNKNOWN, _NOTHING = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026, 0x00050000


def call_filter(may_fork: bool) -> bytes:
    """The filter as the kernel takes it, for this processor. `may_fork`: whether new processes may be made."""
    which = ("x86_64", "aarch64").index(platform.machine())
    allowed = {**ALLOWED, **FORKS} if may_fork else ALLOWED
    lines = [
        _line(_LOAD, _PROCESSOR),
        *_unless(_EQUAL, machine().audit, _KILL),
        _line(_LOAD, _NUMBER),
        *_when(_AT_LEAST, FIRST_UNKNOWN, _UNKNOWN),
        *_when(_EQUAL, CLONE3, _UNKNOWN),
    ]
    for name, body in _conditions(may_fork).items():
        lines += [_line(_EQUAL, CONDITIONAL[name][which], 0, len(body)), *body]
    for numbers, answer in ((WITHOUT_EFFECT, _NOTHING), (allowed, _ALLOW)):
        for number in (number[which] for number in numbers.values()):
            lines += [] if number is None else _when(_EQUAL, number, answer)
    return b"".join([*lines, _line(_RETURN, _NOT_PERMITTED)])


def _conditions(may_fork: bool) -> dict[str, list[bytes]]:
    """What is asked of the arguments of a call; each ends with an answer.

    Locks of records are between processes: to a program of one process they are without effect. They would otherwise
    lie on files of the host, where others meet them.
    """
    locks = [] if may_fork else [*_when(_EQUAL, SET_LOCK, _NOTHING), *_when(_EQUAL, SET_LOCK_AND_WAIT, _NOTHING)]
    new_process = [] if may_fork else _unless(_ANY_BIT, AS_THREAD, _NOT_PERMITTED)
    pair = [*_argument(0), *_unless(_EQUAL, LOCAL, _NOT_PERMITTED), *_argument(1), _line(_AND, KIND)]
    address = [*_argument(4), *_unless(_EQUAL, 0, _NOT_PERMITTED), *_argument(4, high=True)]
    return {
        "clone": [*_argument(0), *_when(_ANY_BIT, NEW_ANYTHING, _NOT_PERMITTED), *new_process, _line(_RETURN, _ALLOW)],
        "fcntl": [*_argument(1), *locks, *_one_of(FILE_COMMANDS)],
        "ioctl": [*_argument(1), *_one_of(DEVICE_COMMANDS)],
        "madvise": [*_argument(2), *_one_of(ADVICE)],
        "mmap": [*_argument(3), *_when(_ANY_BIT, HUGE_PAGES, _NOT_PERMITTED), _line(_RETURN, _ALLOW)],
        "prctl": [*_argument(0), *_one_of(PROCESS_OPTIONS)],
        "sendto": [*address, *_one_of((0,))],
        "socketpair": [*pair, *_one_of((STREAM,))],
    }


def _argument(place: int, high: bool = False) -> list[bytes]:
    """Load the lower or the `high` half of an argument; both processors are little-endian."""
    return [_line(_LOAD, _ARGUMENTS + 8 * place + 4 * high)]


def _one_of(values: tuple[int, ...]) -> list[bytes]:
    return [*(line for value in values for line in _when(_EQUAL, value, _ALLOW)), _line(_RETURN, _NOT_PERMITTED)]


def _line(code: int, value: int, when: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, when, otherwise, value)


def _when(code: int, value: int, answer: int) -> list[bytes]:
    return [_line(code, value, 0, 1), _line(_RETURN, answer)]


def _unless(code: int, value: int, answer: int) -> list[bytes]:
    return [_line(code, value, 1, 0), _line(_RETURN, answer)]
