"""Packages that only one bridge needs, imported when it is opened."""

import json
import random
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from threading import RLock
from typing import Any

import numpy as np

from mas.core.errors import ConfigError, MissingPackage


def load_package(module: str, extra: str) -> Any:
    """The module of another package.

    Raises:
        MissingPackage: it, or something that it needs, is not installed; says what to install.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise MissingPackage(f"this needs the extra {extra!r} ({error}): pip install 'mas[{extra}]'") from error


def read_options(where: str, text: str) -> dict[str, Any]:
    """Options in the brackets of an id, `size=3,name=ice,is_slippery=false`: values are JSON, or else texts.

    Args:
        where: the whole id, for errors.

    Raises:
        ConfigError: a part is no option.
    """
    found: dict[str, Any] = {}
    for part in filter(None, map(str.strip, text.split(","))):
        key, mark, value = (piece.strip() for piece in part.partition("="))
        if not mark or not key.isidentifier():
            raise ConfigError(f"{where}: {part!r} is no option; write OPTION=VALUE")
        try:
            found[key] = json.loads(value.lower() if value in ("True", "False") else value)
        except ValueError:
            found[key] = value
    return found


_LOCK = RLock()
"""Python's and numpy's global generators are one for all threads."""


class OwnChance:
    """`with chance:` runs with global generators of its own; whoever else draws from them notices nothing.

    Python's `random` and `numpy.random` alone: a generator that foreign code keeps in an object is its own anyway.
    Not to be nested with itself.
    """

    def __init__(self, seed: int) -> None:
        """`seed`: what is above 2**32 - 1, numpy's old generator does not see."""
        self._seed = seed
        self._own: tuple[Any, Any] | None = None
        self._others: tuple[Any, Any] | None = None

    def __enter__(self) -> None:
        _LOCK.acquire()
        self._others = random.getstate(), np.random.get_state()
        if self._own is None:
            random.seed(self._seed)
            np.random.seed(self._seed % 2**32)
        else:
            _set(self._own)

    def __exit__(self, *error: object) -> None:
        assert self._others is not None
        self._own = random.getstate(), np.random.get_state()
        _set(self._others)
        _LOCK.release()


@contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """As `OwnChance` of this seed, once: what becomes of its generators is not kept."""
    with _LOCK:
        others = random.getstate(), np.random.get_state()
        random.seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            _set(others)


def _set(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
