"""The walls around the server: namespaces of its own, and a root that holds Python's library and nothing else.

Nothing of the project, of anybody's home, of `/etc`, `/proc` or `/sys` is in it, and nothing in it can be written.
"""

import importlib
import os
from collections.abc import Iterable

from mas.sandbox.inside import kernel

SPACES = (
    kernel.NEW_USERS
    | kernel.NEW_MOUNTS
    | kernel.NEW_PROCESSES
    | kernel.NEW_NETWORK
    | kernel.NEW_IPC
    | kernel.NEW_HOST_NAME
    | kernel.NEW_CONTROL_GROUPS
)
WORK = "/tmp"
HOST_NAME = "sandbox"
NOBODY = 65534
"""Whom programs run as outside where root starts the sandbox: limits of processes do not hold for root."""

DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom")
FILES = ("/etc/ld.so.cache",)
LINKS = ("/lib", "/lib64")
_EXTENSIONS = ("_bz2", "_ctypes", "_decimal", "_hashlib", "_lzma", "_sqlite3", "_ssl", "_uuid", "pyexpat", "zlib")
_OLD = "/.old"
_OLD_TMP = "/tmp/.old"


def seen_directories() -> list[str]:
    """What programs see of this machine: the standard library, and where the shared libraries that it needs lie."""
    for name in _EXTENSIONS:
        try:
            importlib.import_module(name)
        except ImportError:
            continue
    with open("/proc/self/maps", encoding="utf-8") as maps:
        mapped = [line.rstrip("\n").partition("/") for line in maps]
    libraries = {os.path.dirname(slash + path) for _, slash, path in mapped if ".so" in os.path.basename(path)}
    wanted = {os.path.realpath(path) for path in (_standard_library(), *libraries, "/usr/share/zoneinfo")}
    return outermost(path for path in wanted if os.path.isdir(path))


def outermost(paths: Iterable[str]) -> list[str]:
    """The paths without those that lie below another of them."""
    found: list[str] = []
    for path in sorted(paths):
        if not any(path == above or path.startswith(f"{above}/") for above in found):
            found.append(path)
    return found


def user_maps() -> tuple[str, str, int]:
    """Who is who inside: the maps of users and groups, and as whom programs run there."""
    user, group = os.geteuid(), os.getegid()
    if user != 0:
        return f"0 {user} 1\n", f"0 {group} 1\n", 0
    both = f"0 0 1\n{NOBODY} {NOBODY} 1\n"
    return both, both, NOBODY


def build_root(directories: list[str]) -> None:
    """Make a root of these directories, the null devices and an empty `WORK`, and forget the old one."""
    os.umask(0o022)
    kernel.mount("none", "/", "", kernel.RECURSIVE | kernel.PRIVATE)
    kernel.mount("tmpfs", WORK, "tmpfs", kernel.NO_SET_USER_ID | kernel.NO_DEVICES, "size=1m,mode=755")
    links = {path: os.readlink(path) for path in LINKS if os.path.islink(path)}
    os.mkdir(_OLD_TMP)
    kernel.swap_root(WORK, _OLD_TMP)
    os.chdir("/")
    for path in directories:
        os.makedirs(path, exist_ok=True)
        kernel.mount(_OLD + path, path, "", kernel.BIND | kernel.RECURSIVE)
    for path in (*DEVICES, *(path for path in FILES if os.path.exists(_OLD + path))):
        os.makedirs(os.path.dirname(path), exist_ok=True)
        os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o644))
        kernel.mount(_OLD + path, path, "", kernel.BIND)
    for path, target in links.items():
        os.symlink(target, path)
    for path in third_parties():
        kernel.mount("tmpfs", path, "tmpfs", kernel.NO_SET_USER_ID | kernel.NO_DEVICES, "size=4k,mode=755")
    os.makedirs(WORK, exist_ok=True)
    kernel.unmount(_OLD)
    os.rmdir(_OLD)
    kernel.lock_mounts()


def _standard_library() -> str:
    return os.path.dirname(os.path.realpath(os.__file__))


def third_parties() -> list[str]:
    """Directories in which packages lie that do not come with Python, the project itself perhaps among them."""
    library = _standard_library()
    found = [f"{library}/site-packages", f"{library}/dist-packages"]
    return [path for path in found if os.path.isdir(path)]
