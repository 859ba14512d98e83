"""Gymnasium's text environments behind the contract, and classes of users with numbers or texts as actions."""

from collections import deque
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from games import GameContract, check_game, fuzz, task

from mas.config.access import option_accesses
from mas.core.environment import Environment
from mas.core.errors import ConfigError, EnvironmentFault
from mas.scenarios.bridges import open_bridge
from mas.scenarios.bridges.gymnasium import GymnasiumPosition
from mas.scenarios.bridges.gymnasium_games import GAMES, in_words
from mas.scenarios.bridges.pettingzoo import allowed_actions
from mas.scenarios.game import GameEnvironment
from mas.testing.environment import EnvironmentContract

pytestmark = pytest.mark.skipif(find_spec("gymnasium") is None, reason="Gymnasium is not installed: mas[gymnasium]")
CALM = "FrozenLake-v1(is_slippery=false)"
OWN = '''
import random

import gymnasium
import numpy as np


class Count(gymnasium.Env):
    """Say the digit that the last observation showed."""

    action_words = ("zero", "one", "two")
    floor = -2.0
    max_turns = 5

    def __init__(self, length=3, render_mode=None):
        self.action_space, self.observation_space = gymnasium.spaces.Discrete(3), gymnasium.spaces.Discrete(3)
        self.length, self.render_mode = length, render_mode

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.steps = 0
        self.digit = int(self.np_random.integers(3))
        return self.digit, {}

    def step(self, action):
        self.steps += 1
        paid, self.digit = float(action == self.digit), (random.randrange(3) + int(np.random.randint(3))) % 3
        is_over = self.steps == self.length
        mask = np.array([1, 1, self.steps < 2])
        return self.digit, paid, is_over, False, {"is_success": paid == 1.0, "action_mask": mask}


class Costly(Count):
    floor = -1.0

    def step(self, action):
        return self.digit, -5.0, False, False, {}


class Forgets(Count):
    made = 0

    def reset(self, *, seed=None, options=None):
        Forgets.made += 1
        return Forgets.made, super().reset(seed=seed)[1]


class Breaks(Count):
    def step(self, action):
        raise RuntimeError("out of ice")


class Riddle(gymnasium.Env):
    max_turns = 3

    def __init__(self):
        self.action_space = gymnasium.spaces.Text(20, charset="abcdefghijklmnopqrstuvwxyz ")
        self.observation_space = gymnasium.spaces.Text(200)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.word = str(self.np_random.choice(["ice", "hole", "goal"]))
        return f"Say {self.word!r} backwards.", {}

    def step(self, action):
        is_right = action == self.word[::-1]
        return "Right." if is_right else f"No. Say {self.word!r} backwards.", float(is_right), is_right, False, {}


class Drawn(Count):
    """What is rendered is seen, and what stands in colour there is the player."""

    metadata = {"render_modes": ["ansi"]}

    def render(self):
        return f"..\\x1b[41mX\\x1b[0m. {self.digit}\\n"


class Wide(Count):
    def __init__(self):
        self.action_space = gymnasium.spaces.Box(-1, 1, (3,))


if "Counting-v0" not in gymnasium.registry:
    gymnasium.register(id="Counting-v0", entry_point=Count, max_episode_steps=2, kwargs={"length": 4})
'''


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("gymnasium")
    (folder / "mine.py").write_text(OWN)
    return folder


