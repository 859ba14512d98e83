"""PettingZoo's games behind the contract; `pytest --all` plays the long ones, too."""

import random
import sys
from collections.abc import Iterator
from copy import deepcopy
from importlib.util import find_spec
from random import Random
from typing import Any

import numpy as np
import pytest
from games import GameContract, check_game, fuzz, task

from mas.core.errors import ConfigError
from mas.scenarios.bridges import open_bridge
from mas.scenarios.bridges.packages import OwnChance
from mas.scenarios.bridges.pettingzoo import PettingZooGame, copied, open_environment
from mas.scenarios.bridges.pettingzoo_games import GAMES
from mas.scenarios.game import GameEnvironment
from mas.scenarios.game_rules import BridgeRules

pytestmark = pytest.mark.skipif(find_spec("pettingzoo") is None, reason="PettingZoo is not installed: mas[pettingzoo]")

SAMPLE = ("classic/tictactoe_v3", "classic/rps_v2")


@pytest.mark.parametrize("name", SAMPLE, scope="class")
class TestPettingZoo(GameContract):
    @pytest.fixture(autouse=True)
    def _has_chance(self, name: str) -> None:
        self.name = name
        self.tasks_differ = self.make_environment().rules.has_chance

    def make_environment(self) -> GameEnvironment:
        return open_environment(self.name)


@pytest.fixture
def untouched() -> Iterator[None]:
    """The generators of the process are as they were."""
    python, arrays = random.getstate(), np.random.get_state()
    yield
    assert random.getstate() == python
    assert all(np.array_equal(now, was) for now, was in zip(np.random.get_state(), arrays, strict=True))


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("name", GAMES)
def test_a_few_moves_of_every_game(name: str) -> None:
    assert check_game(open_environment(name), seeds=1, decisions=5) >= 1


@pytest.mark.nightly
@pytest.mark.parametrize("name", GAMES)
def test_every_tested_game_plays(name: str) -> None:
    assert check_game(open_environment(name), seeds=3, decisions=1000) >= 3


@pytest.mark.parametrize(("name", "steps"), [("classic/tictactoe_v3", 500), ("classic/texas_holdem_v4", 200)])
def test_random_steps(name: str, steps: int) -> None:
    assert fuzz(open_environment(name), steps) > 0


