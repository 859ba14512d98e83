"""Simple negotiation: what can be offered and accepted, what a trade moves, the end, the payoff, hidden information."""

from itertools import product
from random import Random
from typing import Any

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Task
from mas.core.errors import ConfigError
from mas.scenarios import build_scenario
from mas.scenarios.bridges.simple_negotiation import ACCEPT, DENY, OFFERS, START, VALUES, Bargain
from mas.scenarios.two_player.environment import TwoPlayerEnvironment
from mas.scenarios.two_player.games import GAMES
from mas.testing.environment import EnvironmentContract

ORE_FOR_WHEAT, WHEAT_FOR_ORE, ORE_FOR_TWO, TWO_FOR_ORE = 2, 3, 4, 5
"""Offers: what the one who offers gets, for what it gives."""
CHEAP, DEAR = (1, 4), (2, 3)
"""Values of wheat and ore: to the first an ore is worth four wheat, to the second one and a half."""


def played(*actions: int, values: tuple[tuple[int, int], tuple[int, int]] = (CHEAP, DEAR)) -> Bargain:
    bargain = Bargain(values)
    for action in actions:
        assert action in bargain.legal(), f"{action} after {bargain.moves}"
        bargain = bargain.after(action)
    return bargain


def every_state(bargain: Bargain) -> list[Bargain]:
    if bargain.is_over:
        return [bargain]
    return [bargain, *(state for action in bargain.legal() for state in every_state(bargain.after(action)))]


EVERY = every_state(Bargain((CHEAP, DEAR)))


def test_no_trade_makes_or_loses_units_and_nobody_owes_any() -> None:
    for state in EVERY:
        assert [sum(units) for units in zip(*state.units, strict=True)] == [2 * count for count in START]
        assert min(min(units) for units in state.units) >= 0


def test_a_trade_moves_what_was_offered_from_the_one_who_offers_and_back() -> None:
    assert played(TWO_FOR_ORE).units == (START, START), "an offer alone moves nothing"
    # Player 0 gives 1 ore for 2 wheat.
    assert played(TWO_FOR_ORE, ACCEPT).units == ((4, 1), (0, 3))
    # Player 1 offers 1 wheat for 1 ore; player 0 accepts.
    assert played(DENY, ORE_FOR_WHEAT, ACCEPT).units == ((3, 1), (1, 3))


def test_an_answer_that_is_no_acceptance_ends_the_offer() -> None:
    assert ACCEPT in played(TWO_FOR_ORE).legal()
    assert ACCEPT not in played(TWO_FOR_ORE, DENY).legal()
    counter = played(TWO_FOR_ORE, ORE_FOR_WHEAT)
    assert counter.offer == OFFERS[0]
    assert counter.units == (START, START)
    assert ACCEPT not in played().legal(), "there is nothing to accept yet"
    assert ACCEPT not in played(TWO_FOR_ORE, ACCEPT).legal(), "a trade is made once"


def test_nobody_offers_or_accepts_what_it_does_not_have() -> None:
    # After 2 wheat for 1 ore player 0 has no wheat, so neither of the offers that give wheat is left.
    assert played(ORE_FOR_TWO, ACCEPT, DENY).units[0] == (0, 3)
    assert played(ORE_FOR_TWO, ACCEPT).player == 0
    assert set(played(ORE_FOR_TWO, ACCEPT).legal()) == {DENY, WHEAT_FOR_ORE, TWO_FOR_ORE}
    # Player 1 has given both of its wheat away and is asked for two more.
    assert played(TWO_FOR_ORE, ACCEPT, TWO_FOR_ORE).legal() == [DENY]


def test_it_is_over_after_four_turns_or_when_the_last_has_nothing_to_answer() -> None:
    assert played(DENY, DENY, DENY).is_over
    assert played(DENY, DENY, ORE_FOR_WHEAT).legal() == [DENY, ACCEPT], "the last turn makes no offer"
    assert played(DENY, DENY, ORE_FOR_WHEAT, DENY).is_over
    assert played(ORE_FOR_WHEAT, ACCEPT, ORE_FOR_WHEAT, ACCEPT).is_over
    assert all(len(state.moves) >= 3 for state in EVERY if state.is_over)


