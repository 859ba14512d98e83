"""What this machine offers: a folder for what takes long to make and can be made again, and free memory.

Memory is that of the machine, or of the control group that this process is in.
"""

import os
from pathlib import Path


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
