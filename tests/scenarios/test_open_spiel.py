"""OpenSpiel's games behind the contract; `pytest --all` plays all of them."""

import re
import sys
from collections import Counter, defaultdict
from collections.abc import Mapping
from importlib.util import find_spec
from itertools import product
from random import Random

import pytest
from games import GameContract, check_game, fuzz, play, task, totals

from mas.core.errors import ConfigError, EnvironmentFault
from mas.scenarios.bridges import open_bridge
from mas.scenarios.bridges.open_spiel import GAMES, OpenSpielPosition, load_game, open_environment
from mas.scenarios.bridges.open_spiel_solvers import Policy, nash_conv
from mas.scenarios.game import GameEnvironment

pytestmark = pytest.mark.skipif(find_spec("pyspiel") is None, reason="OpenSpiel is not installed: mas[open-spiel]")

SAMPLE = (
    "kuhn_poker",  # chance, hidden cards
    "leduc_poker",  # chance in the middle
    "tic_tac_toe",  # no chance, all open
    "matrix_rps",  # one move at once
    "matching_pennies_3p",  # three at once
    "goofspiel(num_cards=4)",  # at once with chance
    "tiny_hanabi",  # shared payoff
    "first_sealed_auction",  # neither zero-sum nor shared
)
FUZZED = ("pig", "connect_four", "hanabi(players=3)", "universal_poker", "coop_box_pushing", "liars_dice")


@pytest.mark.parametrize("name", SAMPLE, scope="class")
class TestOpenSpiel(GameContract):
    @pytest.fixture(autouse=True)
    def _has_chance(self, name: str) -> None:
        self.name = name
        self.tasks_differ = self.make_environment().rules.has_chance

    def make_environment(self) -> GameEnvironment:
        return open_environment(self.name)


def test_every_tested_game_is_one_that_openspiel_has() -> None:
    import pyspiel

    assert len(GAMES) == len(set(GAMES)) >= 90
    assert set(GAMES) <= set(pyspiel.registered_names())


@pytest.mark.nightly
@pytest.mark.parametrize("name", GAMES)
def test_every_tested_game_plays(name: str) -> None:
    assert check_game(open_environment(name), seeds=3, decisions=150) >= 3


@pytest.mark.parametrize("name", FUZZED)
def test_ten_thousand_random_steps(name: str) -> None:
    assert fuzz(open_environment(name), 10_000 // len(FUZZED) + 1) > 0


def test_payoffs_are_what_openspiel_returns_for_the_same_actions() -> None:
    import pyspiel

    for name, seed in product(("leduc_poker", "tiny_hanabi", "matrix_rps", "pig"), range(10)):
        environment = open_environment(name)
        environment.reset(task(seed))
        paid = totals(environment, play(environment, {}, Random(seed)))
        assert isinstance(environment.position, OpenSpielPosition)
        again = pyspiel.load_game(name).new_initial_state()
        history = environment.position._state.history()
        if again.is_simultaneous_node():
            again.apply_actions(history)
        else:
            for action in history:
                again.apply_action(action)
        assert again.is_terminal()
        assert list(paid.values()) == pytest.approx(again.returns())


def test_chance_is_drawn_by_its_probabilities_and_from_the_seed_alone() -> None:
    environment, deals = open_environment("kuhn_poker"), Counter[str]()
    for seed in range(1200):
        environment.reset(task(seed))
        deals[environment.render()] += 1
        environment.reset(task(seed))
        deals[environment.render()] += 1
    # Six deals of two of three cards, each with 1/6: four standard deviations are 4 sqrt(1200 x 5/36) = 52.
    assert len(deals) == 6
    assert all(count / 2 == pytest.approx(200, abs=52) and count % 2 == 0 for count in deals.values())


def test_a_seat_does_not_see_the_others_card() -> None:
    environment, seen = open_environment("kuhn_poker"), defaultdict(set)
    for seed in range(60):
        environment.reset(task(seed))
        own, other = environment.render().split()
        assert environment.observe("player_0").fields["seen"] == own
        seen[own].add(other)
    assert sorted(len(others) for others in seen.values()) == [2, 2, 2]


def test_a_game_takes_parameters_and_they_are_part_of_its_name() -> None:
    environment = open_bridge("open_spiel:kuhn_poker(players=3)")
    assert environment.spec.seats == ("player_0", "player_1", "player_2")
    environment.reset(task(0))
    with pytest.raises(EnvironmentFault, match=r"not of 'open_spiel:kuhn_poker'"):
        open_environment("kuhn_poker").restore(environment.snapshot())


def test_what_a_seat_reads_in_a_game_that_is_open() -> None:
    environment = open_bridge("open_spiel:tic_tac_toe")
    environment.reset(task(0))
    environment.step({"player_0": "X(1,1)"})
    assert environment.observe("player_1").fields["seen"] == "...\n.x.\n..."
    assert environment.step({"player_1": "x(1,1)"}).illegal == ("player_1",)
    assert environment.step({"player_1": "8"}).illegal == ()
    assert environment.observe("player_0").fields["seen"] == "...\n.x.\n..o"


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("kuhn", "no tested game 'kuhn'. Did you mean 'kuhn_poker'"),
        ("crossword", "no tested game 'crossword'"),
        ("mfg_garnet", "no tested game 'mfg_garnet'"),
        ("kuhn_poker(cards=3)", "cannot make 'kuhn_poker"),
        ("kuhn_poker(players=99)", "cannot make 'kuhn_poker"),
        ("kuhn_poker(players=2", "cannot make 'kuhn_poker"),
    ],
)
def test_a_game_that_cannot_be_opened_is_refused(name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(why)):
        open_bridge(f"open_spiel:{name}")


