"""PettingZoo's classic games that are tested: what holds for each."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from mas.scenarios.bridges.pettingzoo_texts import (
    Chess,
    ConnectFour,
    Go,
    PettingZooText,
    PokerText,
    RockPaperScissors,
    TicTacToe,
)
from mas.scenarios.bridges.rules import BridgeRules


@dataclass(frozen=True, slots=True, kw_only=True)
class PettingZooRules:
    """A zero-sum game for two.

    Attributes:
        module: where its `raw_env` is.
        floor: the least that a seat can have in the end. longest: decisions; games that could go on for ever end there.
        at_once: both move at the same time.
    """

    module: str
    text: PettingZooText
    floor: float
    longest: int
    seats: tuple[str, ...] = ("player_0", "player_1")
    has_chance: bool = False
    at_once: bool = False

    def rules(self, name: str) -> BridgeRules:
        """As the bridge takes them."""
        return BridgeRules(
            name=name,
            seats=self.seats,
            payoff="fixed",
            floor=self.floor,
            longest=self.longest,
            has_chance=self.has_chance,
            dynamics="simultaneous" if self.at_once else "sequential",
        )


_CLASSIC = "pettingzoo.classic"
_CARDS = f"{_CLASSIC}.rlcard_envs"

GAMES: Mapping[str, PettingZooRules] = MappingProxyType(
    {
        "classic/chess_v6": PettingZooRules(module=f"{_CLASSIC}.chess.chess", text=Chess(), floor=-1, longest=600),
        "classic/connect_four_v3": PettingZooRules(
            module=f"{_CLASSIC}.connect_four.connect_four", text=ConnectFour(), floor=-1, longest=42
        ),
        "classic/go_v5": PettingZooRules(
            module=f"{_CLASSIC}.go.go", text=Go(), floor=-1, longest=722, seats=("black_0", "white_0")
        ),
        # Chips are counted in big blinds of 2; the most that two raises of 2 and two of 4 make of it is 14.
        "classic/leduc_holdem_v4": PettingZooRules(
            module=f"{_CARDS}.leduc_holdem", text=PokerText(), floor=-7, longest=12, has_chance=True
        ),
        "classic/rps_v2": PettingZooRules(
            module=f"{_CLASSIC}.rps.rps", text=RockPaperScissors(), floor=-15, longest=15, at_once=True
        ),
        # 100 chips each.
        "classic/texas_holdem_no_limit_v6": PettingZooRules(
            module=f"{_CARDS}.texas_holdem_no_limit", text=PokerText(), floor=-100, longest=120, has_chance=True
        ),
        # Four raises in each of four rounds, of 2, 2, 4 and 4 chips, on a big blind of 2: 50 chips.
        "classic/texas_holdem_v4": PettingZooRules(
            module=f"{_CARDS}.texas_holdem", text=PokerText(), floor=-25, longest=48, has_chance=True
        ),
        "classic/tictactoe_v3": PettingZooRules(
            module=f"{_CLASSIC}.tictactoe.tictactoe",
            text=TicTacToe(),
            floor=-1,
            longest=9,
            seats=("player_1", "player_2"),
        ),
    }
)
"""Id -> game. Hanabi is not among them: it is OpenSpiel's, `open_spiel:hanabi`."""
