"""JaxMARL's environments behind the contract; `pytest --all` plays every id."""

import subprocess
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from random import Random

import pytest
from games import GameContract, check_game, legal, play, task, totals

from mas.core.environment import Step
from mas.core.errors import ConfigError
from mas.scenarios.bridges import jaxmarl, open_bridge
from mas.scenarios.bridges.jaxmarl import open_environment
from mas.scenarios.bridges.jaxmarl_games import GAMES
from mas.scenarios.game import GameEnvironment

pytestmark = [
    pytest.mark.nightly(of=16),
    pytest.mark.skipif(find_spec("jaxmarl") is None, reason="JaxMARL is not installed: mas[jaxmarl]"),
]

EPISODES = 8
# Every id is compiled anew, which takes half a minute of two cores, and long episodes take more.
every_id = pytest.mark.matrix("name", GAMES, default=("switch_riddle",), shard=False)


@pytest.mark.matrix("name", ["switch_riddle", "coin_game"], default=["switch_riddle"], shard=False)
class TestJaxMARL(GameContract):
    @pytest.fixture(autouse=True)
    def _has_chance(self, name: str) -> None:
        self.name = name

    def make_environment(self) -> GameEnvironment:
        return open_environment(self.name)


def episode(environment: GameEnvironment, seed: int) -> tuple[list[Step], str]:
    environment.reset(task(seed))
    return play(environment, {}, Random(seed)), environment.render()


@every_id
def test_random_episodes_end_and_are_the_same_for_the_same_seed(name: str) -> None:
    environment = open_environment(name)
    first = [episode(environment, seed) for seed in range(EPISODES)]
    # In another order, so that nothing is carried over from one episode to the next.
    again = [episode(open_environment(name), seed) for seed in reversed(range(EPISODES))]
    assert first == again[::-1]
    assert any(other != first[0] for other in first)
    assert max(len(steps) for steps, _ in first) <= environment.rules.longest


@every_id
def test_payoffs_keep_to_the_rules_and_copies_are_exact(name: str) -> None:
    assert check_game(open_environment(name), seeds=2, decisions=1000) >= 2


def begun(name: str, seed: int = 0) -> GameEnvironment:
    environment = open_environment(name)
    environment.reset(task(seed))
    return environment


def lines(environment: GameEnvironment, seat: str) -> dict[str, str]:
    """`name: value` of every line of a view."""
    parts = (line.partition(": ") for line in environment.observe(seat).fields["seen"].splitlines())
    return {name: value for name, _, value in parts}


def numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(", ")]


def moved(environment: GameEnvironment, **actions: str) -> Step:
    """A step in which all others make their last action."""
    seats = environment.to_move()
    step = environment.step({seat: actions.get(seat) or (environment.legal(seat) or ("",))[-1] for seat in seats})
    assert step.illegal == ()
    return step


@pytest.mark.nightly
@pytest.mark.parametrize("name", ["MPE_simple_spread_v3", "MPE_simple_tag_v3", "MPE_simple_adversary_v3"])
def test_what_two_agents_see_of_one_another_and_of_the_landmarks_agrees(name: str) -> None:
    environment = begun(name)
    for seed in range(5):
        for seat in environment.spec.seats:
            seen = lines(environment, seat)
            for other in set(seen) & set(environment.spec.seats):
                back = lines(environment, other)
                assert numbers(seen[other]) == pytest.approx([-value for value in numbers(back[seat])])
                # To a landmark directly, or by way of the other; each of the three is rounded.
                way = [one + two for one, two in zip(numbers(seen[other]), numbers(back["landmark 1"]), strict=True)]
                assert numbers(seen["landmark 1"]) == pytest.approx(way, abs=0.016)
                if "velocity of agent_0" in seen:
                    assert seen["velocity of agent_0"] == lines(environment, "agent_0")["velocity"]
            assert "goal" not in seen or seen["goal"] in (seen["landmark 0"], seen["landmark 1"])
        environment.step({seat: legal(environment, seat, Random(seed)) for seat in environment.to_move()})


@pytest.mark.nightly
def test_pushes_go_where_they_say_and_what_is_said_is_heard_at_the_next_step() -> None:
    environment = begun("MPE_simple_speaker_listener_v4")
    assert lines(environment, "speaker_0")["goal"] in ("0", "1", "2")
    assert lines(environment, "listener_0")["heard"] == "nothing"
    # A push adds a force of 5 for a tenth of a second to three quarters of the velocity.
    for push, said, velocity, heard in (
        ("left", "say 2", "-0.50, 0.00", "2"),
        ("up", "say 0", "-0.38, 0.50", "0"),
        ("right", "say 1", "0.22, 0.38", "1"),
        ("down", "say 1", "0.16, -0.22", "1"),
    ):
        moved(environment, speaker_0=said, listener_0=push)
        seen = lines(environment, "listener_0")
        assert numbers(seen["velocity"]) == pytest.approx(numbers(velocity), abs=0.011)
        assert seen["heard"] == heard


