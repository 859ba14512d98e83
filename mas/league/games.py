"""Games by their ids: those of other packages (`open_spiel:kuhn_poker`) and scenarios with several seats
(`two_player:kuhn_poker`), which trained teams play, too."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from mas.config.access import REWARD
from mas.config.options import ScenarioOptions
from mas.config.plain_values import read_value
from mas.core.environment import Environment
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.scenarios import build_scenario, find_scenario
from mas.scenarios.bridges import PREFIX, open_bridge
from mas.scenarios.two_player.games import GAMES
from mas.scenarios.two_player.games import SEVERAL as SEVERAL

STYLE, WORDS, GAME, MARKED = "style", "words", "game", "marked"
"""Options of scenarios that are known here: how views read, in words for people and external models, which game, and
whether views in letters say so."""


@dataclass(frozen=True, slots=True)
class LeagueWorld:
    """A game that can be opened any number of times.

    Attributes:
        id: how it is asked for.
        open: a fresh environment, not yet reset.
        scenario: with all its options; None: a game of another package.
    """

    id: str
    open: Callable[[], Environment]
    scenario: ScenarioOptions | None = None

    def seen_as(self, other: ScenarioOptions) -> ScenarioOptions:
        """The scenario with views that read as those of another, whose options are full."""
        assert self.scenario is not None
        views = {name: other.options[name] for name in (STYLE, MARKED) if name in other.options}
        return self.scenario.model_copy(update={"options": {**self.scenario.options, **views}})


def open_world(name: str) -> LeagueWorld:
    """A game by its id: `PACKAGE:NAME` of a bridge, or `SCENARIO[:GAME][,OPTION=VALUE...]` of a scenario with several
    seats, in words where its views have styles.

    Raises:
        ConfigError: no such game, package, scenario or option; or a scenario of one seat.
    """
    kind = name.partition(":")[0]
    if kind in PREFIX:
        open_bridge(name)
        return LeagueWorld(name, lambda: open_bridge(name))
    kind = kind.partition(",")[0]
    if kind.endswith(".py"):
        raise ConfigError(
            f"--game {name}: a league opens games by name, and no class of a file: offer yours by an entry point, as "
            "docs/league.md shows, and write its name"
        )
    worded = {STYLE: WORDS} if STYLE in find_scenario(kind).options.model_fields else {}
    options = full_options(ScenarioOptions(name=kind, options=worded | said_options(name)[1]))
    scenario = build_scenario(options)
    seats = scenario.environment().spec.seats
    if len(seats) < 2:
        raise ConfigError(f"--game {name}: {kind} has one seat ({', '.join(seats)}), a league needs several")
    return LeagueWorld(name, scenario.environment, options)


def full_name(game: str) -> str:
    """The id of a game of `two_player` by its short name: `kuhn`, `kuhn_poker`, `leduc,tries=3`; others as they are."""
    short, mark, options = game.partition(",")
    names = {key: name for name in GAMES for key in (name, name.removesuffix("_poker"))}
    return f"two_player:{names[short]}{mark}{options}" if short in names else game


def full_options(scenario: ScenarioOptions) -> ScenarioOptions:
    """With the defaults of what was left out.

    Raises:
        ConfigError: as `build_scenario`.
    """
    build_scenario(scenario)
    said = find_scenario(scenario.name).options(**scenario.options)
    return scenario.model_copy(update={"options": said.model_dump(mode="json")})


def translated(text: str, own: Sequence[str] | None, others: Sequence[str] | None) -> str:
    """A move as said in one style, in another: the action at the same place among the legal ones.

    Nothing is made legal by it: what is not among them stays no action.

    Args:
        own: legal actions in the style of `text`; others: in the style wanted. None: they cannot be listed.
    """
    if own is None or others is None or list(own) == list(others):
        return text
    if text in own:
        return others[own.index(text)]
    return f"no action {text[:20]!r}" if text else ""


def said_options(name: str) -> tuple[str, dict[str, Any]]:
    """Scenario and options that an id of a scenario says, `two_player:kuhn_poker,tries=3`, without defaults.

    Raises:
        ConfigError: a game of another package, no such scenario or option.
    """
    kind = name.partition(":")[0].partition(",")[0]
    if kind in PREFIX:
        raise ConfigError(
            f"{name} is a game of another package, and teams train in scenarios: take one such as two_player:kuhn_poker"
        )
    text, found = name.removeprefix(kind).lstrip(":,"), dict[str, Any]()
    fields = find_scenario(kind).options.model_fields
    for number, part in enumerate(text.split(",") if text else ()):
        key, is_named, value = part.partition("=")
        if not is_named and (number or GAME not in fields):
            raise ConfigError(f"--game {kind}:{text}: write OPTION=VALUE. {did_you_mean(part, fields)}")
        if key == REWARD and is_named:
            raise ConfigError(f"--game {kind}:{text}: {REWARD} names code, which the id of a game cannot; leave it out")
        found[key if is_named else GAME] = read_value(value) if is_named else part
    return kind, found
