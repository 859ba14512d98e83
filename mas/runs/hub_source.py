"""Teams of a model hub as runs: `hub:ORG/NAME`, or `hub:ORG/NAME@REVISION` of a branch, a tag or a commit.

A repository may come from anybody, so it is files and nothing else: only those of a published team are downloaded,
into a folder beside the cache's, and only a folder that passed every check here gets its name in the cache. It is then
a run directory like any other, and what it names outside must be allowed (`mas.config.trust`). Code is refused even
with `--trust`. Whoever wants a team with code can download the repository by other means, and read it.
"""

import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path, PurePosixPath

import typer

from mas.core.errors import HubError
from mas.core.host import cache_directory
from mas.core.printable import printable
from mas.observe.files import is_relative, making_directory
from mas.runs.hub_client import COMMIT, REPOSITORY, asking, check_repository, open_hub
from mas.runs.hub_folder import check_folder

PREFIX = "hub:"
_SOURCE = re.compile(rf"hub:(?P<repository>{REPOSITORY})(?:@(?P<revision>[\w./-]+))?", re.ASCII)
_PATTERNS = ("*.json", "*.yaml", "*.safetensors", "*.md", "*.svg")
"""What is downloaded, if it also lies where a published team has it."""
_PLACE = re.compile(r"[\w][\w. -]*|adapters/[\w][\w. -]*/[\w][\w. -]*|experiences/[\w][\w. -]*")
_PICKLES = (".pkl", ".pickle", ".pt", ".pth", ".bin", ".ckpt", ".joblib", ".dill", ".npy", ".npz", ".h5")
_PROGRAMS = (".py", ".pyc", ".pyd", ".so", ".dll", ".dylib", ".sh", ".exe", ".whl")
"""Suffixes of pickles and programs. A published team has none, so a repository with one is not a team to play."""
_MOST_FILES = 2_000
_MOST_BYTES: Mapping[str, int] = {".safetensors": 8 * 2**30}
_MOST_TEXT = 16 * 2**20
_MOST_TOGETHER = 32 * 2**30
Note = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class HubSource:
    """`revision` None: the hub's default branch."""

    repository: str
    revision: str | None = None

    @classmethod
    def parse(cls, text: str) -> "HubSource | None":
        """None: it does not begin with `hub:`.

        Raises:
            HubError: it does, and is no source.
        """
        if not text.startswith(PREFIX):
            return None
        found = _SOURCE.fullmatch(text)
        revision = None if found is None else found["revision"]
        if found is None or (revision is not None and ".." in revision):
            raise HubError(f"{text!r}: write hub:ORG/NAME or hub:ORG/NAME@REVISION, such as hub:my-org/my-team@main")
        return cls(check_repository(found["repository"]), revision)

    def __str__(self) -> str:
        return f"{PREFIX}{self.repository}" + ("" if self.revision is None else f"@{self.revision}")

    def at(self, commit: str) -> "HubSource":
        """The same at a commit."""
        return HubSource(self.repository, commit)


def _told(text: str) -> None:
    typer.echo(printable(text), err=True)


def local_run(text: Path | str, note: Note = _told) -> Path:
    """The directory of a run: of `hub:ORG/NAME` the one in the cache, downloaded now unless it is there.

    Args:
        note: told which commit plays, and of a download.

    Raises:
        HubError: the repository cannot be downloaded, or holds no team that is safe to play.
    """
    source = HubSource.parse(str(text))
    return Path(text) if source is None else _held(source, note)


def _held(source: HubSource, note: Note) -> Path:
    folder = cache_directory() / "hub" / source.repository.replace("/", "--")
    revision = source.revision or ""
    commit = revision if COMMIT.fullmatch(revision) else _commit(source, folder)
    target, pinned = folder / commit, source.at(commit)
    if target.is_dir():
        note(f"{pinned} is in the cache")
        check_folder(target, str(pinned))
        return target
    try:
        with making_directory(target) as made:
            _download(pinned, made, note)
            check_folder(made, str(pinned))
    except OSError as error:
        raise HubError(f"{source}: the cache {folder} cannot be written: {error.strerror}") from error
    return target


