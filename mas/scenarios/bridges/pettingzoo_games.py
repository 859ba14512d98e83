"""PettingZoo's classic games that are tested: what holds for each."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, Protocol

from mas.scenarios.bridges.packages import load_package
from mas.scenarios.game_rules import BridgeRules


class PettingZooText(Protocol):
    """How a game reads."""

    def seen(self, environment: Any, agent: str, observation: Any) -> str:
        """What this agent sees, and nothing else; asking changes nothing."""

    def word(self, environment: Any, agent: str, action: int) -> str:
        """What an action that is legal now is called."""


class TicTacToe:
    """A board of marks; cells are named by row and column, both from 0."""

    def seen(self, environment: Any, agent: str, observation: Any) -> str:
        marks = [".XO"[mark] for mark in environment.board.squares]
        # Cells are numbered down the columns.
        rows = ["".join(marks[row::3]) for row in range(3)]
        return "\n".join([*rows, f"You are {'XO'[environment.possible_agents.index(agent)]}."])

    def word(self, environment: Any, agent: str, action: int) -> str:
        column, row = divmod(action, 3)
        return f"{row},{column}"


class ConnectFour:
    """A board of discs with its columns numbered from 0."""

    def seen(self, environment: Any, agent: str, observation: Any) -> str:
        discs = "".join(".XO"[disc] for disc in environment.board)
        rows = [discs[start : start + 7] for start in range(0, len(discs), 7)]
        return "\n".join([*rows, "0123456", f"You are {'XO'[environment.possible_agents.index(agent)]}."])

    def word(self, environment: Any, agent: str, action: int) -> str:
        return str(action)


class RockPaperScissors:
    """What the other did last, which is all that the game tells."""

    def seen(self, environment: Any, agent: str, observation: Any) -> str:
        world = environment.unwrapped
        left = world.max_cycles - world.num_moves
        return f"The other's last move: {world._moves[observation].lower()}. Rounds left: {left}."

    def word(self, environment: Any, agent: str, action: int) -> str:
        return str(environment.unwrapped._moves[action].lower())


class PokerText:
    """Poker: own hand, open cards, everybody's chips."""

    def seen(self, environment: Any, agent: str, observation: Any) -> str:
        seen = environment.env.get_state(environment.possible_agents.index(agent))["raw_obs"]
        hand = seen["hand"]
        public = seen["public_cards"] if "public_cards" in seen else [seen["public_card"]]
        chips = ", ".join(
            f"{name} {int(paid)}" for name, paid in zip(environment.possible_agents, seen["all_chips"], strict=True)
        )
        own = hand if isinstance(hand, str) else " ".join(hand)
        shown = " ".join(card for card in public if card) or "none"
        return f"You are {agent}. Your cards: {own}. Open cards: {shown}. Chips in the pot: {chips}."

    def word(self, environment: Any, agent: str, action: int) -> str:
        actions = environment.env.actions
        if isinstance(actions, list):
            return str(actions[action])
        return str(actions(action).name).lower().replace("_", " ")


class Chess:
    """A board from white's side with its FEN; moves in UCI (`e2e4`)."""

    def seen(self, environment: Any, agent: str, observation: Any) -> str:
        board = environment.board
        side = ("white", "black")[environment.possible_agents.index(agent)]
        return f"{board}\n{board.fen()}\nYou are {side}."

    def word(self, environment: Any, agent: str, action: int) -> str:
        utils = load_package("pettingzoo.classic.chess.chess_utils", "pettingzoo")
        return str(utils.action_to_move(environment.board, action, environment.possible_agents.index(agent)).uci())


class Go:
    """A board of stones; points in GTP (`A19`, `pass`)."""

    def seen(self, environment: Any, agent: str, observation: Any) -> str:
        return f"{environment._go.__str__(colors=False)}\nYou are {agent}."

    def word(self, environment: Any, agent: str, action: int) -> str:
        size = environment._N
        if action == size * size:
            return "pass"
        row, column = divmod(action, size)
        return f"{'ABCDEFGHJKLMNOPQRSTUVWXYZ'[column]}{size - row}"


@dataclass(frozen=True, slots=True, kw_only=True)
class PettingZooRules(BridgeRules):
    """A zero-sum game for two. `module`: where its `raw_env` is."""

    name: str = ""
    module: str
    text: PettingZooText
    seats: tuple[str, ...] = ("player_0", "player_1")
    payoff: Literal["fixed", "shared", "free"] = "fixed"
    has_chance: bool = False


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
            module=f"{_CLASSIC}.rps.rps", text=RockPaperScissors(), floor=-15, longest=15, dynamics="simultaneous"
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
