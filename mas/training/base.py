"""The base model that all roles of a setup share, loaded once."""

from collections.abc import Callable

from mas.config.options import SMOLLM2, TINY
from mas.core.scenario import Scenario
from mas.serving.base_checks import Footprint
from mas.serving.model import BaseModel, load_base, load_text
from mas.serving.model_sources import smollm2
from mas.training.memory import check_memory, needs_of
from mas.training.setup import Setup
from mas.training.tiny_base import tiny_base
from mas.training.work_estimate import Work

Note = Callable[[str], None]
"""Told a line of text for people."""


def open_base(setup: Setup, note: Note, *, is_trained: bool = False, home: Scenario | None = None) -> BaseModel:
    """The base model that all roles share; a built-in one is made first if it is not in the cache. What memory it and
    its use take is estimated before it is loaded, but for the tiny base.

    Args:
        home: the scenario that the tiny base was made for; None: the setup's.

    Raises:
        ModelError: it cannot be made or loaded, or does not fit; see `check_memory`.
    """
    path = base_path(setup, note, home)
    text = load_text(setup.model, path)
    if setup.model.path != TINY:
        work, footprint = Work.bound(setup, text), Footprint.of(setup.model, path)
        check_memory(setup, needs_of(setup, footprint, work, is_trained=is_trained), note)
    return load_base(setup.model, path, text)


def base_path(setup: Setup, note: Note, home: Scenario | None = None) -> str:
    """The directory or hub id of the base; a built-in one is made now, unless it is in the cache."""
    if setup.model.path == SMOLLM2:
        return str(smollm2(note))
    if setup.model.path != TINY:
        return setup.model.path

    home = setup.scenario if home is None else home

    def on_progress(step: int, total: int, loss: float) -> None:
        note(f"tiny base for {home.name}: step {step}/{total}, loss {loss:.3f}")

    return str(tiny_base(home, setup.model.tiny, on_progress))
