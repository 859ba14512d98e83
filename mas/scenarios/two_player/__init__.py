"""Two-player zero-sum games, both seats played by the team: self-play."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from mas.config.options import Options
from mas.core.environment import Environment
from mas.core.errors import ConfigError
from mas.core.scenario import Decision
from mas.scenarios.folder import FolderScenario
from mas.scenarios.two_player.games import GAMES, Game


class TwoPlayerOptions(Options):
    """`game`: which one. `tries`: so many turns without a legal move at one decision lose the game.

    `style`: single characters, which the tiny base can learn, or words, for real models. `skill`: how often who teaches
    the tiny base last draws among all legal moves; else it makes the first. `best`: how often, before any of that, it
    makes one of the best moves instead, where nothing is hidden: in `tic_tac_toe`. `exact`: evaluations score all
    decisions of `tic_tac_toe`, too, which takes long.
    """

    game: Literal["kuhn_poker", "leduc_poker", "tic_tac_toe", "rock_paper_scissors"] = "kuhn_poker"
    style: Literal["letters", "words"] = "letters"
    tries: Annotated[int, Field(ge=1, le=9)] = 1
    skill: Annotated[float, Field(ge=0, le=0.9)] = 0.9
    best: Annotated[float, Field(ge=0, le=1)] = 0
    exact: bool = False

    @model_validator(mode="after")
    def _best_is_known(self) -> Self:
        if self.best and self.game != "tic_tac_toe":
            raise ValueError(f"best={self.best}: nobody knows the best moves of {self.game}; only of tic_tac_toe")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class TwoPlayerScenario(FolderScenario):
    """Satisfies `mas.core.scenario.Mixable`, too; without decisions where scoring all of them would take long,
    unless `exact` is wanted.
    """

    options: TwoPlayerOptions

    def __post_init__(self) -> None:
        FolderScenario.__post_init__(self)
        if self.options.style == "letters":
            letters = GAMES[self.options.game].letters
            teams = {}
            for name, team in self.teams.items():
                roles = {role: spec.model_copy(update={"choices": letters}) for role, spec in team.roles.items()}
                teams[name] = team.model_copy(update={"roles": roles})
            object.__setattr__(self, "teams", teams)

    def decisions(self) -> Sequence[Decision]:
        """Every information state of both seats."""
        # Here, not above, as below: OpenSpiel may not be installed, and `mas --help` does without.
        from mas.scenarios.two_player.solve import all_decisions

        game = GAMES[self.options.game]
        return all_decisions(game, self.options.style) if game.is_small or self.options.exact else ()

    def solve(self, policy: Mapping[str, Mapping[str, float]]) -> Mapping[str, float]:
        """`nash_conv` of a policy, by key of the decision and action."""
        from mas.scenarios.two_player.solve import measures

        return measures(GAMES[self.options.game], self.options.style, policy)

    def outcomes(self, policy: Mapping[str, Mapping[str, float]]) -> Sequence[tuple[tuple[float, ...], float]]:
        """See `mas.core.scenario.Mixable`; nobody makes an illegal move."""
        from mas.scenarios.two_player.mixing import outcomes

        return outcomes(self._mixable(), self.options.style, policy)

    def mixed(
        self, seat: str, policies: Sequence[Mapping[str, Mapping[str, float]]], shares: Sequence[float]
    ) -> Mapping[str, Mapping[str, float]]:
        """See `mas.core.scenario.Mixable`."""
        from mas.scenarios.two_player.mixing import mixed

        return mixed(self._mixable(), self.options.style, seat, policies, shares)

    def _mixable(self) -> Game:
        game = GAMES[self.options.game]
        if not game.is_small:
            raise ConfigError(
                f"policies of {game.name} cannot be mixed exactly, as its boards do not say how they came about: leave "
                "scenario.options.exact out, and payoffs are played"
            )
        return game


def build(options: TwoPlayerOptions) -> TwoPlayerScenario:
    """The scenario with these options; OpenSpiel itself is first needed for a task."""
    return TwoPlayerScenario(
        name="two_player",
        folder=Path(__file__).parent / options.style,
        options_key=options.model_dump_json(exclude={"skill", "best", "exact"}),
        make_environment=partial(_environment, options),
        content=partial(_content, name=GAMES[options.game].name),
        demonstrate=partial(_demonstrations, options=options),
        skill=options.skill,
        options=options,
    )


def _environment(options: TwoPlayerOptions) -> Environment:
    from mas.scenarios.two_player.environment import TwoPlayerEnvironment

    return TwoPlayerEnvironment(GAMES[options.game], options.style, options.tries)


def _demonstrations(random: Random, skill: float, options: TwoPlayerOptions) -> Iterator[tuple[str, str]]:
    from mas.scenarios.two_player.experts import demonstrations

    return demonstrations(random, skill, GAMES[options.game], options.best)


def _content(random: Random, name: str) -> str:
    """Every seed is a deal of its own, though equal cards come again: a game of few deals has none to hold out."""
    from mas.scenarios.bridges.open_spiel import load_game

    load_game(name)
    return str(random.getrandbits(48))
