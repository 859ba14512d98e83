"""The filter of system calls: what no program of the standard library needs, and what would get around a limit.

The namespaces are the walls; this is the second one. Refused calls fail with EPERM, unknown ones with ENOSYS.
"""

import platform
import struct

from mas.sandbox.inside.kernel import NEW_ANYTHING, machine

REFUSED = {
    # The network, and whatever holds memory that the memory limit does not see.
    "socket": (41, 198),
    "shmget": (29, 194),
    "semget": (64, 190),
    "msgget": (68, 186),
    "mq_open": (240, 180),
    "memfd_create": (319, 279),
    "memfd_secret": (447, 447),
    # Namespaces and mounts.
    "unshare": (272, 97),
    "setns": (308, 268),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "fsopen": (430, 430),
    "fsconfig": (431, 431),
    "fsmount": (432, 432),
    "fspick": (433, 433),
    "mount_setattr": (442, 442),
    # Other processes.
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "kcmp": (312, 272),
    # Wide or rarely tested parts of the kernel.
    "execve": (59, 221),
    "execveat": (322, 281),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "userfaultfd": (323, 282),
    "io_uring_setup": (425, 425),
    "io_uring_enter": (426, 426),
    "io_uring_register": (427, 427),
    "io_setup": (206, 0),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "keyctl": (250, 219),
    "personality": (135, 92),
    "name_to_handle_at": (303, 264),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "init_module": (175, 105),
    "finit_module": (313, 273),
    "delete_module": (176, 106),
    "kexec_load": (246, 104),
    "reboot": (169, 142),
    "swapon": (167, 224),
    "acct": (163, 89),
    "quotactl": (179, 60),
    "syslog": (103, 116),
}
"""Their numbers on x86_64 and on aarch64."""

FORKS = {"fork": (57, None), "vfork": (58, None)}
CLONE, CLONE3 = (56, 220), 435
AS_THREAD = 0x00010000
FIRST_UNKNOWN = 452

_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_NUMBER, _PROCESSOR, _FIRST_ARGUMENT = 0, 4, 16
_ALLOW, _KILL, _NOT_PERMITTED, _UNKNOWN = 0x7FFF0000, 0x80000000, 0x00050001, 0x00050026


def call_filter(may_fork: bool) -> bytes:
    """The filter as the kernel takes it, for this processor. `may_fork`: whether new processes may be made."""
    which = ("x86_64", "aarch64").index(platform.machine())
    forks = [] if may_fork else [numbers[which] for numbers in FORKS.values()]
    refused = [number for number in (*(numbers[which] for numbers in REFUSED.values()), *forks) if number is not None]
    lines = [
        _line(_LOAD, _PROCESSOR),
        *_unless(_EQUAL, machine().audit, _KILL),
        _line(_LOAD, _NUMBER),
        *_when(_AT_LEAST, FIRST_UNKNOWN, _UNKNOWN),
        *_when(_EQUAL, CLONE3, _UNKNOWN),
    ]
    for number in refused:
        lines += _when(_EQUAL, number, _NOT_PERMITTED)
    lines += [_line(_EQUAL, CLONE[which], 1, 0), _line(_RETURN, _ALLOW), _line(_LOAD, _FIRST_ARGUMENT)]
    lines += _when(_ANY_BIT, NEW_ANYTHING, _NOT_PERMITTED)
    lines += [] if may_fork else _unless(_ANY_BIT, AS_THREAD, _NOT_PERMITTED)
    return b"".join([*lines, _line(_RETURN, _ALLOW)])


def _line(code: int, value: int, when: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("=HBBI", code, when, otherwise, value)


def _when(code: int, value: int, answer: int) -> list[bytes]:
    return [_line(code, value, 0, 1), _line(_RETURN, answer)]


def _unless(code: int, value: int, answer: int) -> list[bytes]:
    return [_line(code, value, 1, 0), _line(_RETURN, answer)]
