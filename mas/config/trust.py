"""Which servers, models, code and files a stored run may use: those that the user has named.

Allowed is what the same command line sets, what stands in the user's file of trusted lines (`trusted_path`), and, with
`--trust`, all that the stored files name. Training adds what its configuration names to that file, unless it was read
from a run directory.
"""

import fcntl
import os
import re
import shlex
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType

from mas.config.access import KINDS, Access, Kind, accesses_of, is_inside, is_of_mas, links_of, scalars, stored_classes
from mas.config.options import Config
from mas.config.plain_values import literal
from mas.core.errors import TrustError

_trusts_all: ContextVar[bool] = ContextVar("mas_trusts_all", default=False)
_ADDRESS = re.compile(r"https?://[\w./:-]*[\w/]", re.ASCII)
_HEAD = "# What runs may use, a line each. `mas train` adds what it was started with; delete what you do not trust.\n"


def trusted_path() -> Path:
    """The user's file of allowed accesses: `mas/trusted.txt` under `$XDG_CONFIG_HOME`, or under `~/.config`."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "mas" / "trusted.txt"


def set_trust(everything: bool) -> None:
    """Allow all that stored files name from here on (`--trust`), or only what the user has named."""
    _trusts_all.set(everything)


def trusts_all() -> bool:
    """Whether all that stored files name is allowed here (`--trust`)."""
    return _trusts_all.get()


@contextmanager
def trusting(everything: bool = True) -> Iterator[None]:
    """Allow in this block all that stored files name, as `--trust` does for a command.

        with mas.trusting():
            print(mas.Run("runs/theirs").play())

    Args:
        everything: False: only what the user has named is allowed in the block.
    """
    before = _trusts_all.set(everything)
    try:
        yield
    finally:
        _trusts_all.reset(before)


def check_stored(config: Config, run: Path, named: Mapping[str, object], uses: Collection[Kind] = KINDS) -> None:
    """Refuse a stored run that names what the user has not.

    Args:
        config: with the command line's values over the stored ones.
        named: dotted keys that the command line sets, with their values.
        uses: kinds of accesses that the command makes; the others are not looked at.

    Raises:
        TrustError: says what the run names, and how to allow it.
        ConfigError: an opponent's source that cannot be read.
        RunDirectoryError: its team cannot be read, or it holds something that is no file.
    """
    found = accesses_of(config, run)
    team = config.algorithm.team
    if not {"code", "file", "server"}.isdisjoint(uses) and team.endswith((".yaml", ".yml")) and is_inside(team, run):
        found += [one for one in stored_classes(Path(team)) if not is_of_mas(one)]
    used = [access for access in found if access.kind in uses]
    check_accesses([*links_of(run), *used], f"run directory {run}", named)


def check_links(run: Path) -> None:
    """Refuse a run directory with symbolic links that lead out of it, which the user has not allowed.

    Raises:
        TrustError, RunDirectoryError: as `check_stored`.
    """
    check_accesses(links_of(run), f"run directory {run}")


def check_accesses(found: Sequence[Access], source: str, named: Mapping[str, object] = MappingProxyType({})) -> None:
    """Refuse accesses that the user has not named.

    Args:
        source: what names them, such as `run directory runs/x`.
        named: dotted keys that the command line sets, with their values.

    Raises:
        TrustError: says which they are, and how to allow them.
    """
    if _trusts_all.get() or not found:
        return
    known = _trusted()
    values = {key: value for prefix, whole in named.items() for key, value in scalars(whole, prefix)}
    missing = [access for access in found if access.what not in known and not _is_named(access, values)]
    if not missing:
        return
    lines = "".join(f"\n  {_shown(line)}" for line in dict.fromkeys(f"{one.what}   ({one.where})" for one in missing))
    words = (f"{key}={_value(value)}" for one in missing for key, value in one.named_by.items())
    said = " ".join(_shown(shlex.quote(word)) for word in words)
    by_name = f"name it on this command line ({said}), " if all(one.named_by for one in missing) else ""
    raise TrustError(
        f"{_shown(source)} wants to:{lines}\n"
        f"You have not allowed this. If you made these files or know who did, {by_name}"
        f"add --trust (in Python: with mas.trusting():), or add what you allow to {trusted_path()}, a line each"
    )


def remember(found: Sequence[Access]) -> None:
    """Add accesses to the user's file, so that later commands need not name them again; nothing while all is allowed.

    Raises:
        OSError: the file cannot be written.
    """
    if _trusts_all.get() or not found or {access.what for access in found} <= _trusted():
        return
    path = trusted_path()
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        known = _trusted()
        file.write("" if path.stat().st_size else _HEAD)
        file.writelines(f"{what}\n" for what in dict.fromkeys(one.what for one in found) if what not in known)


def _trusted() -> set[str]:
    try:
        return set(trusted_path().read_text(encoding="utf-8").splitlines())
    except OSError:
        return set()
    except UnicodeDecodeError as error:
        raise TrustError(f"{trusted_path()} is no text: {error}. Restore or delete it") from error


def _is_named(access: Access, named: Mapping[str, object]) -> bool:
    """Whether every value that makes the access was said, and not only a key above it or another value."""
    wanted = [pair for key, value in access.named_by.items() for pair in scalars(value, key)]
    return bool(wanted) and all(key in named and _plainly(named[key]) == _plainly(value) for key, value in wanted)


def _plainly(value: object) -> object:
    """An address without the slash that ends it: options leave it out."""
    return value.rstrip("/") if isinstance(value, str) else value


def _value(value: object) -> str:
    """A value as the command line takes it; addresses without quotes, which a shell would need quotes around."""
    return value if isinstance(value, str) and _ADDRESS.fullmatch(value) else literal(value)


def _shown(text: str) -> str:
    """One line: what is stored can neither break it nor steer the terminal."""
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)