@pytest.mark.nightly
def test_an_action_with_two_parts_does_both() -> None:
    environment = begun("MPE_simple_reference_v3")
    moved(environment, agent_0="left, say 7", agent_1="up, say 0")
    one, two = (lines(environment, seat) for seat in ("agent_0", "agent_1"))
    assert (one["velocity"], one["heard"]) == ("-0.50, 0.00", "0")
    assert (two["velocity"], two["heard"]) == ("0.00, 0.50", "7")


@pytest.mark.nightly
def test_only_the_good_agent_sees_which_landmark_is_the_goal() -> None:
    environment = open_environment("MPE_simple_push_v3")
    goals = set()
    for seed in range(8):
        environment.reset(task(seed))
        seen = lines(environment, "agent_0")
        assert seen["goal"] == seen[f"landmark {seen['goal landmark']}"]
        assert not {"goal", "goal landmark"} & set(lines(environment, "adversary_0"))
        goals.add(seen["goal landmark"])
    assert goals == {"0", "1"}


@pytest.mark.nightly
def test_the_light_is_seen_in_the_room_alone_and_telling_pays_when_all_have_been_there() -> None:
    paid = set()
    for seed in range(30):
        environment, been = begun("switch_riddle", seed), set[str]()
        is_on = False
        for _ in range(5):
            seen = {seat: environment.observe(seat).fields["seen"] for seat in environment.spec.seats}
            (inside,) = (seat for seat, text in seen.items() if text != "You are outside.")
            assert seen[inside] == f"You are in the room. The light is {'on' if is_on else 'off'}."
            been.add(inside)
            others = dict.fromkeys(environment.spec.seats, "tell") | {inside: "switch the light"}
            assert set(totals(environment, [environment.step(others)]).values()) == {0.0}
            is_on = not is_on
        (inside,) = (s for s in environment.spec.seats if "outside" not in environment.observe(s).fields["seen"])
        step = environment.step(dict.fromkeys(environment.spec.seats, "nothing") | {inside: "tell"})
        expected = 1.0 if len(been | {inside}) == 3 else -1.0
        assert step.rewards == {seat: {"payoff": expected} for seat in environment.spec.seats}
        assert environment.to_move() == ()
        assert environment.success() == (expected > 0)
        paid.add(expected)
    assert paid == {1.0, -1.0}


def cell(text: str) -> tuple[int, int]:
    """`row 1, column 2`."""
    row, column = (int(part.split()[1]) for part in text.split(", "))
    return row, column


@pytest.mark.nightly
def test_coins_pay_who_takes_them_and_cost_whose_colour_they_have() -> None:
    steps = {"right": (0, 1), "left": (0, -1), "up": (1, 0), "down": (-1, 0), "stay": (0, 0)}
    environment, paid = begun("coin_game"), set()
    random = Random(0)
    for number in range(100):
        seen = {seat: lines(environment, seat) for seat in environment.spec.seats}
        one, two = seen["player_0"], seen["player_1"]
        assert (one["you"], one["your coin"]) == (two["other"], two["other's coin"])
        actions = {seat: legal(environment, seat, random) for seat in environment.to_move()}
        at = {}
        for seat, view in seen.items():
            (row, column), (up, right) = cell(view["you"]), steps[actions[seat]]
            at[seat] = ((row + up) % 3, (column + right) % 3)
        coins = {"player_0": cell(one["your coin"]), "player_1": cell(two["your coin"])}
        step = environment.step(actions)
        for seat, other in (("player_0", "player_1"), ("player_1", "player_0")):
            # 1 for each coin where the seat is now, -2 where the other is at the seat's.
            due = sum(at[seat] == coin for coin in coins.values()) - 2 * (at[other] == coins[seat])
            # The last decision of each round of ten pays nothing.
            due = 0 if number % 10 == 9 else due
            assert step.rewards[seat]["payoff"] == due
            paid.add(due)
    assert environment.to_move() == ()
    assert {-2, 0, 1} <= paid


