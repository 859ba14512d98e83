"""The command `mas sandbox`: what mechanism works here, a file run in it, and how many programs it runs per second."""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Annotated

import typer

from mas.core.errors import SandboxError
from mas.core.printable import printable
from mas.sandbox.box import Sandbox
from mas.sandbox.mechanism import MECHANISMS, Mechanism, probe
from mas.sandbox.outcome import ProgramOutcome, SandboxLimits


def sandbox(
    file: Annotated[
        Path | None, typer.Argument(metavar="FILE", help="a Python program; without one, what works here is said")
    ] = None,
    time_s: Annotated[float, typer.Option("--time", min=0.01, max=3600, help="seconds that it may take")] = 5.0,
    memory: Annotated[int, typer.Option(min=64, help="MiB that it may take")] = 256,
    walls: Annotated[str, typer.Option(help=f"{' or '.join(MECHANISMS)}; default: the first that works")] = "",
    measure: Annotated[int, typer.Option(min=0, help="run so many trivial programs and say how many per second")] = 0,
) -> None:
    """Run an untrusted Python program, or say how this machine would."""
    mechanism = _mechanism(walls)
    source = None if file is None else _text(file)
    if source is None:
        finding = probe(mechanism)
        for name, reason in finding.refused.items():
            typer.echo(f"{name}\tno: {reason}")
        typer.echo(f"{finding.mechanism}\tworks: its self-test was passed")
    if measure:
        typer.echo(_measured(mechanism, measure))
    if source is not None:
        with Sandbox(SandboxLimits(time_s=time_s, memory_mib=memory), mechanism=mechanism) as box:
            outcome = box.run_now(source, _input())
        _show(outcome)


def _mechanism(name: str) -> Mechanism | None:
    for known in MECHANISMS:
        if name == known:
            return known
    if name:
        raise SandboxError(f"--walls {name}: no such mechanism; possible: {', '.join(MECHANISMS)}")
    return None


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise SandboxError(f"{file} cannot be read as a program: {error}. Give a file of Python in UTF-8.") from error


def _input() -> str:
    """What is left of standard input; nothing of a terminal, and where it is closed, which makes it None."""
    return "" if sys.stdin is None or sys.stdin.isatty() else sys.stdin.read()


def _show(outcome: ProgramOutcome) -> None:
    for stream, text in ((sys.stdout, outcome.stdout), (sys.stderr, outcome.stderr)):
        stream.write(printable(text) if stream.isatty() else text)  # echo would leave colours out of a file
        stream.flush()
    if outcome.status not in ("ok", "wrong"):
        typer.echo(f"{outcome.status} after {outcome.seconds:.2f} s", err=True)
    if outcome.status != "ok":
        raise typer.Exit(outcome.exit_code or 1)


def _measured(mechanism: Mechanism | None, number: int, places: int = 2) -> str:
    with Sandbox(places=places, mechanism=mechanism) as box, ThreadPoolExecutor(places) as pool:
        box.run_now("pass")
        began = time.perf_counter()
        outcomes = list(pool.map(lambda index: box.run_now(f"print({index})"), range(number)))
        seconds = time.perf_counter() - began
    wrong = sum(outcome.status != "ok" for outcome in outcomes)
    return f"{number / seconds:.0f} programs per second, {places} at a time; {wrong} of {number} did not end well"
