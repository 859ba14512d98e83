"""Games played out exactly, and policies mixed so that nobody can tell."""

from itertools import product
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mas.config.options import ScenarioOptions
from mas.core.errors import ConfigError
from mas.core.scenario import Mixable
from mas.scenarios import build_scenario

pytest.importorskip("pyspiel")
Table = dict[str, dict[str, float]]


def scenario_of(game: str, style: str = "letters") -> Any:
    return build_scenario(ScenarioOptions(name="two_player", options={"game": game, "style": style}))


KUHN = scenario_of("kuhn_poker")


def table(scenario: Any, random: Random, *, is_pure: bool = False) -> Table:
    """Any policy of both seats."""
    found = {}
    for one in scenario.decisions():
        chosen = random.randrange(len(one.legal))
        weights = [float(at == chosen) if is_pure else random.random() for at in range(len(one.legal))]
        found[one.key] = {text: weight / sum(weights) for text, weight in zip(one.legal, weights, strict=True)}
    return found


def value(scenario: Any, policy: Table) -> float:
    return sum(chance * got[0] for got, chance in scenario.outcomes(policy))


def part(scenario: Any, policy: Table, seat: str) -> Table:
    own = {one.key for one in scenario.decisions() if one.seat == seat}
    return {key: chances for key, chances in policy.items() if key in own}


def test_two_player_games_can_be_mixed() -> None:
    assert isinstance(KUHN, Mixable)


def test_kuhn_poker_of_who_always_passes_and_who_always_bets() -> None:
    passes, bets = ({one.key: {"p": 1.0 - bet, "b": bet} for one in KUHN.decisions()} for bet in (0.0, 1.0))
    assert KUHN.outcomes(passes) == [((-1.0, 1.0), pytest.approx(0.5)), ((1.0, -1.0), pytest.approx(0.5))]
    assert KUHN.outcomes(bets) == [((-2.0, 2.0), pytest.approx(0.5)), ((2.0, -2.0), pytest.approx(0.5))]
    mixed = {**part(KUHN, bets, "player_0"), **part(KUHN, passes, "player_1")}
    assert KUHN.outcomes(mixed) == [((1.0, -1.0), pytest.approx(1.0))], "the second seat gives up every pot"


@pytest.mark.parametrize("game", ["kuhn_poker", "rock_paper_scissors"])
@pytest.mark.parametrize("style", ["letters", "words"])
def test_outcomes_agree_with_open_spiel(game: str, style: str) -> None:
    from open_spiel.python import policy as policies
    from open_spiel.python.algorithms import expected_game_score

    from mas.scenarios.bridges.open_spiel import legal_actions, load_game
    from mas.scenarios.two_player.games import GAMES

    scenario, loaded = scenario_of(game, style), load_game(GAMES[game].name)
    found = table(scenario, Random(3))
    tabular = policies.TabularPolicy(loaded)
    for state, seat in product(tabular.states, (0, 1)):
        seen = state.information_state_string(seat)
        if state.is_simultaneous_node() or state.current_player() == seat:
            row = tabular.policy_for_key(seen)
            for text, action in legal_actions(state, seat).items():
                row[action] = found[seen][text if style == "words" else GAMES[game].letter(text)]
    both = tabular if game == "rock_paper_scissors" else [tabular, tabular]
    exact = expected_game_score.policy_value(loaded.new_initial_state(), both)
    assert value(scenario, found) == pytest.approx(exact[0])
    assert sum(chance for _, chance in scenario.outcomes(found)) == pytest.approx(1)


@settings(deadline=None, max_examples=30)
@given(st.integers(0, 10**6), st.integers(1, 4), st.booleans())
def test_a_mix_gets_what_drawing_one_of_them_gets_against_anybody(seed: int, count: int, is_pure: bool) -> None:
    random = Random(seed)
    members = [table(KUHN, random, is_pure=is_pure) for _ in range(count)]
    shares = [random.random() for _ in members]
    for seat, other in (("player_0", "player_1"), ("player_1", "player_0")):
        one = KUHN.mixed(seat, [part(KUHN, member, seat) for member in members], shares)
        for _ in range(3):
            theirs = part(KUHN, table(KUHN, random), other)
            drawn = sum(
                share * value(KUHN, {**part(KUHN, member, seat), **theirs})
                for share, member in zip(shares, members, strict=True)
            )
            assert value(KUHN, {**one, **theirs}) == pytest.approx(drawn / sum(shares))
        for chances in one.values():
            assert sum(chances.values()) == pytest.approx(1)


def test_a_mix_is_not_the_mean_of_its_policies() -> None:
    """With a 0, one first passes and then calls, the other first bets: who is asked again has passed, so it calls."""
    seen = [one.key for one in KUHN.decisions() if one.seat == "player_0"]
    first, again = "0", "0pb"
    assert {first, again} <= set(seen)
    calls = {key: {"p": 1.0, "b": 0.0} for key in seen} | {again: {"p": 0.0, "b": 1.0}}
    bets = {key: {"p": 1.0, "b": 0.0} for key in seen} | {first: {"p": 0.0, "b": 1.0}}
    mixed = KUHN.mixed("player_0", [calls, bets], [0.5, 0.5])
    assert mixed[first] == {"p": 0.5, "b": 0.5}
    assert mixed[again] == {"p": 0.0, "b": 1.0}
    assert KUHN.mixed("player_0", [bets, bets], [0.5, 0.5])[again] == {"p": 1.0, "b": 0.0}, "where nobody comes"


@pytest.mark.parametrize("shares", [[0.5], [0.0, 0.0], [1.0, -0.5]])
def test_shares_that_do_not_fit_are_refused(shares: list[float]) -> None:
    both = [part(KUHN, table(KUHN, Random(seed)), "player_0") for seed in range(2)]
    with pytest.raises(ConfigError, match="2 policies with shares"):
        KUHN.mixed("player_0", both, shares)
