"""What model-written programs do, found out in the sandbox alone, and remembered.

A program is asked once for each set of tests: later answers come from memory, so that within a process equal actions
have equal consequences, whatever a clock says.
"""

import atexit
import json
from functools import cache, lru_cache
from typing import Any

from mas.core.errors import ConfigError, SandboxError
from mas.sandbox.box import Sandbox
from mas.sandbox.mechanism import probe
from mas.sandbox.outcome import ProgramCase, SandboxLimits, Status

LIMITS = SandboxLimits(time_s=2, memory_mib=128, tasks=4, output_kib=16, disk_mib=1, entries=16)
Given = tuple[tuple[Any, Any], ...]


@cache
def require_sandbox() -> None:
    """Check once that this machine can run programs safely.

    Raises:
        ConfigError: it cannot.
    """
    try:
        probe()
    except SandboxError as error:
        raise ConfigError(
            "scenario 'code_team': with style=words the team writes Python, which is run in the sandbox alone, and "
            f"there is none here: {error}. Use style=letters, which needs no sandbox"
        ) from error


def judged(program: str, cases: Given) -> tuple[Status, tuple[bool, ...]]:
    """How a program ends, and which of its tests `f(input) == output` it passes; what it does not reach is not passed.

    Raises:
        SandboxError: the sandbox broke.
    """
    return _judged(program, json.dumps(cases))


@lru_cache(maxsize=4096)
def _judged(program: str, cases: str) -> tuple[Status, tuple[bool, ...]]:
    asked = [ProgramCase(f"f({given!r})", wanted) for given, wanted in json.loads(cases)]
    checked = _sandbox().check_now(program, asked)
    return checked.outcome.status, checked.passed


@cache
def _sandbox() -> Sandbox:
    """One for the process, ended with it."""
    sandbox = Sandbox(LIMITS, places=1)
    atexit.register(sandbox.close)
    return sandbox
