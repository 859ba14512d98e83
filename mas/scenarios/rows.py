"""Rows of a file or data set: JSONL, Parquet, or a data set of the library `datasets`, on a disk or from the hub."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from mas.core.errors import ConfigError, MissingPackage
from mas.core.naming import did_you_mean
from mas.core.scenario import Split

HUB = "hf://"
_SUFFIXES = (".jsonl", ".ndjson", ".parquet")
_SPLITS: Mapping[str, Split] = {"train": "train", "eval": "eval", "test": "eval", "validation": "eval"}


class DataRow(NamedTuple):
    """One record. `where`: its place, for errors. `split`: that of its data set, None where that has none."""

    where: str
    values: Mapping[str, Any]
    split: str | None = None


def read_rows(path: str) -> list[DataRow]:
    """All rows, in order.

    Args:
        path: a file that ends with .jsonl, .ndjson or .parquet, a directory that `datasets` saved, or
            hf://OWNER/NAME or hf://OWNER/NAME/CONFIG, which `datasets` fetches.

    Raises:
        ConfigError: no such file, one that cannot be read as what its name says, with the line; one without rows; or
            the library that it needs is not installed.
    """
    place = Path(path)
    if path.startswith(HUB):
        rows = _hub(path)
    elif place.is_dir():
        rows = _saved(place)
    elif place.suffix not in _SUFFIXES:
        raise ConfigError(f"{path}: rows are read from files {', '.join(_SUFFIXES)}, a directory, or {HUB}OWNER/NAME")
    elif not place.is_file():
        raise ConfigError(f"{path}: there is no such file; a relative path starts at {Path.cwd()}")
    else:
        rows = _parquet(place) if place.suffix == ".parquet" else list(_lines(place))
    if not rows:
        raise ConfigError(f"{path} has no rows")
    return rows


def _lines(path: Path) -> Iterator[DataRow]:
    try:
        lines = path.read_bytes().removeprefix(b"\xef\xbb\xbf").split(b"\n")
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from error
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        try:
            values = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise ConfigError(f"{path}, line {number} is no JSON: {error}") from error
        if not isinstance(values, dict):
            raise ConfigError(f"{path}, line {number} is no object with fields, but {shown(values)}")
        yield DataRow(f"{path}, line {number}", values)


def _parquet(path: Path) -> list[DataRow]:
    try:
        from pyarrow import ArrowException
        from pyarrow.parquet import read_table
    except ImportError as error:
        raise MissingPackage(f"{path}: Parquet needs pyarrow: pip install 'mas[data]'") from error
    try:
        found = read_table(path).to_pylist()
    except (ArrowException, OSError) as error:
        raise ConfigError(f"{path} cannot be read as Parquet: {error}") from error
    return [DataRow(f"{path}, row {number}", values) for number, values in enumerate(found, 1)]


def _saved(path: Path) -> list[DataRow]:
    datasets = _datasets(str(path))
    try:
        found = datasets.load_from_disk(str(path))
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is no directory that datasets.save_to_disk wrote: {error}") from error
    return _of_splits(str(path), found)


def _hub(path: str) -> list[DataRow]:
    parts = path.removeprefix(HUB).split("/")
    if len(parts) not in (2, 3) or not all(parts):
        raise ConfigError(f"{path}: write {HUB}OWNER/NAME, or {HUB}OWNER/NAME/CONFIG")
    datasets = _datasets(path)
    try:
        found = datasets.load_dataset("/".join(parts[:2]), *parts[2:])
    except (OSError, ValueError, RuntimeError, datasets.exceptions.DatasetsError) as error:
        raise ConfigError(f"{path} cannot be loaded: {type(error).__name__}: {error}") from error
    return _of_splits(path, found)


def _datasets(path: str) -> Any:
    try:
        import datasets
    except ImportError as error:
        raise MissingPackage(f"{path}: this needs the library datasets: pip install 'mas[data]'") from error
    return datasets


def _of_splits(path: str, found: Any) -> list[DataRow]:
    """Rows of a data set, or of a mapping of splits to data sets."""
    if not isinstance(found, Mapping):
        return [DataRow(f"{path}, row {number}", values) for number, values in enumerate(found, 1)]
    return [
        DataRow(f"{path}, row {number} of split {split!r}", values, split)
        for split, rows in found.items()
        for number, values in enumerate(rows, 1)
    ]


def split_of(row: DataRow, field: str | None) -> Split | None:
    """The split that a row says it belongs to, by a field or else by its data set; None: neither says one.

    Raises:
        ConfigError: the field is missing, or there is no such split.
    """
    name = row.split if field is None else field_of(row, field)
    if name is None and field is None:
        return None
    if not isinstance(name, str) or name not in _SPLITS:
        source = "its split" if field is None else f"field {field!r}"
        raise ConfigError(f"{row.where}: {source} is {shown(name)}. {did_you_mean(str(name), _SPLITS)}")
    return _SPLITS[name]


def field_of(row: DataRow, field: str) -> Any:
    """The value of a field.

    Raises:
        ConfigError: the row has none.
    """
    if field not in row.values:
        raise ConfigError(f"{row.where} has no field {field!r}. {did_you_mean(field, map(str, row.values))}")
    return row.values[field]


def shown(value: object) -> str:
    """A value as errors show it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."
