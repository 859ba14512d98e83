"""The random state of foreign code that draws from, and seeds, the generators that a whole process shares."""

import random
from threading import RLock
from types import TracebackType
from typing import Any

import numpy as np

_LOCK = RLock()
"""Python's and numpy's global generators are one for all threads."""


class OwnChance:
    """`with chance:` runs with global generators of its own; whoever else draws from them notices nothing.

    Python's `random` and `numpy.random` alone: a generator that foreign code keeps in an object is its own anyway.
    Not to be nested with itself.
    """

    def __init__(self, seed: int) -> None:
        """`seed`: 0 to 2**32 - 1, what numpy's old generator takes."""
        self._own: tuple[Any, Any] = (random.Random(seed).getstate(), np.random.RandomState(seed).get_state())
        self._others: tuple[Any, Any] | None = None

    def __enter__(self) -> None:
        _LOCK.acquire()
        self._others = random.getstate(), np.random.get_state()
        _set(self._own)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._others is not None
        self._own = random.getstate(), np.random.get_state()
        _set(self._others)
        _LOCK.release()


def _set(states: tuple[Any, Any]) -> None:
    random.setstate(states[0])
    np.random.set_state(states[1])