def _commit(source: HubSource, folder: Path) -> str:
    """The commit that a revision is now."""
    held = sorted(path.name for path in folder.glob("*") if COMMIT.fullmatch(path.name))
    hint = f" (in the cache: {', '.join(str(source.at(commit)) for commit in held[:3])})" if held else ""
    with asking(f"{source} cannot be looked up{hint}"):
        commit = open_hub().model_info(source.repository, revision=source.revision).sha
    if commit is None or COMMIT.fullmatch(commit) is None:
        raise HubError(f"{source}: the hub names no commit, but {commit!r}")
    return commit


def _download(source: HubSource, folder: Path, note: Note) -> None:
    """Put the files of a published team into a folder, if the repository holds none that may not be there."""
    assert source.revision is not None
    with asking(f"{source} cannot be listed"):
        listed = open_hub().list_repo_tree(source.repository, recursive=True, revision=source.revision)
        files = ((entry.path, entry.size) for entry in listed if hasattr(entry, "size"))
        sizes = dict(islice(files, _MOST_FILES + 1))
    wanted = wanted_files(source, sizes)
    total = sum(wanted.values())
    note(f"{source}: downloading {len(wanted)} files, {total / 1e6:.1f} MB")
    with asking(f"{source} cannot be downloaded"):
        _fetch(source, folder, list(wanted), total)
    shutil.rmtree(folder / ".cache", ignore_errors=True)  # what the client keeps of a download
    for name, size in wanted.items():
        path = folder / name
        if path.is_symlink() or not path.is_file() or path.stat().st_size != size:
            raise HubError(f"{source}: {name!r} did not come as the hub lists it, a file of {size} bytes")


def wanted_files(source: HubSource, sizes: Mapping[str, int]) -> dict[str, int]:
    """Of all files of a repository those that are downloaded, with their sizes in bytes.

    Args:
        sizes: of all its files, as the hub lists them.

    Raises:
        HubError: a name that leads outside, a pickle or a program, or more than may be downloaded.
    """
    if len(sizes) > _MOST_FILES:
        raise HubError(f"{source} has more than {_MOST_FILES} files: it is no published team")
    wanted = {}
    for name, size in sizes.items():
        path = PurePosixPath(name)
        if not is_relative(name) or "\\" in name or not name.isprintable():
            raise HubError(f"{source} names a file outside of its folder, {name!r}: refused")
        if path.suffix.lower() in (*_PICKLES, *_PROGRAMS):
            raise HubError(
                f"{source} holds {name!r}, a pickle or a program, which could run code: refused. Teams are published "
                "as safetensors and text"
            )
        if not _PLACE.fullmatch(name) or f"*{path.suffix}" not in _PATTERNS:
            continue
        most = _MOST_BYTES.get(path.suffix, _MOST_TEXT)
        if type(size) is not int or not 0 <= size <= most:
            raise HubError(f"{source}: {name!r} has {size} bytes, and at most {most} are downloaded: refused")
        wanted[name] = size
    if sum(wanted.values()) > _MOST_TOGETHER:
        raise HubError(f"{source} has {sum(wanted.values())} bytes, and at most {_MOST_TOGETHER} are downloaded")
    return wanted


def _fetch(source: HubSource, folder: Path, names: list[str], total: int) -> None:
    """Download files; whatever the hub sends beyond what it listed ends it."""
    from huggingface_hub import snapshot_download
    from huggingface_hub.utils.tqdm import tqdm

    class Limited(tqdm):  # the client reports every piece to it before it is written
        received = 0

        def update(self, n: float | None = 1) -> bool | None:
            self.received += int(n or 0)
            if getattr(self, "unit", "B") == "B" and self.received > total:
                raise HubError(f"{source} sends more than the {total} bytes that it lists: refused")
            is_shown: bool | None = super().update(n)
            return is_shown

    api = open_hub()
    snapshot_download(
        source.repository,
        revision=source.revision,
        endpoint=api.endpoint,
        local_dir=folder,
        cache_dir=folder / ".cache",
        allow_patterns=names,
        tqdm_class=Limited,
        library_name="mas",
        max_workers=4,
    )
