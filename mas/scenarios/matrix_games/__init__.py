"""Repeated matrix games against opponents of habit."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from mas.config.options import Options
from mas.core.environment import Environment
from mas.scenarios.against import Against
from mas.scenarios.folder import FolderScenario
from mas.scenarios.matrix_games.environment import COLUMN, ROW, MatrixEnvironment, by_habit, make
from mas.scenarios.matrix_games.experts import ForesightReward, demonstrations, expert
from mas.scenarios.matrix_games.games import GAMES

VIEWS = ("analyst", "player", "solo")


class MatrixOptions(Options):
    """`game`: which one. `skill`: share of right answers of the novice that the tiny base learns from last."""

    game: Literal[
        "rock_paper_scissors", "matching_pennies", "prisoners_dilemma", "stag_hunt", "chicken", "coordination"
    ] = "rock_paper_scissors"
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4


def build(options: MatrixOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        name="matrix_games",
        folder=Path(__file__).parent,
        options_key=options.model_dump_json(),
        make_environment=partial(_environment, options.game),
        content=partial(_content, name=options.game),
        demonstrate=partial(demonstrations, name=options.game),
        skill=options.skill,
        reward=ForesightReward(),
        expert=expert,
    )


def _environment(name: str) -> Environment:
    return Against(MatrixEnvironment(name), ROW, {COLUMN: by_habit}, VIEWS, _is_solved)


def _is_solved(played: Against) -> bool:
    return played.game.success()


def _content(random: Random, name: str) -> str:
    state = make(random, GAMES[name])
    return f"{state.habit}{state.total}"