def test_decisions_are_as_many_as_counted_by_hand() -> None:
    """Turn 1: 1. Turn 2: 5 (four offers and none). Turn 3: 29 = 4 offers x (deny, accept, 4 offers) + 5 after none.
    Turn 4 answers an offer of turn 3. 25 histories of turn 3 have no trade: 4 offers each. In the other 4 player 0 has
    1 wheat and 3 ore (3 offers left), 3 and 1 (4), 0 and 3 (2), 4 and 1 (4). Together 1 + 5 + 29 + 100 + 13 = 148."""
    assert sum(not state.is_over for state in EVERY) == 148


def test_the_greater_gain_in_own_values_wins_and_equal_gains_draw() -> None:
    # Two wheat for an ore. To player 0 worth 4 - 2 = 2, to player 1 4 - 3 = 1.
    won = played(ORE_FOR_TWO, ACCEPT, DENY)
    assert (won.gain(0), won.gain(1), won.payoff()) == (2, 1, 1)
    # Player 0 gives an ore (4) for a wheat (1): -3; player 1 gets 3 for 2: +1.
    lost = played(WHEAT_FOR_ORE, ACCEPT, DENY)
    assert (lost.gain(0), lost.gain(1), lost.payoff()) == (-3, 1, -1)
    assert played(DENY, DENY, DENY).payoff() == 0
    # Two wheat for an ore is worth 3 - 2 = 1 to player 0 and 4 - 3 = 1 to player 1: both gain as much.
    assert played(ORE_FOR_TWO, ACCEPT, DENY, values=((1, 3), (2, 3))).payoff() == 0


def test_what_one_wins_the_other_loses_from_either_seat() -> None:
    swapped = {(state.moves, state.payoff()) for state in every_state(Bargain((DEAR, DEAR))) if state.is_over}
    assert {payoff for _, payoff in swapped} == {-1, 0, 1}
    for state in EVERY:
        mirrored = Bargain((DEAR, CHEAP), (state.units[1], state.units[0]))
        assert mirrored.payoff() == -state.payoff()


def test_a_player_sees_its_own_values_and_nothing_of_the_others() -> None:
    """Whatever the other one's values are, all that is shown is the same, in every history."""
    for state in EVERY:
        for player, other in ((0, 1), (1, 0)):
            shown = set()
            for values in VALUES:
                both = (CHEAP, values) if player == 0 else (values, CHEAP)
                shown.add(Bargain(both, state.units, state.moves).seen(player))
            assert len(shown) == 1
            assert shown == {Bargain((CHEAP, CHEAP), state.units, state.moves).seen(player)}, other
    texts = {Bargain((values, DEAR)).seen(0) for values in VALUES}
    assert len(texts) == len(VALUES)
    assert "Worth to you: wheat 1, ore 4. You have 2 wheat and 2 ore. So far: -" in texts


def test_what_was_said_is_shown_with_what_came_of_it() -> None:
    assert played(ORE_FOR_TWO, ACCEPT).seen(0) == (
        "Worth to you: wheat 1, ore 4. You have 3 ore. So far: player_0: I give 2 wheat, you give 1 ore; "
        "player_1: Accept"
    )


pytest.importorskip("pyspiel")


class TestNegotiation(EnvironmentContract):
    def make_environment(self) -> TwoPlayerEnvironment:
        return TwoPlayerEnvironment((GAMES["simple_negotiation"],), "letters", 1)

    def task(self, number: int) -> Task:
        return Task(id=f"train-{number}", seed=number)


def begun(seed: int, **options: Any) -> TwoPlayerEnvironment:
    options = {"game": "simple_negotiation", **options}
    environment = build_scenario(ScenarioOptions(name="two_player", options=options)).environment()
    assert isinstance(environment, TwoPlayerEnvironment)
    environment.reset(Task(id="t", seed=seed))
    return environment


