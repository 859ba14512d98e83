"""Payloads too long for a broker, in a place that all processes of a bus reach, each under the hash of its bytes.

A name is worked out from the content and never taken from the wire unchecked; what is read must have that hash. Calls
block: make them in a thread. Leaves out on purpose: encryption; who can read the place can read the payloads.
"""

import hashlib
import os
import re
import secrets
import threading
import time
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import fsspec
from fsspec.core import split_protocol, url_to_fs
from fsspec.implementations.dirfs import DirFileSystem

from mas.core.errors import ConfigError, NoPayload

_NAME = re.compile(r"[0-9a-f]{64}")
_OURS = re.compile(r"[0-9a-f]{64}|\.[0-9a-f]{64}\.[0-9a-f]{16}")
_CLEANINGS = 10
"""How often, in the time that a file is kept, old ones are looked for."""


class BlobStore:
    """A directory, or whatever else fsspec opens, that holds contents under their SHA-256.

    A directory is made with mode 0700 and files with 0600; one that is there already keeps its mode.

    Args:
        url: `file:///shared/payloads`, `s3://bucket/payloads`, …; every process reaches the same place by its own URL.
        keep_s: seconds after which a content may be removed; writers do that.

    Raises:
        ConfigError: the URL names no kind of place that can be opened here, no place, or holds a password.
    """

    def __init__(self, url: str, *, keep_s: float) -> None:
        protocol, path = split_protocol(url)
        self._url = url
        self._is_local = protocol in ("file", "local")
        self._keep_s = keep_s
        self._cleaned_at = -float("inf")
        self._cleaning = threading.Lock()
        _check(url, protocol, path, is_local=self._is_local)

    def put(self, content: bytes) -> str:
        """Store a content and return its name. A second time renews its age, and mends a file that was changed.

        Raises:
            NoPayload: it cannot be written.
        """
        name = hashlib.sha256(content).hexdigest()
        try:
            if self._is_local:
                self._write(name, content)
            else:
                self._files.pipe_file(name, content)
        except Exception as error:  # each kind of place fails in its own way
            raise NoPayload(f"a payload of {len(content):,} bytes cannot be stored: {_reason(error)}") from error
        self._clean_if_due()
        return name

    def get(self, name: str, size: int) -> bytes:
        """The content of a name; never more than `size` bytes are read, and one more.

        Raises:
            NoPayload: the name is no hash, there is no such content, it cannot be read, or was changed.
        """
        if not _NAME.fullmatch(name):
            raise NoPayload(f"{name[:80]!r} is no SHA-256 in 64 hexadecimal digits: nothing is read")
        try:
            content: bytes = self._files.cat_file(name, start=0, end=size + 1)
        except FileNotFoundError:
            raise NoPayload(
                f"the store of the receiver has no {name}: it was removed, or the sender has another store. Payloads "
                f"are kept for {self._keep_s:g} s (keep_s)"
            ) from None
        except Exception as error:
            raise NoPayload(f"the stored payload {name} cannot be read: {_reason(error)}") from error
        if len(content) != size:
            raise NoPayload(f"the stored payload {name} is not the {size:,} bytes long that were put there")
        if hashlib.sha256(content).hexdigest() != name:
            raise NoPayload(f"the stored payload {name} was changed: its hash is another one")
        return content

    def clean(self) -> int:
        """Remove contents older than `keep_s`, and what interrupted writers left; how many. Other files stay."""
        removed, limit = 0, time.time() - self._keep_s
        for entry in self._files.ls("", detail=True):
            name = str(entry["name"])
            if _OURS.fullmatch(name) and self._written_at(name, entry) < limit:
                try:
                    self._files.rm_file(name)
                except FileNotFoundError:  # another writer was first
                    continue
                removed += 1
        return removed

    @cached_property
    def _files(self) -> Any:
        """The place, in which names are paths."""
        files, root = url_to_fs(self._url, use_listings_cache=False)  # others write there, too
        return DirFileSystem(root, files)

    def _write(self, name: str, content: bytes) -> None:
        """Under another name first: a reader never sees half a file."""
        root = Path(self._files.path)
        root.mkdir(mode=0o700, parents=True, exist_ok=True)
        unfinished = root / f".{name}.{secrets.token_hex(8)}"
        try:
            descriptor = os.open(unfinished, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                file.write(content)
            unfinished.replace(root / name)
        finally:
            unfinished.unlink(missing_ok=True)

    def _written_at(self, name: str, entry: dict[str, Any]) -> float:
        """Seconds since 1970."""
        mtime = entry.get("mtime")
        return float(mtime) if isinstance(mtime, int | float) else float(self._files.modified(name).timestamp())

    def _clean_if_due(self) -> None:
        with self._cleaning:
            now = time.monotonic()
            if now - self._cleaned_at < self._keep_s / _CLEANINGS:
                return
            self._cleaned_at = now
        try:
            self.clean()
        except Exception:  # noqa: BLE001 - what cannot be removed now costs room only, and the next writer tries again
            return


def _reason(error: Exception) -> str:
    """What failed, without where: errors travel to other processes, which need not know the place."""
    detail = error.strerror if isinstance(error, OSError) and error.strerror else "its cause says more"
    return f"{type(error).__name__}: {detail}"


def _check(url: str, protocol: str | None, path: str, *, is_local: bool) -> None:
    form = "write file:///DIRECTORY, or s3://BUCKET/PREFIX and the like"
    if protocol is None:
        raise ConfigError(f"the store {url!r} says no kind of place; {form}")
    if urlsplit(url).password is not None:
        raise ConfigError("the store's URL holds a password: leave it out and give it in the environment")
    if is_local and (not Path(path).is_absolute() or path == "/"):
        raise ConfigError(f"the store {url!r} names no directory by its whole path; {form}")
    if not path.strip("/"):
        raise ConfigError(f"the store {url!r} names no place; {form}")
    try:
        fsspec.get_filesystem_class(protocol)
    except (ValueError, ImportError) as error:
        raise ConfigError(f"the store {url!r} cannot be opened here: {error}") from None