def test_without_openspiel_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspiel", None)
    load_game.cache_clear()
    with pytest.raises(ConfigError, match=r"pip install 'mas\[open-spiel\]'"):
        open_bridge("open_spiel:kuhn_poker")


def uniform(seen: str, legal: tuple[str, ...]) -> Mapping[str, float]:
    return {action: 1 / len(legal) for action in legal}


def equilibrium(seen: str, legal: tuple[str, ...]) -> Mapping[str, float]:
    """One of Kuhn's (1950): the first bets J and K never, calls Q with 1/3; the second bets or calls as listed."""
    bets = {"0p": 1 / 3, "1pb": 1 / 3, "1b": 1 / 3, "2p": 1.0, "2pb": 1.0, "2b": 1.0}.get(seen, 0.0)
    return {"Bet": bets, "Pass": 1 - bets}


# Uniform play loses to the first's best answer and to the second's: 0.917 together, Kuhn's own policy to nobody's.
@pytest.mark.parametrize(("policy", "gain"), [(uniform, 11 / 12), (equilibrium, 0)])
def test_what_the_best_answers_to_a_policy_gain(policy: Policy, gain: float) -> None:
    assert nash_conv("kuhn_poker", policy) == pytest.approx(gain, abs=1e-9)


@pytest.mark.parametrize("said", [{}, {"Bet": 0.5}, {"Bet": 1.5, "Pass": -0.5}, {"Bet": 0.5, "Call": 0.5}])
def test_what_are_no_probabilities_is_refused(said: Mapping[str, float]) -> None:
    with pytest.raises(ConfigError, match="are no probabilities of"):
        nash_conv("kuhn_poker", lambda seen, legal: said)


def test_a_game_without_information_states_is_refused() -> None:
    with pytest.raises(ConfigError, match="it needs information states"):
        nash_conv("backgammon", uniform)


def test_what_both_choose_at_once_has_a_nash_conv_too() -> None:
    # Always rock: each gains 1 by paper. Rock and paper alike: paper against it wins 1/2, for each seat 1/2 in all.
    assert nash_conv("matrix_rps", lambda seen, legal: {"Rock": 1.0}) == pytest.approx(2.0)
    assert nash_conv("matrix_rps", lambda seen, legal: {"Rock": 0.5, "Paper": 0.5}) == pytest.approx(1.0)
    assert nash_conv("matrix_rps", uniform) == pytest.approx(0.0)
