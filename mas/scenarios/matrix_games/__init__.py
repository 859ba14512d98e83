"""Repeated matrix games against opponents of habit, or that learn."""

from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Literal

from pydantic import Field

from mas.config.base import Options
from mas.core.environment import Environment
from mas.scenarios.matrix_games.environment import (
    COLUMN,
    GAMES,
    OPPONENTS,
    ROW,
    ForesightReward,
    MatrixEnvironment,
    demonstrations,
    expert,
    make,
)
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.world import FolderScenario
from mas.scenarios.wrappers import Against

VIEWS = ("analyst", "player", "solo")


class MatrixOptions(Options):
    """`game`: which one. `opponent`: of habit, or who learns during the game. `skill`: share of right answers of the
    noisy teacher that the tiny base learns from last, always against opponents of habit."""

    game: Literal[
        "rock_paper_scissors", "matching_pennies", "prisoners_dilemma", "stag_hunt", "chicken", "coordination"
    ] = "rock_paper_scissors"
    opponent: Literal["habit", "hedge", "regret_matching"] = "habit"
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.4


def build(options: MatrixOptions) -> FolderScenario:
    """The scenario with these options."""
    return FolderScenario(
        name="matrix_games",
        folder=Path(__file__).parent,
        # Where the opponent has a habit, tasks are those from before there were others.
        options_key=options.model_dump_json(exclude={"opponent"} if options.opponent == "habit" else None),
        make_environment=partial(_environment, options.game, options.opponent),
        content=partial(_content, name=options.game),
        demonstrate=partial(demonstrations, name=options.game),
        skill=options.skill,
        reward=ForesightReward(),
        expert=partial(expert, opponent=options.opponent),
    )


def _environment(name: str, opponent: str) -> Environment:
    solved = _beats_habit if opponent == "habit" else _is_without_regret
    return Against(MatrixEnvironment(name), ROW, {COLUMN: OPPONENTS[opponent]}, VIEWS, solved)


def _beats_habit(played: Against) -> bool:
    return played.game.success()


def _is_without_regret(played: Against) -> bool:
    return played.measures()["regret_row"] <= 1e-9


def _content(random: Random, name: str) -> str:
    state = make(random, GAMES[name])
    return f"{state.habit}{state.total}"


ENTRY = ScenarioEntry(MatrixOptions, build, "games of payoffs")