@pytest.mark.nightly
def test_ten_thousand_random_steps() -> None:
    quick = [name for name in GAMES if not name.startswith(("classic/chess", "classic/go"))]
    for name in quick:
        assert fuzz(open_environment(name), 10_000 // len(quick) + 1) > 0


def test_pythons_copy_of_an_environment_is_a_fresh_game_and_ours_is_not() -> None:
    from pettingzoo.classic.connect_four import connect_four

    world = connect_four.raw_env()
    world.reset(seed=0)
    for column in (3, 3, 4):
        world.step(column)
    twin = copied(world)
    assert sum(map(bool, twin.board)) == 3
    assert twin.agent_selection == world.agent_selection
    twin.step(0)
    assert sum(map(bool, world.board)) == 3
    # Where this begins to hold, `copied` is needed no more.
    assert not hasattr(fresh := deepcopy(world), "agent_selection") or fresh.board != world.board


def test_a_copy_of_an_environment_around_another_copies_both() -> None:
    from pettingzoo.classic.rps import rps
    from pettingzoo.utils.conversions import aec_to_parallel

    world = aec_to_parallel(rps.raw_env())
    world.reset(seed=0)
    world.step({"player_0": 0, "player_1": 1})
    twin = copied(world)
    assert twin.aec_env is not world.aec_env
    assert twin.unwrapped.num_moves == 1
    twin.step({"player_0": 0, "player_1": 1})
    assert (twin.unwrapped.num_moves, world.unwrapped.num_moves) == (2, 1)


@pytest.mark.usefixtures("untouched")
def test_generators_of_the_process_begin_at_the_seed_and_are_put_back_even_after_an_error() -> None:
    drawn = []
    for seed in (1, 1, 2):
        with OwnChance(seed):
            drawn.append((random.random(), np.random.random()))
    assert drawn[0] == drawn[1] != drawn[2]
    with pytest.raises(IndexError), OwnChance(3):
        random.choice([])


def moves(name: str, *actions: str) -> GameEnvironment:
    """A game after these actions."""
    environment = open_environment(name)
    environment.reset(task(0))
    for action in actions:
        seats = environment.to_move()
        assert environment.step(dict.fromkeys(seats, action)).illegal == ()
    return environment


def test_how_boards_read() -> None:
    environment = moves("classic/tictactoe_v3", "0,2", "2,0")
    assert environment.observe("player_2").fields["seen"] == "..X\n...\nO..\nYou are O."
    assert environment.legal("player_1") == ("0,0", "1,0", "0,1", "1,1", "2,1", "1,2", "2,2")
    four = moves("classic/connect_four_v3", "3", "3").observe("player_0").fields["seen"].splitlines()
    assert four[-4:] == ["...O...", "...X...", "0123456", "You are X."]
    chess = moves("classic/chess_v6", "e2e4", "e7e5")
    assert "rnbqkbnr/pppp1ppp/8/4p3/4P3/8/PPPP1PPP/RNBQKBNR w KQkq" in chess.observe("player_1").fields["seen"]
    text = moves("classic/go_v5", "D4", "q16", "pass").observe("black_0").fields["seen"]
    go = [line for line in text.splitlines() if line[:2].strip().isdigit()]
    assert [line.split()[0] for line in go if "X" in line.split()[1:20]] == ["4"]
    assert [line.split()[0] for line in go if "O" in line.split()[1:20]] == ["16"]


def test_how_cards_read_and_that_nobody_sees_the_others() -> None:
    hands, seen = set(), set()
    environment = open_environment("classic/leduc_holdem_v4")
    for seed in range(40):
        environment.reset(task(seed))
        own, other = (environment.observe(seat).fields["seen"] for seat in environment.spec.seats)
        hands.add((own.split()[5], other.split()[5]))
        seen.add(own)
    # Six cards, so thirty pairs; what the first sees is its card of six, and which of the two blinds it put in.
    assert len(hands) > 15
    assert len(seen) <= 12
    environment = moves("classic/texas_holdem_no_limit_v6", "check call", "check call")
    text = environment.observe("player_0").fields["seen"]
    assert "Chips in the pot: player_0 2, player_1 2." in text
    assert len(text.partition("Open cards: ")[2].partition(".")[0].split()) == 3


def test_both_move_at_once_and_see_what_the_other_did_only_then() -> None:
    environment = moves("classic/rps_v2")
    assert environment.to_move() == ("player_0", "player_1")
    before = environment.observe("player_1").fields["seen"]
    environment.step({"player_0": "rock", "player_1": "?"})
    assert environment.observe("player_1").fields["seen"] == before
    step = environment.step({"player_1": "paper"})
    assert step.rewards == {"player_0": {"payoff": -1.0}, "player_1": {"payoff": 1.0}}
    assert environment.observe("player_1").fields["seen"] == "The other's last move: rock. Rounds left: 14."


def test_the_winner_of_a_game_is_paid_once() -> None:
    environment = moves("classic/tictactoe_v3", "0,0", "1,0", "0,1", "1,1")
    assert environment.step({"player_1": "0,2"}).rewards == {"player_1": {"payoff": 1.0}, "player_2": {"payoff": -1.0}}
    assert environment.to_move() == ()
    assert environment.success()


class Dice:
    """How `rolls` reads."""

    def seen(self, environment: Any, agent: str, observation: Any) -> str:
        return f"{agent} sees {observation}"

    def word(self, environment: Any, agent: str, action: int) -> str:
        return ("python", "numpy")[action]


def rolls() -> Any:
    """Three roll a die each, in turn, by the process's generators; who rolls 0 is out, after nine rolls all are."""
    from gymnasium.spaces import Discrete
    from gymnasium.utils import EzPickle
    from pettingzoo import AECEnv

    class Rolls(AECEnv, EzPickle):
        metadata = {"name": "rolls"}  # noqa: RUF012 - PettingZoo's own way
        possible_agents = ["a", "b", "c"]  # noqa: RUF012 - the same

        def __init__(self) -> None:
            EzPickle.__init__(self)
            super().__init__()

        def action_space(self, agent: str) -> Any:
            return Discrete(2)

        def observe(self, agent: str) -> Any:
            return list(self.rolled)

        def reset(self, seed: int | None = None, options: Any = None) -> None:
            self.agents, self.agent_selection, self.rolled = [*self.possible_agents], "a", []
            self.rewards, self._cumulative_rewards = dict.fromkeys(self.agents, 0), dict.fromkeys(self.agents, 0)
            self.terminations, self.truncations = dict.fromkeys(self.agents, False), dict.fromkeys(self.agents, False)
            self.infos = {agent: {} for agent in self.agents}

        def step(self, action: int | None) -> None:
            if self.terminations[self.agent_selection]:
                self._was_dead_step(action)
                return
            agent, place = self.agent_selection, self.agents.index(self.agent_selection)
            self.rolled.append(int(np.random.randint(6)) if action else random.randrange(6))
            self._clear_rewards()
            self.rewards[agent] = self.rolled[-1]
            self.terminations[agent] = self.rolled[-1] == 0
            self.agent_selection = self.agents[(place + 1) % len(self.agents)]
            if len(self.rolled) == 9:
                self.truncations = dict.fromkeys(self.agents, True)
            self._deads_step_first()

    return Rolls()


def rules(*seats: str) -> BridgeRules:
    return BridgeRules(name="rolls", seats=seats, payoff="free", floor=0, longest=9)


class TestAnEnvironmentOfOnesOwn(GameContract):
    def make_environment(self) -> GameEnvironment:
        return GameEnvironment(PettingZooGame(rules("a", "b", "c"), rolls, Dice()))


@pytest.mark.usefixtures("untouched")
def test_who_is_out_moves_no_more_and_rewards_are_those_of_the_step() -> None:
    environment, were_out = GameEnvironment(PettingZooGame(rules("a", "b", "c"), rolls, Dice())), 0
    for seed in range(30):
        environment.reset(task(seed))
        order, rolled = [], []
        while seats := environment.to_move():
            step = environment.step({seats[0]: Random(len(rolled)).choice(("python", "numpy"))})
            assert [step.rewards[seat]["payoff"] for seat in "abc" if seat != seats[0]] == [0, 0]
            order.append(seats[0])
            rolled.append(step.rewards[seats[0]]["payoff"])
        own = {seat: [roll for mover, roll in zip(order, rolled, strict=True) if mover == seat] for seat in order}
        assert all(0 not in rolls_of_one[:-1] for rolls_of_one in own.values())
        assert len(rolled) == 9 or rolled.count(0) == 3
        were_out += rolled.count(0)
    assert were_out > 5


def test_rules_that_name_other_seats_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"has agents \('a', 'b', 'c'\), its rules name seats \('a', 'b'\)"):
        PettingZooGame(rules("a", "b"), rolls, Dice()).begin(0)


def test_an_unknown_game_is_refused_and_a_missing_package_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigError, match=r"no tested game 'classic/chess_v5'. Did you mean 'classic/chess_v6'"):
        open_bridge("pettingzoo:classic/chess_v5")
    monkeypatch.setitem(sys.modules, "pettingzoo.classic.rps.rps", None)
    with pytest.raises(ConfigError, match=r"pip install 'mas\[pettingzoo\]'"):
        open_bridge("pettingzoo:classic/rps_v2")
