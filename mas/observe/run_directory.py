"""The directory of one training run, and the lock that keeps a second process out of it.

    <path>/
    ├── config.yaml      the configuration; compared on resume
    ├── metrics.jsonl    one line per step
    ├── samples.jsonl    conversations, each with its step
    ├── team.yaml        the team, as training wrote it down
    ├── turns/           all turns of some steps; only with train.record_every
    ├── checkpoints/     one directory per checkpoint
    ├── tensorboard/     event files
    ├── sinks/           what sinks were sent, and stores of local ones; only with train.sinks
    ├── cluster.json     what its processes do; only with workers or batches in flight
    ├── tool_calls.sqlite  what came of calls of tools; only of teams that have some
    └── spans.jsonl      what was traced; only where something is

The lock is `flock` on `.lock`: POSIX only, and the kernel releases it when the process dies.
"""

import errno
import fcntl
import os
import shutil
from collections.abc import Collection, Mapping
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from mas.config.plain_values import read_stored
from mas.config.trust import check_links
from mas.core.errors import ConfigError, RunDirectoryError
from mas.core.naming import did_you_mean
from mas.observe.files import remove_leftovers, write_text_atomic
from mas.observe.turn_records import TURNS

TOOL_CALLS = "tool_calls.sqlite"
_MOST_DIFFERENCES = 12
_ABSENT = object()


class RunDirectory:
    """One open run directory; `open` makes or resumes it, `close` releases its lock.

    Attributes:
        path: the directory.
        config_path, metrics_path, samples_path, checkpoints, tensorboard: its files and folders; all exist.
        is_resumed: whether it held a run before.
    """

    def __init__(self, path: Path, lock: int, config: str, *, is_resumed: bool, parents: Collection[Path] = ()) -> None:
        self.path, self._config = path, config
        self._made_parents = tuple(parents)
        self.is_resumed = is_resumed
        self.config_path = path / "config.yaml"
        self.metrics_path = path / "metrics.jsonl"
        self.samples_path = path / "samples.jsonl"
        self.checkpoints = path / "checkpoints"
        self.tensorboard = path / "tensorboard"
        self._lock: int | None = lock

    @classmethod
    def open(
        cls,
        path: Path,
        config: Mapping[str, Any],
        *,
        resume: bool,
        may_differ: Collection[str] = (),
        usual: Mapping[str, Any] = MappingProxyType({}),
    ) -> "RunDirectory":
        """Make a new run directory, or take up an old one.

        Args:
            path: the directory; missing parents are made. A new run needs a missing or empty one.
            config: nested plain values, such as `model_dump(mode="json")`.
            resume: go on with the run that is there; there must be one.
            may_differ: dotted keys that may change on resume, with all below them, such as the number of steps;
                `write_config` writes the new values, once the start is not refused any more.
            usual: what keys mean that the run does not have, since they came later.

        Raises:
            RunDirectoryError: the path is a file or not writable, another process holds it, it holds something and
                `resume` is False, or it holds no run or one with another configuration and `resume` is True.
            ConfigError: the configuration holds what YAML cannot.
            TrustError: a link in it leads out of it, and the user has not allowed that.
        """
        text = _as_yaml(config)
        _check_content(path, resume=resume)
        if resume:
            check_links(path)
        parents = [one for one in path.parents if not one.exists()]  # the nearest first
        lock = _locked(path)
        try:
            _check_content(path, resume=resume)
            run = cls(path, lock, text, is_resumed=resume, parents=parents)
            if resume:
                _check_config(run.config_path, yaml.safe_load(text), may_differ, usual)
            run._create()
        except OSError as error:
            os.close(lock)
            raise _not_writable(path, error) from error
        except BaseException:
            os.close(lock)
            raise
        return run

    @staticmethod
    def check(path: Path, *, resume: bool) -> None:
        """Try, before what takes long, whether `open` could use the path; leaves nothing behind.

        Raises:
            RunDirectoryError: as `open`, for what the path is and holds.
        """
        _check_content(path, resume=resume)
        made: list[Path] = []
        try:
            for folder in reversed([one for one in (path, *path.parents) if not one.exists()]):
                with suppress(FileExistsError):  # another process was faster
                    folder.mkdir()
                    made.append(folder)
            if not os.access(path, os.W_OK | os.X_OK):
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        except OSError as error:
            raise _not_writable(path, error) from error
        finally:
            for folder in reversed(made):
                with suppress(OSError):
                    folder.rmdir()

    @staticmethod
    def holds_run(path: Path) -> bool:
        """Whether there is a run to go on with.

        Raises:
            RunDirectoryError: the path cannot be looked at.
        """
        try:
            return (path / "config.yaml").is_file()
        except OSError as error:
            raise _not_writable(path, error) from error

    def close(self) -> None:
        """Release the lock, also for children that inherited it by a fork; a second call does nothing."""
        if self._lock is not None:
            fcntl.flock(self._lock, fcntl.LOCK_UN)
            os.close(self._lock)
            self._lock = None

    @property
    def has_metrics(self) -> bool:
        return self.metrics_path.is_file() and self.metrics_path.stat().st_size > 0

    def write_config(self) -> None:
        """Write `config.yaml` with what it was opened with; `open` has done so where it made a new run."""
        write_text_atomic(self.config_path, self._config)

    def discard(self) -> None:
        """Remove what a new run has made, also its directory and new parents where nothing else is in them; what cannot
        be removed stays."""
        for folder in (self.checkpoints, self.tensorboard, *(self.path / name for name in ("workers", "sinks", TURNS))):
            shutil.rmtree(folder, ignore_errors=True)
        files = ("config.yaml", "team.yaml", "metrics.jsonl", "samples.jsonl", "spans.jsonl", "cluster.json", ".lock")
        for name in (*files, TOOL_CALLS):
            with suppress(OSError):
                (self.path / name).unlink()
        with suppress(OSError):
            for folder in (self.path, *self._made_parents):
                folder.rmdir()

    def __enter__(self) -> "RunDirectory":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _create(self) -> None:
        remove_leftovers(self.path)
        if not self.is_resumed:
            self.write_config()
        for folder in (self.checkpoints, self.tensorboard):
            folder.mkdir(exist_ok=True)
            remove_leftovers(folder)
        for file in (self.metrics_path, self.samples_path):
            file.touch()