def test_letters_say_what_words_do() -> None:
    words, letters = begun(3, style="words"), begun(3)
    worth = words.observe("player_0").fields["seen"]
    assert (
        letters.observe("player_0").fields["seen"]
        == worth[len("Worth to you: wheat ")] + worth[len("Worth to you: wheat 1, ore ")]
    )
    assert words.legal("player_0") == ("No offer", *map(str, OFFERS))
    assert letters.legal("player_0") == tuple("nabcd")
    words.step({"player_0": "i give 2 wheat, you give 1 ore"})
    letters.step({"player_0": "c"})
    assert words.legal("player_1")[:2] == ("Deny", "Accept")
    assert letters.observe("player_1").fields["seen"][2:] == "c"
    words.step({"player_1": "Accept"})
    letters.step({"player_1": "y"})
    assert letters.game.snapshot() == words.game.snapshot()
    assert letters.observe("player_0").fields["seen"][2:] == "cy"


def test_an_illegal_offer_loses() -> None:
    environment = begun(0)
    for letter in "cy":
        environment.step({environment.to_move()[0]: letter})
    step = environment.step({"player_0": "c"})
    assert step.illegal == ("player_0",)
    assert step.rewards == {"player_0": {"payoff": -1}, "player_1": {"payoff": 1}}


@pytest.mark.nightly(of=16)
def test_the_same_seed_is_the_same_game_and_every_deal_comes() -> None:
    deals = [
        tuple(begun(seed).observe(seat).fields["seen"] for seat in ("player_0", "player_1")) for seed in range(200)
    ]
    assert deals == [
        tuple(begun(seed).observe(seat).fields["seen"] for seat in ("player_0", "player_1")) for seed in range(200)
    ]
    names = [f"{wheat}{ore}" for wheat, ore in VALUES]
    assert set(deals) == set(product(names, names))


def test_the_game_pays_what_its_rules_say() -> None:
    """Sixty games at random: the bridge's payoff is that of the same moves by the rules alone."""
    for seed in range(60):
        environment, random, moves, total = begun(seed), Random(seed), list[str](), 0.0
        values = tuple(tuple(map(int, environment.observe(seat).fields["seen"])) for seat in environment.spec.seats)
        bargain = Bargain(values)
        while moving := environment.to_move():
            move = random.choice(environment.legal(moving[0]))
            bargain = bargain.after("nyabcd".index(move))
            moves.append(move)
            total += environment.step({moving[0]: move}).rewards["player_0"]["payoff"]
        assert (total, bargain.is_over) == (bargain.payoff(), True), moves


def test_no_trade_cannot_be_beaten_and_an_open_purse_can() -> None:
    """To offer and accept nothing gains nothing and loses nothing, from either seat: NashConv 0. Who accepts everything
    loses every game in which the other one offers an ore's price for a wheat: 1 from each seat, 2 together."""
    scenario = build_scenario(ScenarioOptions(name="two_player", options={"game": "simple_negotiation"}))
    decisions = scenario.decisions()
    never = {one.key: {action: float(action == "n") for action in one.legal} for one in decisions}
    open_purse = {
        one.key: {action: float(action == ("y" if "y" in one.legal else "n")) for action in one.legal}
        for one in decisions
    }
    assert scenario.solve(never) == {"nash_conv": pytest.approx(0)}
    assert scenario.solve(open_purse) == {"nash_conv": pytest.approx(2)}


def test_a_solved_game_plays_it_and_search_says_why_it_does_not() -> None:
    from mas.scenarios.bridges.open_spiel_players import cfr, mcts

    environment = begun(0)
    solved = cfr("simple_negotiation", 2)
    assert solved(environment, "player_0", Random(0)) in environment.game.legal("player_0")
    with pytest.raises(ConfigError, match="mcts cannot play 'simple_negotiation': the game cannot draw deals"):
        mcts("simple_negotiation")
