"""Simple negotiation as a game of OpenSpiel's, so that its solvers measure it; importing this registers it.

Leaves out on purpose: tensors of what is seen, and deals that fit what a seat knows, which OpenSpiel's search (`mcts`)
cannot ask a game in Python for.
"""

from typing import Any

from mas.scenarios.bridges.packages import load_package
from mas.scenarios.bridges.simple_negotiation import FIRST_OFFER, OFFERS, TURNS, VALUES, Bargain

NAME = "simple_negotiation"
pyspiel: Any = load_package("pyspiel", "open-spiel")
_BaseGame: Any = pyspiel.Game
_BaseState: Any = pyspiel.State
_KIND = pyspiel.GameType(
    short_name=NAME,
    long_name="Simple negotiation",
    dynamics=pyspiel.GameType.Dynamics.SEQUENTIAL,
    chance_mode=pyspiel.GameType.ChanceMode.EXPLICIT_STOCHASTIC,
    information=pyspiel.GameType.Information.IMPERFECT_INFORMATION,
    utility=pyspiel.GameType.Utility.ZERO_SUM,
    reward_model=pyspiel.GameType.RewardModel.TERMINAL,
    max_num_players=2,
    min_num_players=2,
    provides_information_state_string=True,
    provides_information_state_tensor=False,
    provides_observation_string=False,
    provides_observation_tensor=False,
    parameter_specification={},
)
_LIMITS = pyspiel.GameInfo(
    num_distinct_actions=FIRST_OFFER + len(OFFERS),
    max_chance_outcomes=len(VALUES),
    num_players=2,
    min_utility=-1.0,
    max_utility=1.0,
    utility_sum=0.0,
    max_game_length=TURNS,
)


class NegotiationGame(_BaseGame):  # type: ignore[misc]
    """The game, by the names that OpenSpiel calls."""

    def __init__(self, params: Any = None) -> None:
        super().__init__(_KIND, _LIMITS, params or {})

    def new_initial_state(self) -> "NegotiationState":
        return NegotiationState(self)

    def make_py_observer(self, kind: Any = None, params: Any = None) -> "NegotiationObserver":
        return NegotiationObserver()


class NegotiationState(_BaseState):  # type: ignore[misc]
    """First chance draws the values of both players, then they take turns."""

    def __init__(self, game: NegotiationGame) -> None:
        super().__init__(game)
        self.dealt: tuple[tuple[int, ...], ...] = ()
        self.bargain: Bargain | None = None

    def current_player(self) -> int:
        if self.bargain is None:
            return int(pyspiel.PlayerId.CHANCE)
        return int(pyspiel.PlayerId.TERMINAL) if self.bargain.is_over else self.bargain.player

    def chance_outcomes(self) -> list[tuple[int, float]]:
        return [(number, 1 / len(VALUES)) for number in range(len(VALUES))]

    def is_terminal(self) -> bool:
        return self.bargain is not None and self.bargain.is_over

    def returns(self) -> list[float]:
        paid = float(self.bargain.payoff()) if self.bargain is not None and self.bargain.is_over else 0.0
        return [paid, -paid]

    def _legal_actions(self, player: int) -> list[int]:
        assert self.bargain is not None
        return self.bargain.legal()

    def _apply_action(self, action: int) -> None:
        if self.bargain is not None:
            self.bargain = self.bargain.after(action)
            return
        self.dealt = (*self.dealt, VALUES[action])
        if len(self.dealt) == 2:
            self.bargain = Bargain(self.dealt)

    def _action_to_string(self, player: int, action: int) -> str:
        if self.bargain is None:
            return f"values {VALUES[action]}"
        return self.bargain.action_text(action)

    def __str__(self) -> str:
        if self.bargain is None:
            return f"dealt: {self.dealt}"
        return "\n".join(f"player_{player}: {self.bargain.seen(player)}" for player in (0, 1))


class NegotiationObserver:
    """What a player is shown: all that it was ever told."""

    tensor = None

    def __init__(self) -> None:
        self.dict: dict[str, Any] = {}

    def set_from(self, state: NegotiationState, player: int) -> None:
        """Without tensors there is nothing to set."""

    def string_from(self, state: NegotiationState, player: int) -> str:
        """As `Bargain.seen`; before the deal is over nobody knows anything."""
        return "" if state.bargain is None else state.bargain.seen(player)


pyspiel.register_game(_KIND, NegotiationGame)
