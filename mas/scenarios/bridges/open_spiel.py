"""OpenSpiel's games (Apache-2.0), `open_spiel:kuhn_poker` or with parameters `open_spiel:kuhn_poker(players=3)`.

Chance is drawn from our own seed, so the game's own generators play no part; games that hide their chance inside
(`SAMPLED_STOCHASTIC`), and mean-field games, whose seats are a crowd, are not among those that can be opened.

OpenSpiel's games that are tested, by the names of OpenSpiel 2.0.2. Left out are games that hide their chance inside,
mean-field games, wrappers of other games, `crossword`, whose actions have no numbers, `quoridor`, which OpenSpiel
itself calls faulty, and `repeated_leduc_poker`, whose payoffs do not add up to zero before the end.
"""

from collections.abc import Mapping
from functools import lru_cache
from importlib import import_module
from random import Random
from typing import Any, Literal, Self

from mas.core.errors import ConfigError
from mas.core.naming import did_you_mean
from mas.scenarios.bridges.packages import load_package
from mas.scenarios.game import GameEnvironment
from mas.scenarios.game_rules import BridgeRules, named_actions

_NAMES = """
2048 amazons antichess backgammon banqi bargaining battleship blackjack blotto breakthrough bridge
capture_the_flag catch checkers chess chinese_checkers cliff_walking clobber coin_game colored_trails
connect_four coop_box_pushing coordinated_mp crazy_eights crazyhouse cribbage cursor_go dark_chess dark_hex
dark_hex_ir deep_sea dots_and_boxes dou_dizhu einstein_wurfelt_nicht euchre first_sealed_auction gin_rummy go
go_fish gomoku goofspiel hanabi havannah hearts hex hive kriegspiel kuhn_poker laser_tag latent_ttt leduc_poker
lewis_signaling liars_dice liars_dice_ir lines_of_action maedn mancala markov_soccer matching_pennies_3p
matrix_bos matrix_brps matrix_cd matrix_coordination matrix_mp matrix_pd matrix_rps matrix_rpsw matrix_sh
matrix_shapleys_game mnk morpion_solitaire nim nine_mens_morris oh_hell oshi_zumo othello oware pathfinding
pentago phantom_go phantom_ttt phantom_ttt_ir pig rbc sheriff shogi skat snake social_deduction solitaire spades
tic_tac_toe tiny_bridge_2p tiny_bridge_4p tiny_hanabi trade_comm twixt ultimate_tic_tac_toe universal_poker
xiangqi y yacht
"""

GAMES = tuple(_NAMES.split())
"""Names without parameters; each takes its own, as `kuhn_poker(players=3)`."""


EXTRA = "open-spiel"
OWN = {"simple_negotiation": "mas.scenarios.bridges.open_spiel_negotiation"}
"""Games that are written here: name -> the module that registers it with OpenSpiel when it is imported."""


def open_environment(name: str) -> GameEnvironment:
    """A game by OpenSpiel's name, one of `GAMES`, with its parameters in brackets where it has any.

    Raises:
        ConfigError: OpenSpiel is not installed, the game is not among those that are tested, or it does not take these
            parameters.
    """
    return GameEnvironment(OpenSpielGame(name))


@lru_cache(maxsize=64)
def load_game(name: str) -> Any:
    """OpenSpiel's game.

    Raises:
        ConfigError: as `open_environment`.
    """
    pyspiel = load_package("pyspiel", EXTRA)
    short = name.partition("(")[0]
    if short in OWN:
        import_module(OWN[short])
    elif short not in GAMES:
        raise ConfigError(f"open_spiel has no tested game {short!r}. {did_you_mean(short, (*GAMES, *OWN))}")
    try:
        return pyspiel.load_game(name)
    except pyspiel.SpielError as error:
        raise ConfigError(f"open_spiel cannot make {name!r}: {error}") from error


def is_open(game: Any) -> bool:
    """Whether nothing is hidden from anybody."""
    return bool(game.get_type().information == game.get_type().Information.PERFECT_INFORMATION)