@pytest.mark.nightly
def test_the_kitchen_reads_as_it_is() -> None:
    environment = begun("overcooked/cramped_room")
    assert environment.observe("agent_0").fields["seen"].splitlines()[:4] == ["##P##", "O1.2O", "#...#", "#D#X#"]
    assert environment.observe("agent_1").fields["seen"].splitlines()[1] == "O2.1O"
    for action in ("left", "interact", "right", "up"):
        moved(environment, agent_0=action, agent_1="stay")
    assert lines(environment, "agent_0")["you"] == "facing up, holding an onion"
    assert lines(environment, "agent_1")["other"] == "facing up, holding an onion"
    assert lines(environment, "agent_0")["pot at row 0, column 2"] == "0 onions"
    for number in (1, 2, 3):
        for action in ("interact", "left", "left", "interact", "right", "up") if number < 3 else ("interact",):
            moved(environment, agent_0=action, agent_1="stay")
            left = lines(environment, "agent_0")["pot at row 0, column 2"]
        assert left == (f"{number} onions" if number < 3 else "done in 19")
    for _ in range(19):
        moved(environment, agent_0="stay", agent_1="stay")
    assert lines(environment, "agent_1")["pot at row 0, column 2"] == "soup done"


@pytest.mark.nightly
def test_the_cells_ahead_turn_with_the_agent() -> None:
    environment = begun("storm_2p", seed=3)
    rows = environment.observe("player_0").fields["seen"].splitlines()
    assert rows[4][2] == "Y"
    for _ in range(4):
        moved(environment, player_0="turn left", player_1="stay")
    assert environment.observe("player_0").fields["seen"].splitlines()[:5] == rows[:5], "four quarters"
    steps = 0
    for _ in range(20):
        before = environment.observe("player_0").fields["seen"].splitlines()[:5]
        moved(environment, player_0="forward", player_1="stay")
        after = environment.observe("player_0").fields["seen"].splitlines()[:5]
        if before[3][2] in ".rb":
            # What was two cells ahead is one cell ahead.
            assert after[3] == before[2]
            steps += 1
    assert steps


@pytest.mark.nightly
def test_units_see_each_other_by_name_shoot_whom_they_name_and_act_no_more_when_they_are_out() -> None:
    environment, random, hits, outs = begun("SMAX/3m"), Random(1), 0, 0
    while seats := environment.to_move():
        seen = {seat: lines(environment, seat) for seat in environment.spec.seats}
        places = {(seat, other): place(view[other]) for seat, view in seen.items() for other in view if other in seen}
        for (seat, other), at in places.items():
            if (other, seat) in places:
                assert places[other, seat] == pytest.approx([-value for value in at], abs=0.011)
        shots = {seat: [word for word in environment.legal(seat) or () if word.startswith("shoot")] for seat in seats}
        for seat, targets in shots.items():
            assert {word.removeprefix("shoot ") for word in targets} <= set(seen[seat])
            hits += len(targets)
        # The two sides walk towards each other, then shoot.
        ahead = {seat: "right" if seat.startswith("ally") else "left" for seat in seats}
        environment.step({seat: random.choice(shots[seat] or [ahead[seat]]) for seat in seats})
        out = [seat for seat in environment.spec.seats if "you" not in lines(environment, seat)]
        assert not set(out) & set(environment.to_move())
        outs = max(outs, len(out))
    assert hits > 10
    assert outs >= 3


def place(text: str) -> list[float]:
    """The two numbers behind `at`."""
    return numbers(text.partition(" at ")[2].partition(", reload")[0])


def test_an_unknown_id_is_refused_and_a_missing_package_named(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        ConfigError, match=r"no tested environment 'overcooked/cramped_rom'. Did you mean 'overcooked/c"
    ):
        open_bridge("jaxmarl:overcooked/cramped_rom")
    monkeypatch.setattr(jaxmarl, "_compiled", jaxmarl._compiled.__wrapped__)
    monkeypatch.setitem(sys.modules, "jaxmarl", None)
    with pytest.raises(ConfigError, match=r"pip install 'mas\[jaxmarl\]'"):
        open_bridge("jaxmarl:MPE_simple_spread_v3")


QUIET = """
import io, sys
sys.stdout, sys.stderr = mine = io.StringIO(), io.StringIO()
from random import Random
from games import play, task
from mas.scenarios.bridges import jaxmarl, open_bridge
environment = open_bridge("jaxmarl:switch_riddle")
environment.reset(task(5))
play(environment, {}, Random(5))
assert (sys.stdout, sys.stderr) == mine and not mine[0].getvalue()
print(environment.render(), file=sys.__stdout__)
"""


@pytest.mark.nightly
def test_another_process_plays_the_same_and_its_streams_are_left_alone() -> None:
    environment: Mapping[str, str] = {"PYTHONPATH": ":".join(path for path in sys.path if path)}
    done = subprocess.run([sys.executable, "-c", QUIET], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == episode(open_environment("switch_riddle"), 5)[1]
