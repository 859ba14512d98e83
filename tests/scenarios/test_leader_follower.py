"""`leader_follower`: a board with blocks, a goal that changes in hiding, and no trick that pays."""

from collections.abc import Callable, Mapping
from functools import cache
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from mas.config.options import ScenarioOptions
from mas.core.environment import Environment, Task
from mas.core.errors import ConfigError
from mas.core.scenario import Scenario
from mas.scenarios import SCENARIOS, build_scenario
from mas.scenarios.leader_follower import (
    COLOURS,
    Board,
    ColourEnvironment,
    ColourOptions,
    ColourState,
    best_move,
    make_board,
    make_goals,
)
from mas.scenarios.plan_path import BACK, MOVES
from mas.testing.environment import EnvironmentContract

Policy = Callable[[ColourState], str]
# r.g
# .b.   the follower stands in 20
# @.r
BOARD = Board(3, "r.g.b...r")


@cache
def scenario_of(**options: Any) -> Scenario:
    return build_scenario(ScenarioOptions(name="leader_follower", options=options))


def world(goals: str = "rrrrrr", quota: int = 3) -> ColourEnvironment:
    environment = ColourEnvironment(ColourOptions(size=3, blocks=1, quota=quota, max_turns=len(goals)))
    environment._state = ColourState(board=BOARD, cell=(2, 0), goals=goals, seed=1)
    return environment


def earn(task: Task, policy: Policy, **options: Any) -> tuple[float, bool]:
    """The sum of all terms, and whether the task was solved."""
    environment = scenario_of(**options).environment()
    assert isinstance(environment, ColourEnvironment)
    environment.reset(task)
    total = 0.0
    while environment.to_move():
        total += sum(environment.step({"team": policy(environment.state)}).rewards["team"].values())
    return total, environment.success()


class TestSmall(EnvironmentContract):
    privacy: Mapping[str, frozenset[str]] = {
        "leader": frozenset({"goal"}),
        "follower": frozenset({"board", "compass", "ways"}),
    }
    options: Mapping[str, Any] = {}

    def make_environment(self) -> Environment:
        return scenario_of(**self.options).environment()

    def task(self, number: int) -> Task:
        return scenario_of(**self.options).task("train", number)


class TestMedium(TestSmall):
    options: Mapping[str, Any] = SCENARIOS["leader_follower"].sizes["medium"]


def test_the_compass_leads_to_the_nearest_of_each_colour_and_around_the_others() -> None:
    # Red: 00 (two up) and 22 (two right) are equally near, as are the ways to blue by 10 and 21: U comes before R.
    assert {colour: BOARD.way((2, 0), colour) for colour in "rb"} == {"r": "U", "b": "U"}
    assert BOARD.way((0, 1), "g") == "R"
    # From 10, blue in the middle bars the straight way to 12, which is green: up leads into red, so down.
    assert Board(3, "r...bg...").way((1, 0), "g") == "D"
    # Walled in by others, it leads through them.
    assert Board(3, ".rgrb....").way((0, 0), "g") == "R"


def test_a_block_of_the_goal_is_worth_one_and_another_costs_one() -> None:
    environment = world()
    assert environment.step({"team": "U"}).rewards["team"] == {"progress": pytest.approx(0.1)}
    assert environment.step({"team": "U"}).rewards["team"] == {"progress": pytest.approx(0.1), "collect": 1.0}
    assert environment.state.score == 1
    # The block in 00 came back elsewhere: still one of each colour less the moved one.
    assert environment.state.board.at((0, 0)) == "."
    assert sorted(environment.state.board.cells) == sorted(BOARD.cells)
    environment = world()
    environment.step({"team": "R"})
    wrong = environment.step({"team": "U"}).rewards["team"]
    # From 21, one from the red block in 22, to 11: two from it.
    assert wrong == {"mistake": -1.0, "progress": pytest.approx(-0.1)}
    assert environment.state.score == -1


def test_the_same_move_is_right_or_wrong_by_the_hidden_goal_alone() -> None:
    paid = {}
    for goal in COLOURS:
        environment = world(goals=f"r{goal}rrrr")
        environment.step({"team": "U"})
        seen = environment.observe("follower")
        assert seen == world_after_up().observe("follower")
        assert environment.observe("leader").fields == {"goal": goal}
        terms = environment.step({"team": "U"}).rewards["team"]
        paid[goal] = terms.get("collect", 0.0) + terms.get("mistake", 0.0)
    assert paid == {"r": 1.0, "g": -1.0, "b": -1.0}


