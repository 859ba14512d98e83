"""Two-player zero-sum games, both seats played by the team: self-play."""

from collections.abc import Mapping, Sequence
from functools import partial
from random import Random
from statistics import fmean
from typing import Annotated, Any, Self

from msgspec.structs import replace
from pydantic import Field, ValidationInfo, field_validator, model_validator

from mas.core.errors import ConfigError
from mas.core.options import Options
from mas.core.scenario import Decision
from mas.core.team import TeamSpec
from mas.scenarios.bridges.open_spiel import load_game
from mas.scenarios.registry import ScenarioEntry
from mas.scenarios.two_player.environment import TwoPlayerEnvironment, demonstrations
from mas.scenarios.two_player.games import SEVERAL, TwoPlayerGame, games_of
from mas.scenarios.two_player.solve import all_decisions, measures, mixed, outcomes
from mas.scenarios.world import FolderScenario, Style


class TwoPlayerOptions(Options):
    """`game`: which one, or several joined by `+`, of which each task is of one. `tries`: so many turns without a legal
    move at one decision lose the game.

    `style`: single characters, which the tiny base can learn, or words, for real models. `skill`: how often who teaches
    the tiny base last draws among all legal moves; else it makes the first. `best`: how often, before any of that, it
    makes one of the best moves instead, where nothing is hidden: in `tic_tac_toe`. `taught`: games, joined by `+`, that
    the tiny base is taught, too, and that are not played: for transfer to them. `marked`: whether prompts in letters
    begin with the game's mark; by default where several games are played or taught, and there always. `exact`:
    evaluations score all decisions of `tic_tac_toe`, too, which takes long.
    """

    game: str = "kuhn_poker"
    style: Style = "letters"
    tries: Annotated[int, Field(ge=1, le=9)] = 1
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.9
    best: Annotated[float, Field(ge=0, le=1)] = 0
    taught: str = ""
    marked: bool = False
    exact: bool = False

    @field_validator("game", "taught")
    @classmethod
    def _is_known(cls, names: str, info: ValidationInfo) -> str:
        if names or info.field_name == "game":
            games_of(names)
        return names

    @model_validator(mode="before")
    @classmethod
    def _several_are_marked(cls, given: Any) -> Any:
        if isinstance(given, dict) and (SEVERAL in str(given.get("game")) or given.get("taught")):
            return {"marked": True} | given
        return given

    @model_validator(mode="after")
    def _games_go_together(self) -> Self:
        taught = {game.name for game in games_of(self.taught)} if self.taught else set[str]()
        if both := sorted(taught & {game.name for game in self.games}):
            raise ValueError(f"taught={self.taught}: {', '.join(both)} is played, and taught anyway; leave it out")
        if len(self.shown) > 1 and not self.marked:
            raise ValueError("marked=false: where several games are played or taught, prompts must say which it is")
        if self.best and "tic_tac_toe" not in (*self.game.split(SEVERAL), *self.taught.split(SEVERAL)):
            raise ValueError(f"best={self.best}: nobody knows the best moves of {self.game}; only of tic_tac_toe")
        return self

    @property
    def games(self) -> tuple[TwoPlayerGame, ...]:
        return games_of(self.game)

    @property
    def shown(self) -> tuple[TwoPlayerGame, ...]:
        """Those that the tiny base is taught."""
        return (*self.games, *(games_of(self.taught) if self.taught else ()))


class TwoPlayerScenario(FolderScenario):
    """Satisfies `mas.core.scenario.Mixable`, too; without decisions where scoring all of them would take long,
    unless `exact` is wanted.
    """

    options: TwoPlayerOptions

    def read_teams(self) -> Mapping[str, TeamSpec]:
        teams = super().read_teams()
        if self.options.style == "words":
            return teams
        letters = tuple(dict.fromkeys(letter for game in self.options.games for letter in game.letters))
        chosen = {}
        for name, team in teams.items():
            roles = {role: spec.model_copy(update={"choices": letters}) for role, spec in team.roles.items()}
            chosen[name] = team.model_copy(update={"roles": roles})
        return chosen

    def decisions(self) -> Sequence[Decision]:
        """Every information state of both seats; of several games those of all that are small, their names before the
        keys."""
        options = self.options
        found = {
            game.name: all_decisions(game, options.style, is_marked=options.marked)
            for game in options.games
            if game.is_small or options.exact
        }
        if len(options.games) == 1:
            return found.get(options.games[0].name, ())
        return [replace(one, key=f"{name}:{one.key}") for name, decisions in found.items() for one in decisions]

    def solve(self, policy: Mapping[str, Mapping[str, float]]) -> Mapping[str, float]:
        """`nash_conv` of a policy, by key of the decision and action; of several games that of each, and their mean."""
        options = self.options
        if len(options.games) == 1:
            return measures(options.games[0], options.style, policy)
        by_game: dict[str, dict[str, Mapping[str, float]]] = {}
        for key, chances in policy.items():
            name, _, seen = key.partition(":")
            by_game.setdefault(name, {})[seen] = chances
        found = {
            f"{game.name}_{measure}": value
            for game in options.games
            if game.name in by_game
            for measure, value in measures(game, options.style, by_game[game.name]).items()
        }
        return {**found, "nash_conv": fmean(found.values())}

    def outcomes(self, policy: Mapping[str, Mapping[str, float]]) -> Sequence[tuple[tuple[float, ...], float]]:
        """See `mas.core.scenario.Mixable`; nobody makes an illegal move."""
        return outcomes(self._mixable(), self.options.style, policy)

    def mixed(
        self, seat: str, policies: Sequence[Mapping[str, Mapping[str, float]]], shares: Sequence[float]
    ) -> Mapping[str, Mapping[str, float]]:
        return mixed(self._mixable(), self.options.style, seat, policies, shares)

    def _mixable(self) -> TwoPlayerGame:
        if len(self.options.games) > 1:
            raise ConfigError(f"policies of {self.options.game} cannot be mixed, only those of one game: name one")
        (game,) = self.options.games
        if not game.is_small:
            raise ConfigError(
                f"policies of {game.name} cannot be mixed exactly, as its boards do not say how they came about: leave "
                "scenario.options.exact out, and payoffs are played"
            )
        return game


def build(options: TwoPlayerOptions) -> TwoPlayerScenario:
    """The scenario with these options; OpenSpiel itself is first needed for a task."""
    return TwoPlayerScenario(
        __file__,
        options,
        partial(TwoPlayerEnvironment, options.games, options.style, options.tries, is_marked=options.marked),
        partial(_content, games=options.games),
        partial(demonstrations, games=options.shown, best=options.best, is_marked=options.marked),
        inner=options.style,
        unkeyed=("skill", "best", "taught", "marked", "exact"),
    )


def _content(random: Random, games: Sequence[TwoPlayerGame]) -> str:
    """Every seed is a deal of its own, though equal cards come again: a game of few deals has none to hold out."""
    for game in games:
        load_game(game.name)
    return str(random.getrandbits(48))


ENTRY = ScenarioEntry(
    TwoPlayerOptions,
    build,
    "self-play",
    {
        "small": {},
        "medium": {"game": "leduc_poker", "style": "words", "tries": 3},
        "large": {"game": "tic_tac_toe", "style": "words", "tries": 3},
    },
)
