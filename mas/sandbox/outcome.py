"""What is asked of the sandbox, and how a program ended."""

from typing import Annotated, Literal

import msgspec
from pydantic import Field

from mas.core.options import Options, Positive

Status = Literal["ok", "wrong", "timeout", "memory", "killed", "output", "refused"]


class SandboxLimits(Options):
    """What one program may use.

    Attributes:
        time_s: seconds on the clock, and of processor time.
        memory_mib: address space of each of its processes; the interpreter itself takes about 30.
        tasks: its threads and processes together. may_fork: whether it may make processes at all; without, the
            whole program has `memory_mib`.
        output_kib: of standard output, of standard error, and of all values that `check` asks for.
        source_kib: of the program and its input. disk_mib, entries: what its working directory holds, and how many
            files. files: open at once.
    """

    time_s: Annotated[float, Field(gt=0, le=3600)] = 5.0
    memory_mib: Annotated[int, Field(ge=64)] = 256
    tasks: Annotated[int, Field(ge=1, le=1024)] = 8
    may_fork: bool = False
    output_kib: Positive = 64
    source_kib: Positive = 1024
    disk_mib: Positive = 16
    entries: Annotated[int, Field(ge=2)] = 1024
    files: Annotated[int, Field(ge=8, le=1024)] = 64


class ProgramOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """How one program ended.

    Attributes:
        status: `ok`: it ended with exit code 0, whether or not it did what was wanted. `wrong`: an exception or another
            exit code. `timeout`, `memory`, `output`: it hit that limit. `killed`: a signal ended it. `refused`: it
            was not begun; `stderr` says why.
        stdout, stderr: what it wrote, up to the limit; what is not UTF-8 is escaped (`\\xff`).
        seconds: on the clock, from the order to the end.
        exit_code: None where it was not begun or a signal ended it.
    """

    status: Status
    stdout: str = ""
    stderr: str = ""
    seconds: float = 0.0
    exit_code: int | None = None


class ProgramCase(msgspec.Struct, frozen=True):
    """One test of a program: the expression that is evaluated after it ran, and the value that it should have.

    Numbers, text, bytes, booleans, None, and lists, tuples, sets and dictionaries of these; the type counts, too.
    """

    call: str
    expected: object


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """How a program did in its tests.

    Attributes:
        outcome: of the program and its tests together.
        passed: case by case; whatever was not reached did not pass.
    """

    outcome: ProgramOutcome
    passed: tuple[bool, ...]

    @property
    def ratio(self) -> float:
        """The share of cases that passed, 0 without cases."""
        return sum(self.passed) / len(self.passed) if self.passed else 0.0