def _as_yaml(config: Mapping[str, Any]) -> str:
    try:
        return yaml.safe_dump(_plain(config), sort_keys=False, allow_unicode=True)
    except yaml.representer.RepresenterError as error:
        raise ConfigError(
            f"{error}. YAML cannot hold it: pass plain values, such as model_dump(mode='json')."
        ) from error


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list | tuple) else value


def _check_content(path: Path, *, resume: bool) -> None:
    try:
        content = {entry.name for entry in path.iterdir() if not entry.name.startswith(".")}
    except FileNotFoundError:
        content = set()
    except NotADirectoryError as error:
        raise RunDirectoryError(
            f"Run directory {path}: it, or one of its parents, is a file. Choose another path."
        ) from error
    except OSError as error:
        raise _not_writable(path, error) from error
    if resume and "config.yaml" not in content:
        raise RunDirectoryError(
            f"Run directory {path} holds no run to resume (no config.yaml). "
            "Check the path, or train there anew without resume=True."
        )
    if content and not resume:
        listed = ", ".join(sorted(content)[:5])
        is_run = "config.yaml" in content
        goes_on = "Give the same command as its run's to go on with that, or" if is_run else "It holds no run:"
        raise RunDirectoryError(
            f"Run directory {path} is not empty (it holds {listed}). {goes_on} choose another run_dir for a new run."
        )


def _locked(path: Path) -> int:
    """Descriptor of the locked `.lock`, which holds the process id of its owner. Writing it proves write access."""
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
    try:
        path.mkdir(parents=True, exist_ok=True)
        try:
            lock = os.open(path / ".lock", flags, 0o644)
        except FileNotFoundError:  # another process tried the path, and took its trial back
            path.mkdir(parents=True, exist_ok=True)
            lock = os.open(path / ".lock", flags, 0o644)
    except OSError as error:
        raise _not_writable(path, error) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.ftruncate(lock, 0)
        os.pwrite(lock, f"{os.getpid()}\n".encode(), 0)
    except OSError as error:
        owner = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        if error.errno not in (errno.EAGAIN, errno.EACCES):
            raise _not_writable(path, error) from error
        raise RunDirectoryError(
            f"Run directory {path} is in use by process {owner}. "
            "Wait for it or stop it, or choose another directory for this run."
        ) from error
    return lock


def _not_writable(path: Path, error: OSError) -> RunDirectoryError:
    return RunDirectoryError(
        f"Run directory {path} cannot be written: {error.strerror or error}. "
        "Choose a directory that you may write to, on a file system with space left."
    )


def _check_config(path: Path, config: Mapping[str, Any], may_differ: Collection[str], usual: Mapping[str, Any]) -> None:
    try:
        stored = read_stored(path)
    except OSError as error:
        raise RunDirectoryError(f"{path} cannot be read: {error.strerror}") from error
    found = differences(stored, config, may_differ, usual)
    if not found:
        return
    listed = "\n".join(f"  {line}" for line in found[:_MOST_DIFFERENCES])
    more = f"\n  and {len(found) - _MOST_DIFFERENCES} more" if len(found) > _MOST_DIFFERENCES else ""
    raise RunDirectoryError(
        f"Run directory {path.parent} was made with another configuration:\n{listed}{more}\n"
        "Resume with the configuration it has, or choose another directory for a new run."
    )


def differences(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    may_differ: Collection[str] = (),
    usual: Mapping[str, Any] = MappingProxyType({}),
) -> list[str]:
    """One sentence per dotted key whose value is not the same in both; empty when there is none.

    A key that only `new` has was as `usual` has it.
    """
    before, after = _leaves(old), _leaves(new)
    before = {key: value for key, value in _leaves(usual).items() if key in after} | before
    only_old = before.keys() - after.keys()
    sentences = []
    for key in sorted(before.keys() | after.keys()):
        if any(key == free or key.startswith(f"{free}.") for free in may_differ):
            continue
        was, now = before.get(key, _ABSENT), after.get(key, _ABSENT)
        if now is _ABSENT:
            sentences.append(f"{key}: {was!r} there, not given now")
        elif was is _ABSENT:
            hint = f". {did_you_mean(key, only_old)}" if only_old else ""
            sentences.append(f"{key}: not there, {now!r} now{hint}")
        elif repr(was) != repr(now):
            sentences.append(f"{key}: {was!r} there, {now!r} now")
    return sentences


def _leaves(value: Any, prefix: str = "") -> dict[str, Any]:
    """Dotted keys to values; lists count as one value unless they hold mappings, whose keys get the index."""
    if isinstance(value, list) and any(isinstance(item, dict) for item in value):
        value = {str(index): item for index, item in enumerate(value)}
    if not isinstance(value, Mapping) or not value:
        return {prefix: value}
    leaves: dict[str, Any] = {}
    for key, item in value.items():
        leaves.update(_leaves(item, f"{prefix}.{key}" if prefix else str(key)))
    return leaves