def is_in_turn(game: Any) -> bool:
    """Whether one seat moves at a time; else all do, as mean-field games cannot be opened."""
    return bool(game.get_type().dynamics == game.get_type().Dynamics.SEQUENTIAL)


def legal_actions(state: Any, seat: int) -> dict[str, int]:
    """A seat's legal actions by their text."""
    return named_actions((action, state.action_to_string(seat, action)) for action in state.legal_actions(seat))


class OpenSpielGame:
    """Satisfies `mas.scenarios.game_rules.GameSource`."""

    def __init__(self, name: str) -> None:
        self.game = load_game(name)
        kind, pyspiel = self.game.get_type(), load_package("pyspiel", EXTRA)
        self.shows = _shown(is_open(self.game), kind)
        payoff, total = _payoff(self.game, kind, pyspiel)
        self.rules = BridgeRules(
            name=f"open_spiel:{name}",
            seats=tuple(f"player_{number}" for number in range(self.game.num_players())),
            payoff=payoff,
            total=total,
            floor=float(self.game.min_utility()),
            longest=int(self.game.max_game_length()),
            has_chance=kind.chance_mode != pyspiel.GameType.ChanceMode.DETERMINISTIC,
            dynamics="sequential" if is_in_turn(self.game) else "simultaneous",
        )

    def actions(self) -> int:
        return int(self.game.num_distinct_actions())

    def begin(self, seed: int) -> "OpenSpielPosition":
        position = OpenSpielPosition(self.game.new_initial_state(), self.shows)
        position.draw(seed)
        return position


class OpenSpielPosition:
    """Satisfies `mas.scenarios.game_rules.Position`."""

    def __init__(self, state: Any, shows: Literal["observation", "information_state"]) -> None:
        self._state, self._shows = state, shows

    def to_move(self) -> tuple[int, ...]:
        state = self._state
        if state.is_terminal():
            return ()
        if not state.is_simultaneous_node():
            return (state.current_player(),)
        return tuple(seat for seat in range(state.num_players()) if state.legal_actions(seat))

    def legal(self, seat: int) -> Mapping[str, int]:
        return legal_actions(self._state, seat)

    def seen(self, seat: int) -> str:
        state = self._state
        if self._shows == "observation":
            return str(state.observation_string(seat))
        return str(state.information_state_string(seat))

    def advance(self, actions: Mapping[int, int], seed: int) -> None:
        if self._state.is_simultaneous_node():
            # Who has no legal action takes part with action 0, as OpenSpiel has it.
            self._state.apply_actions([actions.get(seat, 0) for seat in range(self._state.num_players())])
        else:
            (action,) = actions.values()
            self._state.apply_action(action)
        self.draw(seed)

    def draw(self, seed: int) -> None:
        """Let chance move until somebody decides or the game is over."""
        state = self._state
        random = Random(seed) if state.is_chance_node() else None
        while random is not None and state.is_chance_node():
            actions, chances = zip(*state.chance_outcomes(), strict=True)
            state.apply_action(random.choices(actions, chances)[0])

    def totals(self) -> tuple[float, ...]:
        return tuple(self._state.returns())

    def clone(self) -> Self:
        return type(self)(self._state.clone(), self._shows)

    def render(self) -> str:
        return str(self._state)

    def copy_state(self) -> Any:
        """OpenSpiel's own state, a copy: for its search and its solvers."""
        return self._state.clone()


def _shown(is_perfect: bool, kind: Any) -> Literal["observation", "information_state"]:
    """Which text a seat sees: the board where all is open, all that it was ever told where not."""
    if kind.provides_observation_string and (is_perfect or not kind.provides_information_state_string):
        return "observation"
    return "information_state"


def _payoff(game: Any, kind: Any, pyspiel: Any) -> tuple[Literal["fixed", "shared", "free"], float]:
    """How payoffs hang together, and their sum where it is fixed."""
    utility = pyspiel.GameType.Utility
    if kind.utility in (utility.ZERO_SUM, utility.CONSTANT_SUM):
        return "fixed", float(game.utility_sum())
    return ("shared" if kind.utility == utility.IDENTICAL else "free"), 0.0
