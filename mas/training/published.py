"""What the folder of a published team says of itself, `published.json`: its format, its base, its files by hash.

An export writes it, a download is checked against it, and adapters are used only on the base that it names.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from mas.core.errors import CheckpointError, RunDirectoryError

if TYPE_CHECKING:  # loads torch, which who only checks a folder does without
    from mas.serving.model import BaseModel

PUBLISHED = "published.json"
FORMAT = 1
"""Raised whenever the layout of a published folder changes."""


class PublishedBase(msgspec.Struct, frozen=True, kw_only=True):
    """The base that adapters were trained on.

    Attributes:
        name: a hub id, or the last part of a directory's path. The tiny base's ends with a hash of what makes it.
        revision: the commit of the hub's repository; None: not known.
        weights: see `weights_digest`; None: only the name is compared.
    """

    name: str
    revision: str | None = None
    weights: str | None = None


class Published(msgspec.Struct, frozen=True, kw_only=True):
    """`mas`: the version that wrote it. `base` None: no adapter was trained. `files`: relative name -> SHA-256."""

    format: int
    mas: str
    files: Mapping[str, str]
    base: PublishedBase | None = None


def read_published(run: Path) -> Published | None:
    """What the folder says of itself; None: it is a run directory, which was not published.

    Raises:
        RunDirectoryError: the file cannot be read.
    """
    try:
        return msgspec.json.decode((run / PUBLISHED).read_bytes(), type=Published)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise RunDirectoryError(f"{run / PUBLISHED} cannot be read: {error}") from error


def weights_digest(folder: Path) -> str:
    """SHA-256 of the weights in a model directory, of the names and contents of all `*.safetensors`."""
    found = hashlib.sha256()
    for path in sorted(folder.glob("*.safetensors")):
        with path.open("rb") as content:
            found.update(f"{path.name} {hashlib.file_digest(content, 'sha256').hexdigest()}\n".encode())
    return found.hexdigest()


def check_base(run: Path, base: "BaseModel") -> None:
    """Refuse to put the adapters of a published team on another base than theirs; other runs are not looked at.

    Raises:
        CheckpointError: another name, or other weights of the same name.
        RunDirectoryError: see `read_published`.
    """
    published = read_published(run)
    made_for = None if published is None else published.base
    if made_for is None:
        return
    if made_for.weights is not None and Path(base.name).is_dir():
        if weights_digest(Path(base.name)) != made_for.weights:
            raise CheckpointError(
                f"the adapters of {run} were trained on {made_for.name}, and {base.name} has other weights: name the "
                "directory of that model with model.path=DIR"
            )
    elif Path(made_for.name).name not in (Path(base.name).name, Path(base.origin.name).name):
        raise CheckpointError(
            f"the adapters of {run} were trained on {made_for.name}, this base is {Path(base.name).name}: name that "
            "model with model.path=; a tiny base has another name where mas or torch make another one"
        )
