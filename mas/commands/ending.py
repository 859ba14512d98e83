"""How a command of `mas` ends: its exit code, and the one line that says what went wrong."""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from io import TextIOWrapper

from rich.console import Console
from rich.text import Text

from mas.core.errors import (
    CallExpired,
    CallFailed,
    EngineLost,
    EnvironmentFault,
    Halted,
    MasError,
    RewardError,
    TrainingError,
    WorkerLost,
)
from mas.core.printable import printable

_FAILED = (TrainingError, EngineLost, EnvironmentFault, RewardError, WorkerLost, CallFailed, CallExpired)
"""What ends a command that was asked for the right thing: exit code 1. Other errors are wrong input: 2."""
_STOPPED = 130


def run_to_its_end(command: Callable[[], object]) -> int:
    """Run a command; its exit code.

    An error made on purpose, or of the environment (a full disk, a file that may not be read), is one message and 2, or
    1 where the work itself failed. A stop is 130, or 128 and the number of the signal.
    """
    _open_standard_streams()
    with _signals_as_interrupts() as signals:
        try:
            code = _exit_code(command)
        except KeyboardInterrupt:
            code = _STOPPED
        except Halted as stopped:
            code = _told(f"stopped: {stopped}", _STOPPED)
        except MasError as error:
            code = _told(f"error: {error}", 1 if isinstance(error, _FAILED) else 2)
        except (OSError, ExceptionGroup) as error:
            code = _of_environment(error)
    return 128 + signals[0] if signals and code == _STOPPED else code


def _open_standard_streams() -> None:
    """Open what was closed at the start, as by `<&-`: the next file, such as a database, would get that number, and
    with it what libraries print."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)
    if sys.stdin is None:
        sys.stdin = open(0, closefd=False)  # noqa: SIM115 - a descriptor, for the whole command


@contextmanager
def _signals_as_interrupts() -> Iterator[list[int]]:
    """In this block SIGTERM, and SIGHUP of a terminal that is closed, end the command as Ctrl-C does: with the
    processes and folders that it has made. One that is ignored, as by `nohup`, stays so. Yields the
    numbers of the signals that came."""
    came: list[int] = []

    def interrupt(number: int, frame: object) -> None:
        came.append(number)
        signal.raise_signal(signal.SIGINT)

    numbers = [one for one in (signal.SIGTERM, signal.SIGHUP) if signal.getsignal(one) is signal.SIG_DFL]
    for number in numbers:
        signal.signal(number, interrupt)
    try:
        yield came
    finally:
        for number in numbers:
            signal.signal(number, signal.SIG_DFL)


def _exit_code(command: Callable[[], object]) -> int:
    """Run the command until all that it prints is written."""
    if isinstance(sys.stdout, TextIOWrapper) and sys.stdout.errors == "strict":
        sys.stdout.reconfigure(errors="backslashreplace")  # a terminal that lacks a character ends no training
    try:
        command()
    except SystemExit as ended:
        if isinstance(ended.__context__, BrokenPipeError):  # so Rich and Typer end it
            raise ended.__context__ from None
        return ended.code if isinstance(ended.code, int) else bool(ended.code)
    finally:
        if sys.stdout is not None:  # it was closed at the start
            sys.stdout.flush()
    return 0


def _of_environment(error: Exception) -> int:
    """Tell what the operating system refused; other errors are raised again."""
    cause = error
    while isinstance(cause, ExceptionGroup):
        cause = cause.exceptions[0]
    if not isinstance(cause, OSError):
        raise error
    with suppress(OSError, AttributeError):  # what is not written by now is not when Python ends, either
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    if isinstance(cause, BrokenPipeError):  # the reader has closed its end, as `head` does
        return 128 + signal.SIGPIPE
    place = "" if cause.filename is None else f"{os.fsdecode(cause.filename)}: "
    return _told(f"error: {place}{cause.strerror or cause}. Change that, then give the same command again", 2)


def _told(text: str, code: int) -> int:
    """Print how the command ended on standard error, where that is possible; its exit code."""
    style = "red" if text.startswith("error") else ""
    with suppress(OSError, SystemExit):  # Rich exits where standard error is closed
        Console(stderr=True).print(Text(printable(text), style=style), soft_wrap=True)
    return code
