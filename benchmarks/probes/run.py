"""Running `mas bench probes`: every probe of every framework in a process of its own, one after the other."""

import asyncio
import json
import os
import platform
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec

import mas
from benchmarks.probes.child import MARK
from benchmarks.probes.judge import Kind
from benchmarks.probes.options import ProbesBench
from benchmarks.probes.shapes import PROBES
from mas.core.errors import RunDirectoryError, RunError
from mas.observe.files import write_bytes_atomic

LIMIT_S = 120.0
"""Seconds for one process; importing the largest framework takes most of half a minute."""

WANTED: dict[str, Kind] = {
    "unreachable": "refused at build",
    "endless": "refused at build",
    "untaken": "right",
    "depths": "right",
    "slow": "right",
    "route": "refused at build",
    "type": "refused at build",
    "failing": "right",
}
"""What mas promises of each probe."""


class Cell(msgspec.Struct, frozen=True, kw_only=True):
    """One probe of one system."""

    system: str
    probe: str
    kind: Kind
    evidence: str


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """All that was found.

    Attributes:
        python: its version, here; environments of their own may have another.
        versions: system -> version; `absent`: system -> why it could not be probed.
        date: when it ended, in UTC.
    """

    python: str
    versions: dict[str, str]
    absent: dict[str, str]
    cells: tuple[Cell, ...]
    date: str

    @property
    def exit_code(self) -> int:
        """1 where mas does not do what it promises, else 0."""
        own = [cell for cell in self.cells if cell.system == "mas"]
        return 0 if all(cell.kind == WANTED[cell.probe] for cell in own) else 1


async def run_probes(options: ProbesBench, tell: Callable[[str], None]) -> Report:
    """Probe every system that is there.

    Raises:
        RunError: a probe broke, or ran for longer than `LIMIT_S`: it says nothing about the framework.
    """
    cells, versions, absent = [], {}, {}
    for system in options.systems:
        for probe in PROBES:
            found = await _probe(options.python(system), system, probe)
            if "absent" in found:
                absent[system] = found["absent"]
                tell(f"{system}: {found['absent']}")
                break
            versions[system] = found.pop("version")
            cells.append(msgspec.convert({"system": system, "probe": probe, **found}, Cell))
            tell(f"{system}, {probe}: {found['kind']}")
    return Report(
        python=platform.python_version(),
        versions=versions,
        absent=absent,
        cells=tuple(cells),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
    )


async def _probe(python: str, system: str, probe: str) -> dict[str, str]:
    words = (python, "-m", "benchmarks.probes.child", system, probe)
    with TemporaryDirectory(prefix="mas-probe-") as folder:
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *words, cwd=folder, env=_environment(folder), stdout=pipe, stderr=pipe
        )
        try:
            async with asyncio.timeout(LIMIT_S):
                out, err = await process.communicate()
        except TimeoutError:
            raise RunError(f"probe {probe!r} of {system!r} was not over after {LIMIT_S:.0f} s") from None
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
    lines = [line for line in out.decode(errors="replace").splitlines() if line.startswith(MARK)]
    if len(lines) != 1:
        raise RunError(f"probe {probe!r} of {system!r} broke: {err.decode(errors='replace')[-500:]}")
    found: dict[str, str] = json.loads(lines[0].removeprefix(MARK))
    return found


def _environment(home: str) -> Mapping[str, str]:
    """This process's variables, with mas to be found and a home that nobody keeps."""
    root = Path(mas.__file__).parents[1]
    return os.environ | {"PYTHONPATH": str(root), "HOME": home, "XDG_DATA_HOME": home}


def write_report(path: Path, report: Report) -> None:
    """Write the report as JSON, whole or not at all.

    Raises:
        RunDirectoryError: it cannot be written.
    """
    try:
        write_bytes_atomic(path, msgspec.json.format(msgspec.json.encode(report), indent=1) + b"\n")
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be written: {error.strerror}") from error
