"""Sudoku for three roles, with the constraints split over them."""

from functools import partial
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.config.base import Options
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.sudoku.environment import NAMES, SudokuEnvironment, SudokuReward, SudokuRules, demonstrations, expert
from mas.scenarios.sudoku.puzzle import make_solution
from mas.scenarios.world import FolderScenario

_MOST_BLANKS = {True: {4: 10, 9: 48}, False: {4: 10, 9: len(NAMES)}}
"""By `forced` and size, what is found within a fraction of a second."""


class SudokuOptions(Options):
    """The dial is `size` (rows) and `blanks`; `max_turns` None allows 2 turns per blank.

    `forced`: at every point some blank has one candidate only; otherwise the one solution may need guesses.
    `skill`: share of right answers of the noisy teacher that the tiny base learns from last.
    """

    size: Literal[4, 9] = 4
    blanks: Annotated[int, Field(ge=1)] = 4
    forced: bool = True
    max_turns: Annotated[int, Field(ge=1)] | None = None
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.5

    @model_validator(mode="after")
    def _can_be_made(self) -> Self:
        most = _MOST_BLANKS[self.forced][self.size]
        if self.blanks > most:
            raise ValueError(f"blanks={self.blanks} is too many for size={self.size}: at most {most}")
        if self.max_turns is not None and self.max_turns < self.blanks:
            raise ValueError(f"max_turns={self.max_turns} is too few for blanks={self.blanks}: one is filled a turn")
        return self


def build(options: SudokuOptions) -> FolderScenario:
    """The scenario with these options."""
    size, blanks, forced = options.size, options.blanks, options.forced
    turns = options.max_turns or 2 * blanks
    rules = SudokuRules(size=size, blanks=blanks, forced=forced, max_turns=turns)
    return FolderScenario(
        name="sudoku",
        folder=Path(__file__).parent,
        options_key=options.model_dump_json(),
        make_environment=partial(SudokuEnvironment, rules),
        content=partial(make_solution, size=size),
        demonstrate=partial(demonstrations, size=size, blanks=blanks, forced=forced),
        skill=options.skill,
        reward=SudokuReward(),
        expert=expert,
    )


ENTRY = ScenarioEntry(
    SudokuOptions,
    build,
    "cooperative planning",
    {"small": {}, "medium": {"size": 9, "blanks": 20}, "large": {"size": 9, "blanks": 45, "forced": False}},
)
