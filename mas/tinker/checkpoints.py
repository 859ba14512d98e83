"""Saved weights below one directory, by the path that clients name them with:
`tinker://MODEL/weights/NAME` (with the state of the optimiser) and `tinker://MODEL/sampler_weights/NAME`.

Each is a PEFT directory, `MODEL/KIND/NAME`, with `checkpoint.json` beside its weights. They stay when the server ends.
"""

import json
import re
import shutil
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from mas.core.errors import CheckpointError, RefusedRequest
from mas.observe.files import write_directory_atomic
from mas.serving.adapter_files import from_directory, to_files
from mas.serving.adapter_weights import AdapterWeights
from mas.serving.model import BaseModel
from mas.training.client_adapter import ClientAdapter

TRAINING, SAMPLER = "weights", "sampler_weights"
_PATH = re.compile(
    rf"tinker://([A-Za-z0-9][A-Za-z0-9:-]{{0,199}})/({TRAINING}|{SAMPLER})/([A-Za-z0-9_][\w.-]{{0,127}})", re.A
)
_META, _OPTIMISER = "checkpoint.json", "optimiser.safetensors"
_SHORTEST_S, _LONGEST_S = 3600, 10 * 366 * 86_400


@dataclass(frozen=True, slots=True)
class CheckpointPath:
    """`kind`: `TRAINING` or `SAMPLER`."""

    model: str
    kind: str
    name: str

    @classmethod
    def read(cls, text: str) -> "CheckpointPath":
        """Raises RefusedRequest for what is no such path, above all for one that leads elsewhere."""
        found = _PATH.fullmatch(text)
        if found is None:
            raise RefusedRequest(
                f"{text[:200]!r} is no path of saved weights: tinker://MODEL/{TRAINING}/NAME or "
                f"tinker://MODEL/{SAMPLER}/NAME, where NAME has up to 128 letters, digits, '_', '-' and '.'"
            )
        return cls(*found.groups())

    def __str__(self) -> str:
        return f"tinker://{self.model}/{self.kind}/{self.name}"


class CheckpointFolder:
    """All saved weights of a server, and of those that ran on the same directory before it."""

    def __init__(self, directory: Path, base: BaseModel) -> None:
        self.directory = directory
        self._base = base

    def save(
        self,
        path: CheckpointPath,
        adapter: ClientAdapter,
        *,
        ttl_s: int | None,
        overwrite: bool,
        metadata: Mapping[str, str] | None,
    ) -> None:
        """Write all of it or nothing.

        Args:
            ttl_s: seconds until it is deleted; None: it stays.

        Raises:
            RefusedRequest: there is one of that name, or `ttl_s` is impossible. CheckpointError: it cannot be written.
        """
        place = self._place(path)
        if ttl_s is not None and not _SHORTEST_S <= ttl_s <= _LONGEST_S:
            raise RefusedRequest(f"ttl_seconds is {ttl_s}; from {_SHORTEST_S} to {_LONGEST_S} is possible, or none")
        if not overwrite and self._meta(path) is not None:
            raise RefusedRequest(f"{path} exists: take another name, or overwrite=True where a state is saved")
        now = time.time()
        meta = {
            "path": str(path),
            "base": self._base.origin.name,
            "rank": adapter.weights.options.rank,
            "steps": adapter.steps,
            "created": now,
            "expires": None if ttl_s is None else now + ttl_s,
            "metadata": None if metadata is None else dict(metadata),
        }
        files = to_files(adapter.weights, self._base.origin) | {_META: json.dumps(meta, indent=1).encode()}
        if path.kind == TRAINING:
            files[_OPTIMISER] = adapter.optimiser_file()
        try:
            place.parent.mkdir(parents=True, exist_ok=True)
            write_directory_atomic(place, files)
        except OSError as error:
            raise CheckpointError(f"{path} cannot be written to {place}: {error.strerror or error}") from error

    def load(self, path: CheckpointPath, *, optimiser: bool = False) -> tuple[AdapterWeights, bytes | None]:
        """Read it again, with what `ClientAdapter.optimiser_file` wrote; None where that is not wanted.

        Raises:
            RefusedRequest: there is none, it was made for another base, or it has no optimiser's state.
            CheckpointError: it is damaged.
        """
        meta, place = self._found(path), self._place(path)
        if meta["base"] != self._base.origin.name:
            raise RefusedRequest(
                f"{path} was trained on {meta['base']!r}, and the base here is {self._base.origin.name!r}"
            )
        if optimiser and path.kind != TRAINING:
            raise RefusedRequest(f"{path} has no state of an optimiser: load weights alone, or a path of /{TRAINING}/")
        try:
            state = (place / _OPTIMISER).read_bytes() if optimiser else None
        except OSError as error:
            raise CheckpointError(f"{place / _OPTIMISER} cannot be read: {error}") from error
        return from_directory(place, self._base.bank), state

    def delete(self, path: CheckpointPath) -> None:
        """Raises RefusedRequest where there is none."""
        self._found(path)
        shutil.rmtree(self._place(path))

    def listed(self, model: str) -> list[dict[str, Any]]:
        """What a model has saved, as the SDK's `Checkpoint`."""
        found = []
        for path in self._paths(model):
            if (meta := self._meta(path)) is not None:
                size = sum(one.stat().st_size for one in self._place(path).iterdir())
                found.append(
                    {
                        "checkpoint_id": f"{path.kind}/{path.name}",
                        "checkpoint_type": "training" if path.kind == TRAINING else "sampler",
                        "time": _moment(meta["created"]),
                        "tinker_path": str(path),
                        "size_bytes": size,
                        "user_metadata": meta["metadata"],
                        "expires_at": None if meta["expires"] is None else _moment(meta["expires"]),
                    }
                )
        return sorted(found, key=lambda one: str(one["time"]))

    def _paths(self, model: str) -> Iterator[CheckpointPath]:
        for kind in (TRAINING, SAMPLER):
            text = f"tinker://{model}/{kind}/"
            folder = self._place(CheckpointPath.read(f"{text}any")).parent
            for place in folder.glob("*") if folder.is_dir() else ():
                if _PATH.fullmatch(text + place.name):
                    yield CheckpointPath(model, kind, place.name)

    def _found(self, path: CheckpointPath) -> dict[str, Any]:
        if (meta := self._meta(path)) is None:
            raise RefusedRequest(f"{path} is not saved here (any more)")
        return meta

    def _meta(self, path: CheckpointPath) -> dict[str, Any] | None:
        """None: there is none, or its time is over; it is deleted then.

        Raises:
            CheckpointError: it is damaged.
        """
        place = self._place(path) / _META
        try:
            meta: dict[str, Any] = json.loads(place.read_bytes())
            is_over = meta["expires"] is not None and meta["expires"] <= time.time()
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CheckpointError(f"{place} cannot be read: {error}") from error
        if is_over:
            shutil.rmtree(place.parent, ignore_errors=True)
            return None
        return meta

    def _place(self, path: CheckpointPath) -> Path:
        return self.directory / path.model.replace(":", "_") / path.kind / path.name


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
