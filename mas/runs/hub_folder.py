"""Whether a folder is a published team that is safe to play: looked at before it gets its place in the cache, and again
whenever it is played.

Everything in it is data. What its files name outside of it is left to `mas.config.trust`, but for what no published
team needs: code, programs, sinks, other runs, and absolute paths, which are refused whatever the user allows.
"""

import hashlib
import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from safetensors import SafetensorError, safe_open

from mas.config.access import TEAM_FILE, Access, accesses_of, is_of_mas, scalars, stored_classes
from mas.config.options import Config
from mas.config.stored_run import load_run_config
from mas.core.errors import HubError, MasError
from mas.core.version import VERSION
from mas.graph.load import load_team
from mas.training.published import FORMAT, PUBLISHED, Published, read_published
from mas.training.setup import trainable_adapters

LOOKS = ("README.md", "learning_curve.svg")
"""Files for people, which nothing reads."""
_NEVER = ("code", "sink", "opponent", "start")
_ADAPTER_FILES = ("adapter_config.json", "adapter_model.safetensors")


def check_folder(folder: Path, source: str) -> None:
    """Refuse a folder that is no whole published team, or that names what none may.

    Args:
        source: where it comes from, for errors.

    Raises:
        HubError: a link or another thing that is no file; a file that is missing, that nobody listed, or that is not
            what was published; a format of a later mas; code, a path outside, a run, a sink; an adapter of a trained
            role that is missing or no safetensors.
    """
    try:
        files = dict(_files(folder, source))
        published = read_published(folder)
        if published is None:
            raise HubError(f"{source} holds no team that mas published: it has no {PUBLISHED}")
        _check_files(files, published, source)
        config = load_run_config(folder, uses=())
        _check_names(config, folder, source)
        _check_learned(config, folder, source)
    except HubError:
        raise
    except MasError as error:
        told = str(error).replace(f"{folder}/", "").replace(str(folder), source)
        raise HubError(f"{source} cannot be played by mas {VERSION}: {told}") from None


def _files(folder: Path, source: str) -> Iterator[tuple[str, Path]]:
    for place, directories, names in os.walk(folder):
        for name in (*directories, *names):
            path = Path(place, name)
            mode, relative = path.lstat().st_mode, path.relative_to(folder).as_posix()
            if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode)):
                kind = "a symbolic link" if stat.S_ISLNK(mode) else "no file"
                raise HubError(f"{source}: {relative!r} is {kind}: refused. Delete {folder}, and it is downloaded anew")
            if stat.S_ISREG(mode):
                yield relative, path


def _check_files(files: Mapping[str, Path], published: Published, source: str) -> None:
    if published.format > FORMAT:
        raise HubError(
            f"{source} was published by mas {published.mas} in a format that mas {VERSION} cannot read: update mas"
        )
    there = set(files) - {PUBLISHED, *LOOKS}
    if missing := sorted(set(published.files) - there):
        raise HubError(f"{source} is not whole: {missing[0]!r} is missing. Publish it again")
    if unlisted := sorted(there - set(published.files)):
        raise HubError(f"{source}: {unlisted[0]!r} is not listed in {PUBLISHED}: refused. Publish it again")
    for name, wanted in published.files.items():
        with files[name].open("rb") as content:
            if hashlib.file_digest(content, "sha256").hexdigest() != wanted:
                raise HubError(f"{source}: {name!r} is not what was published (another SHA-256): refused")


def _check_names(config: Config, folder: Path, source: str) -> None:
    """Refuse what no published team names, whatever the user allows."""
    team = folder / TEAM_FILE
    if config.algorithm.team != str(team):
        raise HubError(f"{source}: algorithm.team is not the {TEAM_FILE} of its folder: refused")
    for access in (*accesses_of(config, folder), *stored_classes(team)):
        if (access.kind in _NEVER and not is_of_mas(access)) or _leads_outside(access):
            raise HubError(
                f"{source} wants to {access.what} ({access.where}), which no team from a hub may, even with --trust: "
                "download the repository by other means, read it, and name its folder"
            )


def _leads_outside(access: Access) -> bool:
    """Whether it names a path that is no bare name: absolute, of the home directory, upwards, or of another scheme."""
    if access.kind not in ("file", "model"):
        return False
    texts = [value for key, named in access.named_by.items() for _, value in scalars(named, key)]
    return not texts or any(is_outside(text) for text in texts if isinstance(text, str))


def is_outside(path: str) -> bool:
    """Whether a text names a place that other machines do not have, or should not use: no relative path."""
    is_absolute = path.startswith(("/", "~", "\\")) or path[1:3] in (":\\", ":/")
    return is_absolute or "://" in path or "\0" in path or ".." in path.replace("\\", "/").split("/")


def _check_learned(config: Config, folder: Path, source: str) -> None:
    team = load_team(folder / TEAM_FILE)
    if config.algorithm.is_training_free:
        roles = trainable_adapters(team, "per_role")
        if missing := [role for role in roles if not (folder / "experiences" / f"{role}.json").is_file()]:
            raise HubError(f"{source} has no experiences of the trained role {missing[0]!r}: publish it again")
        return
    for role, adapter in trainable_adapters(team, config.algorithm.policy).items():
        for name in _ADAPTER_FILES:
            if not (folder / "adapters" / adapter / name).is_file():
                raise HubError(f"{source} has no adapter {adapter!r} of the trained role {role!r} ({name} is missing)")
    for path in sorted((folder / "adapters").glob(f"*/{_ADAPTER_FILES[1]}")):
        try:
            with safe_open(path, framework="np") as tensors:
                tensors.keys()
        except (SafetensorError, OSError) as error:
            name = path.relative_to(folder).as_posix()
            raise HubError(f"{source}: {name!r} is no safetensors file, whatever its name says: {error}") from None
