"""What attacking programs begin with."""

import textwrap

from mas.sandbox.box import Sandbox
from mas.sandbox.outcome import ProgramOutcome

PRELUDE = """
import array, ctypes, mmap, os, platform, socket, struct, sys, time
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t] + [ctypes.c_int] * 3 + [ctypes.c_long]
X86 = platform.machine() == "x86_64"

def call(x86, aarch, *arguments):
    "A system call by its number: what it returned, not negative, or None."
    got = libc.syscall(x86 if X86 else aarch, *arguments)
    return None if got < 0 else got

def got(what, value):
    if value is not None:
        print(what, value)
"""


def run(box: Sandbox, source: str) -> ProgramOutcome:
    """Run an attack."""
    return box.run_now(PRELUDE + textwrap.dedent(source))
