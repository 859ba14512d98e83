"""Text games of TextArena: `textarena:TicTacToe-v0-raw`, needs `mas[textarena]`.

Every player is a seat and a view of its own. The rules of a game say how an action looks, usually `[4]`. TextArena's
own rule for illegal actions holds: the first is told to the player, who stays to move; the second in a row loses or is
skipped, as the game has it. An empty text is such an action for the game, but is not reported as illegal: nobody spoke.

Leaves out: TextArena's wrappers, its online play, and every game that `textarena.yaml` does not list as tested.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from functools import lru_cache, partial
from importlib.resources import files
from typing import Any, NamedTuple

import msgspec
import yaml

from mas.core.environment import Environment, EnvironmentSpec, Step
from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.core.seeds import derive_seed
from mas.scenarios.bridges.packages import OwnChance, load_package
from mas.scenarios.replay import ReplayedWorld, ReplayEnvironment

GAME = -1
"""TextArena's number for the game itself as a sender."""
RULES, BOARD = "PROMPT", "GAME_BOARD"
"""Of TextArena's kinds of messages, those that a player reads apart from the rest."""


class TextArenaGame(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One tested game. `max_turns`: actions, legal or not, after which mas ends it without an outcome."""

    players: int
    max_turns: int


class Games(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The list: what was tested with which version, and why the rest is left out."""

    version: str
    tested: dict[str, TextArenaGame]
    left_out: dict[str, str]


class TextArenaMessage(NamedTuple):
    """What one player was told. `kind`: TextArena's `ObservationType` by name."""

    sender: int
    text: str
    kind: str


@lru_cache(maxsize=1)
def known_games() -> Games:
    """The list that comes with mas."""
    text = files("mas.scenarios.bridges").joinpath("textarena.yaml").read_text(encoding="utf-8")
    return msgspec.convert(yaml.safe_load(text), Games)


def open_environment(name: str) -> Environment:
    """The environment of a game, as `TicTacToe-v0-raw`.

    Raises:
        ConfigError: the game is not one of the tested ones, or TextArena is missing or has another version.
    """
    games = known_games()
    if name in games.left_out:
        raise ConfigError(f"TextArena's {name!r} is left out: {games.left_out[name]}")
    if name not in games.tested:
        near = get_close_matches(name, games.tested, n=6, cutoff=0.4) or list(games.tested)[:6]
        raise ConfigError(
            f"no tested game {name!r} of TextArena. {did_you_mean(name, near)} "
            "All of them are in mas/scenarios/bridges/textarena.yaml."
        )
    version = load_package("textarena", "textarena").__version__
    if version != games.version:
        raise ConfigError(f"TextArena {version} is installed, tested was {games.version}: pip install 'mas[textarena]'")
    return game_environment(name, games.tested[name])


def game_environment(name: str, game: TextArenaGame) -> ReplayEnvironment:
    """The environment of any game of TextArena, tested or not."""
    seats = tuple(f"player_{number}" for number in range(game.players))
    spec = EnvironmentSpec(
        name=f"textarena:{name}", seats=seats, views=seats, max_turns=game.max_turns, terms=("outcome",)
    )
    return ReplayEnvironment(spec, partial(TextArenaPlay, name, seats))


class TextArenaPlay(ReplayedWorld):
    """A game that runs, with a random state that it alone draws from."""

    def __init__(self, name: str, seats: tuple[str, ...], seed: int) -> None:
        own = derive_seed("textarena", seed) % 2**32
        self._seats = seats
        self._chance = OwnChance(own)
        self._told: list[list[TextArenaMessage]] = [[] for _ in seats]
        self._refusals = 0
        make = load_package("textarena", "textarena").make
        with self._chance:
            self._game: Any = make(env_id=name)
            self._game.reset(num_players=len(seats), seed=own)
        self._state = self._game.state
        self._count_refusals()
        self._listen()

    def to_move(self) -> str | None:
        return None if self._state.done else self._seats[self._state.current_player_id]

    def act(self, action: str) -> Step:
        mover, refused = self._state.current_player_id, self._refusals
        with self._chance:
            self._game.step(action)
        self._listen()
        rewards: dict[str, dict[str, float]] = {self._seats[mover]: {}}
        if self._state.done:
            paid = self._state.rewards or {}
            rewards = {seat: {"outcome": float(paid.get(number, 0))} for number, seat in enumerate(self._seats)}
        illegal = action != "" and self._refusals > refused
        return Step(rewards=rewards, illegal=(self._seats[mover],) if illegal else ())

    def fields(self, view: str) -> Mapping[str, str]:
        number = self._seats.index(view)
        told = self._told[number] + [_message(each) for each in self._state.observations[number]]
        boards = [message.text for message in told if message.kind == BOARD]
        return {
            "rules": "\n".join(message.text for message in told if message.kind == RULES),
            "history": self._lines(message for message in told if message.kind not in (RULES, BOARD)),
            "board": boards[-1] if boards else "",
        }

    def success(self) -> bool:
        """One player: the whole reward. Several: the first has won, alone or with others, and not all have."""
        if not self._state.done:
            return False
        paid = self._state.rewards or {}
        first, all_paid = paid.get(0, 0), [paid.get(number, 0) for number in range(len(self._seats))]
        if len(all_paid) == 1:
            return bool(first >= 1)
        return bool(first == max(all_paid) > min(all_paid))

    def render(self) -> str:
        return self._lines(TextArenaMessage(sender, text, "") for sender, text in self._state.logs)

    def _count_refusals(self) -> None:
        """TextArena forgets within the step that an action was illegal: hear it where the game says so."""
        refuse = self._state.set_invalid_move

        def counted(*given: Any, **named: Any) -> Any:
            self._refusals += 1
            return refuse(*given, **named)

        self._state.set_invalid_move = counted

    def _listen(self) -> None:
        """What the player to move is told now. Asking empties TextArena's queue, so it is asked once."""
        with self._chance:
            number, messages = self._game.get_observation()
        self._told[number] += [_message(each) for each in messages]

    def _lines(self, messages: Any) -> str:
        names = self._state.role_mapping
        return "\n".join(
            f"[{'GAME' if each.sender == GAME else names.get(each.sender, f'Player {each.sender}')}] {each.text}"
            for each in messages
        )


def _message(told: tuple[int, str, Any]) -> TextArenaMessage:
    sender, text, kind = told
    return TextArenaMessage(sender, str(text), kind.name)
