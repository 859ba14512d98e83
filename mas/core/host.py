"""What this machine offers: a folder for what takes long to make and can be made again, free memory, and whether a
process still runs.

Memory is that of the machine, or of the control group that this process is in.
"""

import os
import platform
from pathlib import Path
from typing import Annotated

import msgspec


def cache_directory() -> Path:
    """`$MAS_CACHE`, or `mas` under `$XDG_CACHE_HOME` or `~/.cache`."""
    if "MAS_CACHE" in os.environ:
        return Path(os.environ["MAS_CACHE"])
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "mas"


_GIB = 2**30


def free_memory(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Bytes; None where it is not known, as on systems other than Linux.

    What the kernel can give back, such as cached files, counts as free.
    """
    found = [_of_machine(proc / "meminfo")]
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        lines = []
    for line in lines:
        _, kinds, path = line.split(":", 2)
        if kinds not in ("", "memory"):
            continue
        root = groups / kinds
        here = root / path.lstrip("/")
        folders = (one for one in (here, *here.parents) if one.is_relative_to(root))
        found += [_of_group(one, is_first=bool(kinds)) for one in folders]
    known = [one for one in found if one is not None]
    return max(min(known), 0) if known else None


def gib(count: float) -> str:
    """`1.5 GiB`; below a tenth of one in MiB."""
    return f"{count / _GIB:.1f} GiB" if count >= _GIB / 10 else f"{count / 2**20:.0f} MiB"


def _of_machine(path: Path) -> int | None:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return None
    return next((1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:")), None)


def _of_group(folder: Path, *, is_first: bool) -> int | None:
    """What a control group leaves, of version 1 or 2; None: it sets no limit."""
    limit, used = ("memory.limit_in_bytes", "memory.usage_in_bytes") if is_first else ("memory.max", "memory.current")
    try:
        most, taken = int((folder / limit).read_text()), int((folder / used).read_text())
        pairs = (line.split() for line in (folder / "memory.stat").read_text().splitlines())
        stat = {name: int(value) for name, value in pairs}
    except (OSError, ValueError):  # not there, or `max`
        return None
    files = stat.get("total_inactive_file" if is_first else "inactive_file", 0)
    return most - taken + files


class ProcessId(msgspec.Struct, frozen=True, kw_only=True):
    """A process of some machine. A number is given to another process later; number and start time together are not.

    Attributes:
        host: the machine's name.
        machine: tells machines, their restarts and containers apart; as far as the system says.
        started: in ticks of the kernel's clock; None: the system does not say, as others than Linux.
    """

    pid: Annotated[int, msgspec.Meta(ge=1, le=2**31 - 1)]
    host: str
    machine: str
    started: int | None


def this_process(proc: Path = Path("/proc")) -> ProcessId:
    """The process that calls this."""
    pid = os.getpid()
    stat = _process_stat(proc, pid)
    started = None if stat is None else stat[1]
    return ProcessId(pid=pid, host=platform.node(), machine=_machine(proc), started=started)


def is_running(process: ProcessId) -> bool | None:
    """Whether it still runs; None: that cannot be seen from this machine, container or start of the machine."""
    proc = Path("/proc")
    if process.machine != _machine(proc):
        return None
    try:
        os.kill(process.pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's
        pass
    stat = _process_stat(proc, process.pid)
    if stat is None or process.started is None:
        return True
    state, started = stat
    return state != "Z" and started == process.started


def _machine(proc: Path) -> str:
    try:
        boot = (proc / "sys" / "kernel" / "random" / "boot_id").read_text().strip()
        return f"{boot} {(proc / 'self' / 'ns' / 'pid').readlink()}"
    except OSError:
        return platform.node()


def _process_stat(proc: Path, pid: int) -> tuple[str, int] | None:
    """State and start time. The name between them may hold blanks and brackets."""
    try:
        fields = (proc / str(pid) / "stat").read_text(errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return fields[0], int(fields[19])