@pytest.fixture
def own(written: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """What ids of the environments in a file begin with."""
    monkeypatch.chdir(written)
    return "gymnasium:mine.py"


def opened(name: str) -> GameEnvironment:
    environment = open_bridge(f"gymnasium:{name}")
    assert isinstance(environment, GameEnvironment)
    return environment


def begun(name: str, *actions: str, seed: int = 0) -> GameEnvironment:
    environment = opened(name)
    environment.reset(task(seed))
    for action in actions:
        assert environment.step({"player": action}).illegal == ()
    return environment


@pytest.mark.parametrize("name", ["FrozenLake-v1", CALM, "Taxi-v4", "Blackjack-v1"], scope="class")
class TestGymnasium(GameContract):
    @pytest.fixture(autouse=True)
    def _has_chance(self, name: str) -> None:
        self.name = name
        self.tasks_differ = self.make_environment().rules.has_chance

    def make_environment(self) -> GameEnvironment:
        return opened(self.name)


class TestTexts(EnvironmentContract):
    tasks_differ = True

    @pytest.fixture(autouse=True)
    def _written(self, own: str) -> None:
        self.id = f"{own}:Riddle"

    def make_environment(self) -> Environment:
        return open_bridge(self.id)

    task = staticmethod(task)


@pytest.mark.parametrize("name", [*GAMES, CALM])
def test_every_tested_environment_plays(name: str) -> None:
    assert check_game(opened(name), seeds=2, decisions=60) >= 2
    assert fuzz(opened(name), 200) > 0


def solution(environment: GameEnvironment, is_end: Any) -> list[str]:
    """The shortest way through Gymnasium's own table of transitions, where no chance plays a part."""
    position = environment.position
    assert isinstance(position, GymnasiumPosition)
    world = position._live().environment.unwrapped
    words = GAMES[environment.rules.name.partition(":")[2].partition("(")[0]].text
    ways: dict[int, list[str]] = {int(world.s): []}
    waiting = deque(ways)
    while waiting:
        state = waiting.popleft()
        for action, (outcome, *others) in world.P[state].items():
            assert not others
            _, after, paid, ends = outcome
            way = [*ways[state], words.word(world, action)]
            if is_end(paid, ends):
                return way
            if after not in ways and not ends:
                ways[int(after)] = way
                waiting.append(int(after))
    raise AssertionError("no way")


@pytest.mark.parametrize(
    ("name", "is_end", "payoff"),
    [
        (CALM, lambda paid, ends: paid > 0, lambda steps: 1.0),
        ("FrozenLake8x8-v1(is_slippery=false)", lambda paid, ends: paid > 0, lambda steps: 1.0),
        # -1 for every step but the last, which pays 20.
        ("Taxi-v4", lambda paid, ends: paid == 20, lambda steps: 21.0 - steps),
        # -1 for every step, 13 of them around the cliff.
        ("CliffWalking-v1", lambda paid, ends: ends, lambda steps: -13.0),
    ],
)
def test_the_shortest_way_is_a_success_and_no_part_of_it_is(name: str, is_end: Any, payoff: Any) -> None:
    environment = begun(name, seed=3)
    way, paid = solution(environment, is_end), 0.0
    for action in way:
        assert not environment.success()
        assert action in (environment.legal("player") or ())
        paid += environment.step({"player": action}).rewards["player"]["payoff"]
    assert environment.to_move() == ()
    assert environment.success()
    assert paid == payoff(len(way))


def test_how_they_read() -> None:
    lake = begun(CALM, "right", "right")
    assert lake.observe("player").fields["seen"] == "SFYF\nFHFH\nFFFH\nHFFG\nY you, F ice, H hole, G goal"
    assert lake.legal("player") == ("left", "down", "right", "up")
    cliff = begun("CliffWalking-v1", "up", "right").observe("player").fields["seen"]
    assert cliff.splitlines()[2:4] == [".Y..........", ".CCCCCCCCCCG"]
    taxi = begun("Taxi-v4", seed=1)
    assert taxi.observe("player").fields["seen"].splitlines()[7:] == [
        "The taxi is at row 3, column 2.",
        "The passenger is at B, row 4, column 3 and goes to R, row 0, column 0.",
    ]
    # Not pickup and dropoff, and no wall: Gymnasium's own mask.
    assert taxi.legal("player") == ("south", "north", "west")
    cards = begun("Blackjack-v1", seed=1)
    assert (
        cards.observe("player").fields["seen"]
        == "Your cards: 12. Usable aces: 0.\nThe dealer shows 7, where 1 is an ace."
    )


def test_a_slippery_lake_moves_elsewhere_and_always_the_same_with_one_seed() -> None:
    ends = [begun("FrozenLake-v1", "right", "right", seed=seed).observe("player").fields["seen"] for seed in range(12)]
    again = [begun("FrozenLake-v1", "right", "right", seed=seed).observe("player").fields["seen"] for seed in range(12)]
    assert ends == again
    assert len(set(ends)) > 2


def test_a_class_of_a_user_has_its_own_words_mask_floor_and_success(own: str) -> None:
    environment = open_bridge(f"{own}:Count(length=2)")
    assert isinstance(environment, GameEnvironment)
    assert (environment.rules.floor, environment.rules.longest) == (-2.0, 5)
    environment.reset(task(4))
    digit = int(environment.observe("player").fields["seen"])
    words = ("zero", "one", "two")
    assert environment.legal("player") == words
    assert environment.step({"player": words[digit]}).rewards == {"player": {"payoff": 1.0}}
    assert environment.legal("player") == ("zero", "one", "two")
    digit = int(environment.observe("player").fields["seen"])
    environment.step({"player": words[(digit + 1) % 3]})
    # A payoff of 1 would be a success, and the environment says that it is none.
    assert environment.to_move() == ()
    assert not environment.success()
    assert check_game(open_bridge(f"{own}:Count"), seeds=3, decisions=9) > 3  # type: ignore[arg-type]


def test_nothing_is_gained_by_a_forfeit_where_more_was_lost_than_the_floor_says(own: str) -> None:
    environment = open_bridge(f"{own}:Costly")
    environment.reset(task(1))
    paid = [environment.step({"player": said}).rewards["player"]["payoff"] for said in ("one", "one", "?", "?", "?")]
    assert environment.to_move() == ()
    assert paid == [-5, -5, 0, 0, 0]


def test_a_mask_says_what_is_legal(own: str) -> None:
    environment = open_bridge(f"{own}:Count(length=4)")
    environment.reset(task(1))
    for _ in range(2):
        environment.step({"player": "zero"})
    assert environment.legal("player") == ("zero", "one")
    assert environment.step({"player": "two"}).illegal == ("player",)


def test_a_mask_is_of_the_actions_that_the_space_begins_with() -> None:
    import gymnasium
    import numpy as np

    space, mask = gymnasium.spaces.Discrete(3, start=5), np.array([1, 0, 1], dtype=np.int8)
    drawn = {int(space.sample(mask=mask)) for _ in range(60)}
    assert allowed_actions(None, {"action_mask": mask}, space) == sorted(drawn) == [5, 7]


def test_what_is_rendered_as_text_is_seen_with_the_coloured_part_marked(own: str) -> None:
    environment = open_bridge(f"{own}:Drawn")
    environment.reset(task(1))
    assert environment.observe("player").fields["seen"][:6] == "..[X]."


def test_a_registered_id_of_a_module_has_its_limit(own: str) -> None:
    environment = open_bridge(f"{own}:Counting-v0")
    environment.reset(task(1))
    steps = 0
    while environment.to_move():
        environment.step({"player": "zero"})
        steps += 1
    assert steps == 2


def test_texts_that_the_space_does_not_contain_do_not_reach_the_environment(own: str) -> None:
    environment = open_bridge(f"{own}:Riddle")
    environment.reset(task(2))
    before = environment.observe("player").fields["seen"]
    word = before.split("'")[1]
    step = environment.step({"player": "UPPER!"})
    assert (step.illegal, environment.observe("player").fields["seen"]) == (("player",), before)
    assert environment.step({"player": word[::-1]}).rewards == {"player": {"payoff": 1.0}}
    assert environment.success()
    assert environment.to_move() == ()


def test_an_environment_that_cannot_be_copied_says_so_once_it_is(own: str) -> None:
    environment = open_bridge(f"{own}:Forgets")
    environment.reset(task(1))
    environment.step({"player": "zero"})
    clone = environment.clone()
    with pytest.raises(EnvironmentFault, match=r"Forgets cannot be copied: its 1 actions.*self\.np_random"):
        clone.to_move()
    assert environment.to_move() == ("player",)


def test_an_environment_that_raises_is_one_error_that_names_it(own: str) -> None:
    environment = open_bridge(f"{own}:Breaks")
    environment.reset(task(1))
    with pytest.raises(EnvironmentFault, match=r"mine\.py:Breaks: the environment raised RuntimeError.*out of ice"):
        environment.step({"player": "zero"})


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("FrozenLake-v0", r"no tested environment 'FrozenLake-v0'. Did you mean 'FrozenLake-v1'"),
        ("CartPole-v1", "no tested environment 'CartPole-v1'"),
        ("FrozenLake-v1(slippery)", "'slippery' is no option; write OPTION=VALUE"),
        ("FrozenLake-v1(ice=2)", "cannot be made: TypeError.*ice"),
        ("mine.py:Coun", "has no subclass 'Coun' of gymnasium.Env. Did you mean 'Count'"),
        ("mine.py:Wide", "has actions Box.*Discrete"),
        ("nowhere.py:Count", "there is no file nowhere.py"),
        ("mine.py:Uncounted-v0", "cannot be made: .*Uncounted"),
    ],
)
def test_what_cannot_be_opened_says_why(own: str, name: str, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        open_bridge(f"gymnasium:{name}")


def test_observations_in_words() -> None:
    import numpy as np

    assert in_words({"where": np.array([1, 2]), "bag": {"gold": 3, "note": "go (left)"}}) == (
        "where: 1 2\nbag.gold: 3\nbag.note: go (left)"
    )
    assert in_words((1, 2.5, True)) == "1 2.5 True"
    with pytest.raises(ConfigError, match="an observation of 300 numbers is no text"):
        in_words(np.zeros((10, 30)))


def test_a_stored_run_that_names_a_class_wants_to_import_it() -> None:
    (access,) = option_accesses({"id": "gymnasium:some.module:Walk(size=3)"}, "scenario.options")
    assert (access.kind, access.what) == ("code", "import some.module:Walk")
    (access,) = option_accesses({"id": "gymnasium:mine.py:Walk"}, "scenario.options")
    assert access.what == f"import {Path.cwd()}/mine.py:Walk"
    assert list(option_accesses({"id": "gymnasium:FrozenLake-v1(map_name=8x8)"}, "scenario.options")) == []
