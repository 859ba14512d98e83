"""Generated text adventures of TextWorld: `textworld:small`, needs `mas[textworld]`.

The task's seed makes the adventure. It is compiled once, which takes seconds, and kept in mas's cache.
Legal actions are the admissible commands; anything else is illegal and never reaches the interpreter.

Leaves out: adventures from files, and quests that are told in other words than TextWorld's own.
"""

from collections.abc import Mapping
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from mas.core.environment import Environment, Step
from mas.core.errors import ConfigError
from mas.core.host import cache_directory
from mas.core.naming import did_you_mean
from mas.core.seeds import derive_seed, digest
from mas.observe.files import making_directory, writing
from mas.scenarios.bridges.packages import OwnChance, drawing_from, load_package
from mas.scenarios.replay import ReplayEnvironment
from mas.scenarios.world import one_seat

VIEWS = ("planner", "executor", "verifier", "feedback", "solo")
SEAT = "team"
_DICE = 1
"""Seed of the interpreter's own generator; without one it takes the time of day."""


class Size(msgspec.Struct, frozen=True):
    """How large an adventure is. `quest`: commands that its shortest solution needs."""

    rooms: int
    objects: int
    quest: int
    max_turns: int


SIZES = {
    "small": Size(rooms=2, objects=4, quest=2, max_turns=20),
    "medium": Size(rooms=5, objects=10, quest=4, max_turns=50),
    "large": Size(rooms=10, objects=20, quest=8, max_turns=100),
}


def open_environment(name: str) -> Environment:
    """The environment of adventures of one size: `small`, `medium` or `large`.

    Raises:
        ConfigError: there is no such size, or TextWorld is missing.
    """
    if name not in SIZES:
        raise ConfigError(f"no size {name!r} of TextWorld's adventures. {did_you_mean(name, SIZES)}")
    load_package("textworld", "textworld")
    size = SIZES[name]
    spec = one_seat(f"textworld:{name}", VIEWS, size.max_turns, ("progress",))
    return ReplayEnvironment(spec, partial(Adventure, size))


def adventure(size: Size, seed: int) -> Path:
    """The compiled adventure, made now unless it is cached."""
    key = digest(version("textworld"), size.rooms, size.objects, size.quest, seed)
    target = cache_directory() / "textworld" / key
    if not (target / "game.z8").is_file():
        with writing(target.parent, ". Set MAS_CACHE to another directory."), making_directory(target) as made:
            _compile(size, seed, made / "game.z8")
    return target / "game.z8"


def _compile(size: Size, seed: int, path: Path) -> None:
    textworld = load_package("textworld", "textworld")
    own = derive_seed("textworld", seed) % 2**32
    with drawing_from(own):
        options = textworld.GameOptions()
        options.seeds = own
        options.nb_rooms = size.rooms
        options.nb_objects = size.objects
        options.quest_length = size.quest
        options.path = str(path)
        textworld.make(options)


class Adventure:
    """An adventure that runs in an interpreter of its own."""

    def __init__(self, size: Size, seed: int) -> None:
        textworld = load_package("textworld", "textworld")
        path = adventure(size, seed)
        wanted = textworld.EnvInfos(
            **dict.fromkeys(("description", "inventory", "admissible_commands", "objective"), True),
            **dict.fromkeys(("won", "score", "max_score"), True),
        )
        self._chance = OwnChance(_DICE)
        self._done = False
        with self._chance:
            self._game: Any = textworld.start(str(path), wanted)
            self._game.seed(_DICE)
            self._state: Any = self._game.reset()

    def to_move(self) -> str | None:
        return None if self._done else SEAT

    def act(self, action: str) -> Step:
        if action not in self._state.admissible_commands:
            return Step(rewards={SEAT: {}}, illegal=(SEAT,) if action else ())
        before = self._state.score
        with self._chance:
            self._state, score, self._done = self._game.step(action)
        return Step(rewards={SEAT: {"progress": (score - before) / self._state.max_score}})

    def fields(self, view: str) -> Mapping[str, str]:
        state = self._state
        return {
            "objective": state.objective.strip(),
            "feedback": _heard(state),
            "room": state.description.strip(),
            "inventory": state.inventory.strip(),
            "commands": "\n".join(state.admissible_commands),
        }

    def legal(self) -> tuple[str, ...]:
        return tuple(self._state.admissible_commands)

    def success(self) -> bool:
        return bool(self._state.won)

    def render(self) -> str:
        return "\n\n".join(f"{name}:\n{text}" for name, text in self.fields(SEAT).items())


def _heard(state: Any) -> str:
    """What the adventure said last, without its banner and its prompt with the status line."""
    text = state.feedback.partition("\n>")[0]
    return str(text[max(text.find(state.objective), 0) :]).strip()
