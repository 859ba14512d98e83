"""Copies of PettingZoo's environments in the middle of a game, and generators that belong to one game."""

import random
from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

import numpy as np

SHARED = ("observation_spaces", "action_spaces", "screen")
"""Attributes that no step changes (spaces, a surface that only a window draws on): copies have them in common."""


def copied(environment: Any) -> Any:
    """An equal, independent copy.

    `EzPickle` gives environments a `__setstate__` that makes a fresh one from the arguments of the first, and
    `deepcopy` uses it. So the attributes are copied one by one, of the environment and of those that it wraps.
    """
    return _copied(environment, {})


def _copied(environment: Any, memo: dict[int, Any]) -> Any:
    twin = object.__new__(type(environment))
    # Attributes that refer back to the environment find its copy there.
    memo[id(environment)] = twin
    for name, value in vars(environment).items():
        if name in SHARED:
            twin.__dict__[name] = value
        elif hasattr(value, "possible_agents") and id(value) not in memo:
            twin.__dict__[name] = _copied(value, memo)
        else:
            twin.__dict__[name] = deepcopy(value, memo)
    return twin


@contextmanager
def drawing_from(seed: int) -> Iterator[None]:
    """Let the generators of Python and NumPy that the whole process shares begin at a seed, and put them back after."""
    python, arrays = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed % 2**32)
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(arrays)