def world_after_up() -> ColourEnvironment:
    environment = world()
    environment.step({"team": "U"})
    return environment


def test_without_a_message_no_follower_is_right_more_than_one_time_in_three() -> None:
    # The first goal is uniform and independent of the board: every follower that sees the board alone goes for the
    # colour that counts in one of three cases. Four standard deviations of a share of 900 draws: 0.063.
    goals = [make_goals(Random(seed), 1, 0.5) for seed in range(900)]
    for colour in COLOURS:
        assert goals.count(colour) / 900 == pytest.approx(1 / 3, abs=0.063)


def test_goals_change_as_often_as_said_and_always_to_another_colour() -> None:
    goals = make_goals(Random(0), 10_001, 0.15)
    changes = sum(before != after for before, after in pairwise(goals))
    # Four standard deviations of a share of 10,000 draws: 4 sqrt(0.15 x 0.85 / 10000) = 0.0143.
    assert changes / 10_000 == pytest.approx(0.15, abs=0.0143)
    assert len(set(make_goals(Random(0), 100, 0.0))) == 1
    always = make_goals(Random(0), 100, 1.0)
    assert all(before != after for before, after in pairwise(always))


def idle(state: ColourState) -> str:
    return ""


def bump(state: ColourState) -> str:
    return next((move for move in MOVES if not state.board.has(_to(state, move))), "U")


def _to(state: ColourState, move: str) -> tuple[int, int]:
    rows, columns = MOVES[move]
    return state.cell[0] + rows, state.cell[1] + columns


def one_colour(state: ColourState) -> str:
    return state.board.way(state.cell, "r")


def dither(state: ColourState) -> str:
    """Collects progress, then steps back to collect it again."""
    move = best_move(state)
    return BACK[move] if state.turn % 2 and state.board.has(_to(state, BACK[move])) else move


@pytest.mark.parametrize("trick", [idle, bump, one_colour, dither])
def test_no_trick_earns_what_the_expert_earns(trick: Policy) -> None:
    tasks = [scenario_of().task("train", index) for index in range(60)]
    honest = [earn(task, best_move)[0] for task in tasks]
    tricked = [earn(task, trick)[0] for task in tasks]
    assert sum(tricked) / 60 <= sum(honest) / 60 - 1.5
    # At most the quota in blocks, and 0.1 for each move, as every turn is one.
    assert max(honest + tricked) <= 3 + 0.1 * 12


@pytest.mark.parametrize(("size", "best"), [("small", 0.93), ("medium", 1.0)])
def test_the_expert_reaches_what_the_readme_says(size: str, best: float) -> None:
    options = dict(SCENARIOS["leader_follower"].sizes[size])
    solved = [earn(scenario_of(**options).task("eval", index), best_move, **options)[1] for index in range(60)]
    assert sum(solved) / 60 >= best


@pytest.mark.parametrize("action", ["X", "UU", "u", "U\n", "D" * 10_000, "\x00", '{"move": "U"}', "L"])
def test_what_is_no_move_on_the_board_spends_the_turn_and_moves_nobody(action: str) -> None:
    environment = world()
    step = environment.step({"team": action})
    assert step.illegal == ("team",)
    assert step.rewards["team"] == {}
    assert (environment.state.cell, environment.state.turn, environment.state.board) == ((2, 0), 1, BOARD)


def test_the_dial_is_checked() -> None:
    with pytest.raises(ConfigError, match="blocks=9 leaves too little room at size=4: at most 2"):
        scenario_of(blocks=9)


def test_ten_thousand_random_steps_raise_nothing_and_lose_no_block() -> None:
    random, environment = Random(0), scenario_of().environment()
    assert isinstance(environment, ColourEnvironment)
    tasks = [scenario_of().task("train", index) for index in range(50)]
    texts, steps = (*MOVES, *MOVES, "", "x", "\x07", "U" * 3000, "{}"), 0
    while steps < 10_000:
        environment.reset(random.choice(tasks))
        while environment.to_move():
            environment.step({"team": random.choice(texts)})
            steps += 1
        for colour in COLOURS:
            assert len(environment.state.board.of(colour)) == 2


def test_boards_have_as_many_blocks_as_said_and_an_empty_cell_to_stand_in() -> None:
    for seed in range(50):
        board, cell = make_board(Random(seed), 4, 2)
        assert board.at(cell) == "."
        assert [len(board.of(colour)) for colour in COLOURS] == [2, 2, 2]
        assert board.rows(cell).count("@") == 1
